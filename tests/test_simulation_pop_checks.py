"""What the simulation's checks of receipt handles say of an acknowledgement before a power failure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sim.checks import Verdict
from sim.cluster import BEGIN_MS
from sim.history import DONE, Acknowledged, History, Receipt, Use
from sim.pop_checks import check_receipts

POWER_FAILS = 20.0
PLACE = "g", "client-0", "broker-a", 0, 5


def broker(ends_that_lose: tuple[str, ...] = ("power",)) -> Any:
    return SimpleNamespace(
        died_at=[(POWER_FAILS, "power")],
        restored=[],
        ends_that_lose=ends_that_lose,
        down_seconds=lambda begin, end: 0.0,
    )


def failures(sent: float, ended: float, **options: Any) -> list[str]:
    """Return what is said of a message that was acknowledged within these seconds, and comes again after a power
    failure."""
    history = History()
    history.sent["key"] = ("Popped", b"body", 1.0)
    history.acknowledged["key"] = Acknowledged("Popped", "broker-a", 0, 5, at=1.0)
    first = ms(10.0)
    use = Use(False, ms(sent), ms(ended), DONE)
    history.receipts.append(Receipt(*PLACE, "key", first, first + 8000, first, 0, receive=1, uses=[use]))
    again = ms(30.0)
    history.receipts.append(Receipt(*PLACE, "key", again, again + 8000, again, 1, receive=2))
    verdict = Verdict()
    check_receipts(history, {"broker-a": broker(**options)}, 0.0, verdict)
    return [each for each in verdict.failures if "after the acknowledgement" in each]


def ms(seconds: float) -> int:
    return BEGIN_MS + int(seconds * 1000)


@pytest.mark.parametrize(("sent", "ended"), [(19.0, 19.5), (19.9, 20.002), (19.0, 23.0)])
def test_one_that_was_not_synced_may_be_lost_also_when_its_answer_was_on_its_way(sent: float, ended: float) -> None:
    assert failures(sent, ended) == []


@pytest.mark.parametrize(("sent", "ended"), [(12.0, 12.1), (20.001, 20.01)])
def test_one_that_was_synced_or_came_after_the_failure_holds(sent: float, ended: float) -> None:
    assert len(failures(sent, ended)) == 1


def test_with_sync_flush_each_one_holds() -> None:
    assert len(failures(19.0, 19.5, ends_that_lose=())) == 1
