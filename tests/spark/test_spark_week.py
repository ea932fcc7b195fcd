"""Retention, the archive and a table together, over a week of virtual time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from week import run_week

pytestmark = pytest.mark.spark


def test_a_week_with_daily_sweeps_and_kills_loses_and_repeats_nothing(spark: Any, tmp_path: Path) -> None:
    happened = run_week(3, spark, tmp_path, 4, archive_days=3)
    assert happened["kills"] > 3
