"""Two thousand power cuts (see store_power_cuts); bin/dev/soak-power-cuts runs any number."""

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


@pytest.mark.parametrize("part", range(4))
async def test_nothing_acknowledged_is_lost_in_500_power_cuts(part: int, tmp_path: Path, quiet: None) -> None:
    assert await cut_many(tmp_path, 500, seed_of(f"power cuts {part}")) == 500
