"""Where the store uses local time, in zones that are not UTC: the hour of deletions, and names of index files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fake_clock import FakeClock
from store_support import message, open_store, unique_key
from trio.testing import MockClock

from triomq.store.disk.layout import index_name

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
ZONES = {"<+0545>-5:45": 345, "<-0930>9:30": -570, "<+14>-14": 840}
"""Zones as POSIX writes them, which needs no table of zones, and their minutes ahead of UTC."""


@pytest.fixture
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield request.param
    monkeypatch.undo()
    time.tzset()


def utc_ms(*date: int) -> int:
    return (datetime(*date, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


@pytest.mark.parametrize("zone", ZONES, indirect=True)
@pytest.mark.parametrize(("delete_when", "hours"), [("04", [4]), ("0; 23", [0, 23])])
async def test_expired_files_are_deleted_in_the_hours_of_the_zone(
    zone: str, delete_when: str, hours: list[int], tmp_path: Path, autojump_clock: MockClock
) -> None:
    midnight_ms = utc_ms(2026, 5, 5) - ZONES[zone] * MINUTE_MS
    clock = FakeClock(midnight_ms)
    store = await open_store(tmp_path, clock=clock, delete_when=delete_when, disk_max_used_space_ratio_percent=95)
    for _ in range(20):
        store.append(message(body=bytes(1000), uniq_key=unique_key()))
    store.commit()
    for path in (tmp_path / "commitlog").iterdir():
        os.utime(path, (1, 1))
    deleting = []
    for half_hour in range(48):
        clock.now_ms = midnight_ms + half_hour * HOUR_MS // 2
        if store.retention._is_time(0.1):
            deleting.append(half_hour / 2)
    assert deleting == [hour + half for hour in hours for half in (0, 0.5)]
    clock.now_ms = midnight_ms + hours[0] * HOUR_MS + 1
    assert await store.retention.clean() > 0
    await store.close()


@pytest.mark.parametrize("zone", ZONES, indirect=True)
def test_an_index_file_is_named_after_the_local_time_of_its_first_message(zone: str) -> None:
    """As with RocketMQ, which lists the files of a store that it takes over by these names."""
    local_ms = utc_ms(2026, 1, 1, 0, 0, 1) + 7
    assert index_name(local_ms - ZONES[zone] * MINUTE_MS) == "20260101000001007"


@pytest.mark.parametrize("zone", ["CET-1CEST,M3.5.0,M10.5.0/3"], indirect=True)
async def test_index_files_stay_in_their_order_in_the_hour_that_occurs_twice(zone: str, tmp_path: Path) -> None:
    """On 25 October 2026 the clocks of Berlin go from 3 to 2 o'clock, at 1 o'clock UTC."""
    clock = FakeClock(utc_ms(2026, 10, 25, 0, 50))
    store = await open_store(tmp_path, clock=clock)
    keys = [unique_key() for _ in range(200)]
    for key in keys:
        clock.now_ms += 10_000
        store.append(message(uniq_key=key))
        store.commit()
    names = [file.name for file in store.contents.index.files]
    assert len(names) == 4 and names == sorted(names)
    assert names[0].startswith("2026102502501"), "in summer time"
    await store.close()
    store = await open_store(tmp_path, clock=clock)
    assert [file.name for file in store.contents.index.files] == names
    for key in keys:
        assert len(store.reading.query_by_key("T", key, 2, 0, 1 << 60).physical_offsets) == 1
    await store.close()
