"""Several parts together: the worked example, and a week of retention, archive and table in virtual time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from week import run_week

pytestmark = pytest.mark.spark


def test_a_week_with_daily_sweeps_and_kills_loses_and_repeats_nothing(spark: Any, tmp_path: Path) -> None:
    happened = run_week(3, spark, tmp_path, 4, archive_days=3)
    assert happened["kills"] > 3


def test_the_pipeline_runs_as_a_whole(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "examples" / "pipeline")
    import run as example

    monkeypatch.setattr(example, "COUNT", 1000)
    example.run(spark, tmp_path)
    out = capsys.readouterr().out
    sys.modules.pop("run")
    assert "1000 messages sent, 998 of them orders" in out
    assert "84 rows of revenue by minute and product" in out
    assert "998 rows committed to" in out
    assert "2 dead rows to" in out
    assert "both clusters have the same orders" in out
    assert "Topic Orders" in (tmp_path / "report.html").read_text()
    assert (tmp_path / "revenue.svg").read_text().count("<polyline") == 3
