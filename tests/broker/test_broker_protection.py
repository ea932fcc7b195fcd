"""Groups that are too far behind, and the lines of watermark.log."""

from typing import Any, cast

import pytest
import structlog
import trio.testing
from fake_clock import FakeClock

from triomq.broker.configuration import Configuration
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.metrics.watermark_log import WatermarkLog
from triomq.broker.pools import Pools
from triomq.broker.protection import Protection
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.offsets import OffsetTable


class FakeLog:
    """A store of one queue: message n is at n * 1000, stored n s after the clock's start."""

    def __init__(self, clock: FakeClock, count: int, first: int = 0) -> None:
        self._begin_ms = clock()
        self._count = count
        self._first = first
        self.max_physical_offset = count * 1000
        self.reading = self

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self._first

    def queue_entries(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[tuple[int, int, int]]:
        offsets = range(queue_offset, min(self._count, queue_offset + count)) if queue_offset >= self._first else ()
        return [(offset * 1000, 1000, 0) for offset in offsets]

    def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        return self._begin_ms + queue_offset * 1000


class Surroundings:
    def __init__(self, count: int = 100, first: int = 0, **keys: str) -> None:
        self.clock = FakeClock()
        self.stats = BrokerStats("C", now_ms=self.clock)
        self.offsets = OffsetTable()
        self.groups = GroupTable(now_ms=self.clock)
        self.protection = Protection(
            Configuration.from_values(keys),
            cast(Any, FakeLog(self.clock, count, first)),
            self.offsets,
            self.groups,
            self.stats,
            now_ms=self.clock,
        )

    def consumed(self, group: str, queue_offset: int) -> None:
        self.groups.find(group)
        self.offsets.commit(group, "T", 0, queue_offset)
        self.stats.group_get(group, "T", 0, 1, 1, 0)

    def is_consuming(self, group: str) -> bool:
        config = self.groups.get(group)
        assert config is not None
        return config.consume_enable


async def test_the_distance_is_that_from_the_next_message_to_the_end() -> None:
    around = Surroundings()
    around.consumed("Slow", 40)
    around.consumed("Done", 100)
    around.groups.find("NeverRead")
    around.clock.advance(100_000)
    await around.protection.measure()
    assert set(around.stats.backlogs.moments()) == {
        ("GROUP_GET_FALL_SIZE", "0@T@Slow", 60_000),
        ("GROUP_GET_FALL_TIME", "0@T@Slow", 60_000),
        ("GROUP_GET_FALL_SIZE", "0@T@Done", 0),
        ("GROUP_GET_FALL_TIME", "0@T@Done", 0),
    }


async def test_what_retention_removed_is_not_behind() -> None:
    around = Surroundings(first=90)
    around.consumed("Slow", 0)
    await around.protection.measure()
    assert ("GROUP_GET_FALL_SIZE", "0@T@Slow", 10_000) in around.stats.backlogs.moments()


async def test_it_is_not_measured_when_that_is_switched_off() -> None:
    around = Surroundings(diskFallRecorded="false")
    around.consumed("Slow", 0)
    await around.protection.measure()
    assert around.stats.backlogs.moments() == []


async def test_groups_too_far_behind_are_stopped_when_that_is_wanted() -> None:
    around = Surroundings(disableConsumeIfConsumerReadSlowly="true", consumerFallbehindThreshold="50000")
    around.consumed("Slow", 49)
    around.consumed("Fair", 50)
    with structlog.testing.capture_logs() as captured:
        await around.protection.protect()
        await around.protection.protect()
    assert (around.is_consuming("Slow"), around.is_consuming("Fair")) == (False, True)
    assert [(entry["group"], entry["behind_bytes"]) for entry in captured if "too far" in entry["event"]] == [
        ("Slow", 51_000)
    ]


async def test_otherwise_nobody_is_stopped() -> None:
    around = Surroundings(consumerFallbehindThreshold="1")
    around.consumed("Slow", 0)
    await around.protection.protect()
    assert around.is_consuming("Slow")


async def test_watermark_lines_are_for_pools_with_work(autojump_clock: trio.testing.MockClock) -> None:
    pools = Pools(Configuration.from_values({}).broker)
    held = 0
    watermarks = WatermarkLog(pools, lambda: held)

    def lines() -> list[str]:
        with structlog.testing.capture_logs() as captured:
            watermarks.print()
        return [entry["event"] for entry in captured]

    assert lines() == []
    pools.send.entered("a")
    pools.pull.entered("held")
    held = 1
    await trio.sleep(0.25)
    assert lines() == ["[WATERMARK] Send Queue Size: 1 SlowTimeMills: 250"]
    pools.send.left("a")
    assert lines() == ["[WATERMARK] Send Queue Size: 0 SlowTimeMills: 0"], "that it is empty again"
    assert lines() == []


@pytest.mark.parametrize("seconds", [0.0, 0.02])
async def test_timed_commits_count_their_messages(seconds: float, autojump_clock: trio.testing.MockClock) -> None:
    from triomq.broker.metrics.store_metrics import StoreMetrics

    clock = FakeClock()
    stats = BrokerStats("C", now_ms=clock)
    pace = StoreMetrics(stats, now_ms=clock)

    def commit() -> None:
        autojump_clock.jump(seconds)
        stats.stored(3, 300)

    told: list[float] = []
    pace.timed(commit, told.append)()
    assert told == pytest.approx([seconds * 1000])
    buckets = pace.values()["putMessageDistributeTime"]
    assert ("[10~50ms]:3 " if seconds else "[<=0ms]:3 ") in buckets
