"""A thousand power cuts (see store_power_cuts); bin/dev/soak-power-cuts runs any number."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog
from store_power_cuts import cut_many
from store_seeds import seed_of


@pytest.fixture
def quiet() -> None:
    """Thousands of recoveries log too much."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 4))])
async def test_nothing_acknowledged_is_lost_in_250_power_cuts(part: int, tmp_path: Path, quiet: None) -> None:
    assert await cut_many(tmp_path, 250, seed_of(f"power cuts {part}")) == 250
