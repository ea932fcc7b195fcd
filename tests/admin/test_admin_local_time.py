"""Times that mqadmin prints and reads are those of the zone of its machine, as with RocketMQ's."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from triomq.admin.commands.consumer_status import _compact_time
from triomq.admin.java_text import date_time, date_time_ms, iso_time, parse_time

MS = 1_767_225_600_007
"""2026-01-01 00:00:00.007 UTC."""


@pytest.fixture(params=["<+0545>-5:45", "<-0930>9:30"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param[1:6]
    monkeypatch.undo()
    time.tzset()


def test_times_are_written_and_read_in_local_time(zone: str) -> None:
    day, clock = {"+0545": ("2026-01-01", "05:45:00"), "-0930": ("2025-12-31", "14:30:00")}[zone]
    assert date_time(MS) == f"{day} {clock}"
    assert date_time_ms(MS) == f"{day} {clock},007"
    assert iso_time(MS) == f"{day}T{clock}.007{zone[:3]}:{zone[3:]}"
    assert _compact_time(MS) == f"{day}{clock}007".replace("-", "").replace(":", "")
    assert parse_time(f"{day}#{clock}:007") == MS


def test_what_never_was_has_no_time(zone: str) -> None:
    assert (iso_time(0), iso_time(-1)) == (None, None)
    assert iso_time(1) is not None


def test_a_local_time_of_summer_is_read_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        july_ms = MS + 190 * 86_400_000
        assert iso_time(july_ms) == "2026-07-10T02:00:00.007+02:00"
        assert parse_time("2026-07-10#02:00:00:007") == july_ms
    time.tzset()
