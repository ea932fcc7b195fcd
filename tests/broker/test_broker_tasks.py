import time
from collections.abc import Iterator

import pytest
import structlog
import trio
import trio.testing
from msgspec.structs import replace

from triomq.broker.configuration import Configuration
from triomq.broker.tasks import (
    NOT_SCHEDULED,
    TIMETABLE,
    Schedule,
    Timing,
    next_five_minutes,
    next_hour,
    next_midnight,
    next_minute,
)

BOOT_MS = 1_700_000_000_000


@pytest.fixture
def configuration() -> Configuration:
    return Configuration.from_values({})


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def wall_clock(boot_ms: int = BOOT_MS) -> int:
    return boot_ms + round(trio.current_time() * 1000)


class Diary:
    """Records each call and its time, in seconds since the start of the test."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._began = trio.current_time()

    def __call__(self) -> None:
        self.times.append(round(trio.current_time() - self._began, 3))

    async def slow(self) -> None:
        self()
        await trio.sleep(25)


async def run_for(schedule: Schedule, seconds: float) -> None:
    with trio.move_on_after(seconds):
        await schedule.run()


async def test_first_time_and_period(configuration: Configuration, autojump_clock: trio.testing.MockClock) -> None:
    schedule, diary = Schedule(configuration, now_ms=wall_clock), Diary()
    schedule.add("ClientHousekeepingService", diary)
    await run_for(schedule, 45)
    assert diary.times == [10, 20, 30, 40]


async def test_how_late_the_loop_wakes_each_task_is_reported(
    configuration: Configuration, autojump_clock: trio.testing.MockClock
) -> None:
    found: list[float] = []
    schedule = Schedule(configuration, now_ms=wall_clock, woke_late=found.append)

    def block() -> None:
        if trio.current_time() < 15:
            autojump_clock.jump(0.7)

    schedule.add("protectBroker", block, Timing(10, 10))
    schedule.add("printWaterMark", block, Timing(10.25, 10))
    await run_for(schedule, 25)
    assert [round(seconds, 3) for seconds in found] == [0, 0.45, 0, 0]


async def test_a_slow_task_delays_only_itself_and_catches_up_on_nothing(
    configuration: Configuration, autojump_clock: trio.testing.MockClock
) -> None:
    schedule, slow, quick = Schedule(configuration, now_ms=wall_clock), Diary(), Diary()
    schedule.add("protectBroker", slow.slow, Timing(0, 10))
    schedule.add("printWaterMark", quick, Timing(0, 20))
    await run_for(schedule, 61)
    assert slow.times == [0, 25, 50], "due every 10 s, and never twice at a time"
    assert quick.times == [0, 20, 40, 60]


async def test_a_failing_task_is_logged_and_comes_again(
    configuration: Configuration, autojump_clock: trio.testing.MockClock
) -> None:
    schedule, diary = Schedule(configuration, now_ms=wall_clock), Diary()

    def failing() -> None:
        diary()
        raise RuntimeError("a bug")

    async def failing_later() -> None:
        await trio.sleep(1)
        failing()

    schedule.add("printMasterAndSlaveDiff", failing, Timing(0, 10))
    schedule.add("protectBroker", failing_later, Timing(0, 10))
    with structlog.testing.capture_logs() as captured:
        await run_for(schedule, 15)
    assert diary.times == [0, 1, 10, 11]
    assert [(entry["name"], entry["log_level"]) for entry in captured] == [
        ("printMasterAndSlaveDiff", "error"),
        ("protectBroker", "error"),
    ] * 2


async def test_periods_follow_the_configuration(
    configuration: Configuration, autojump_clock: trio.testing.MockClock
) -> None:
    schedule, diary = Schedule(configuration, now_ms=wall_clock), Diary()

    def check() -> None:
        diary()
        configuration.broker = replace(configuration.broker, register_name_server_period_ms=20_000)

    schedule.add("registerBrokerAll", check)
    await run_for(schedule, 51)
    assert diary.times == [10, 30, 50]


async def test_tasks_may_be_added_while_the_schedule_runs(
    configuration: Configuration, autojump_clock: trio.testing.MockClock
) -> None:
    schedule, diary = Schedule(configuration, now_ms=wall_clock), Diary()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(schedule.run)
        await trio.sleep(5)
        schedule.add("SlaveSynchronize.syncAll", diary)
        await trio.sleep(14)
        nursery.cancel_scope.cancel()
    assert diary.times == [8, 18]
    assert schedule.names == ["SlaveSynchronize.syncAll"]


def test_a_name_must_be_known_and_is_taken_once(configuration: Configuration) -> None:
    schedule = Schedule(configuration, now_ms=lambda: 0)
    with pytest.raises(KeyError):
        schedule.add("no such task", lambda: None)
    schedule.add("protectBroker", lambda: None)
    with pytest.raises(ValueError, match="protectBroker"):
        schedule.add("protectBroker", lambda: None)


async def test_times_of_day_are_the_wall_clocks(
    configuration: Configuration, berlin: None, autojump_clock: trio.testing.MockClock
) -> None:
    schedule = Schedule(configuration, now_ms=wall_clock)
    seen: dict[str, list[str]] = {}

    def note(name: str) -> None:
        seen.setdefault(name, []).append(time.strftime("%d %H:%M:%S", time.localtime(wall_clock() // 1000)))

    for name in ("BrokerStats.record", "StatsItemSet print hour", "StatsItemSet print minute"):
        schedule.add(name, lambda name=name: note(name))  # type: ignore[misc]
    await run_for(schedule, 30 * 3600)
    assert seen["BrokerStats.record"] == ["15 00:00:00", "16 00:00:00"]
    assert seen["StatsItemSet print hour"][:2] == ["15 00:00:00", "15 01:00:00"]
    assert len(seen["StatsItemSet print hour"]) == 30
    assert len(seen["StatsItemSet print minute"]) == 30 * 60


async def test_a_wall_clock_that_is_set_is_looked_at_again(
    configuration: Configuration, berlin: None, autojump_clock: trio.testing.MockClock
) -> None:
    shift_ms = [0]
    schedule, diary = Schedule(configuration, now_ms=lambda: wall_clock() + shift_ms[0]), Diary()
    schedule.add("BrokerStats.record", diary)
    seconds_left = (next_midnight(BOOT_MS) - BOOT_MS) / 1000
    async with trio.open_nursery() as nursery:
        nursery.start_soon(schedule.run)
        await trio.sleep(100)
        shift_ms[0] = int(seconds_left * 1000)
        await trio.sleep(60)
        nursery.cancel_scope.cancel()
    assert len(diary.times) == 1
    assert diary.times[0] <= 160


def local_ms(text: str) -> int:
    return int(time.mktime(time.strptime(text, "%Y-%m-%d %H:%M:%S"))) * 1000


def test_midnight_in_a_zone_with_summer_time(berlin: None) -> None:
    for day, following, hours in (
        ("2024-02-28", "2024-02-29", 24),
        ("2024-12-31", "2025-01-01", 24),
        ("2024-03-31", "2024-04-01", 23),
        ("2024-10-27", "2024-10-28", 25),
    ):
        begin_ms, end_ms = local_ms(f"{day} 00:00:00"), local_ms(f"{following} 00:00:00")
        assert end_ms - begin_ms == hours * 3_600_000
        assert next_midnight(begin_ms) == next_midnight(end_ms - 1) == end_ms


def test_the_next_is_never_now() -> None:
    for at in (next_minute, next_five_minutes, next_hour, next_midnight):
        due_ms = at(BOOT_MS)
        assert due_ms > BOOT_MS
        assert at(due_ms - 1) == due_ms
        assert at(due_ms) > due_ms


def test_registration_keeps_within_its_limits(configuration: Configuration) -> None:
    period = TIMETABLE["registerBrokerAll"].period
    assert callable(period)
    for configured_ms, seconds in ((1, 10), (30_000, 30), (600_000, 60)):
        configuration.broker = replace(configuration.broker, register_name_server_period_ms=configured_ms)
        assert period(configuration) == seconds


def test_no_task_is_both_scheduled_and_not() -> None:
    assert not TIMETABLE.keys() & NOT_SCHEDULED.keys()


async def test_what_the_system_refuses_is_logged_once_a_minute_without_a_traceback(
    configuration: Configuration, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    """A full disk refuses the offsets each second, perhaps for hours."""
    errors: list[Exception | None] = [OSError(28, "full")] * 130 + [None] + [OSError(28, "full")] * 2
    errors += [OSError(5, "broken")] * 2

    def fails() -> None:
        if errors and (error := errors.pop(0)) is not None:
            raise error

    schedule = Schedule(configuration, now_ms=wall_clock)
    schedule.add("offsets", fails, Timing(1, 1))
    with structlog.testing.capture_logs() as logs:
        nursery.start_soon(schedule.run)
        await trio.sleep(200)
    assert not errors
    found = [(entry["error"], entry["name"], entry.get("exc_info")) for entry in logs if "failed" in entry["event"]]
    full, broken = ("[Errno 28] full", "offsets", None), ("[Errno 5] broken", "offsets", None)
    assert found == [full, full, full, full, broken]


async def test_a_fault_of_a_task_is_logged_each_time_with_its_traceback(
    configuration: Configuration, autojump_clock: trio.testing.MockClock, nursery: trio.Nursery
) -> None:
    def fails() -> None:
        raise KeyError("a bug")

    schedule = Schedule(configuration, now_ms=wall_clock)
    schedule.add("offsets", fails, Timing(1, 1))
    with structlog.testing.capture_logs() as logs:
        nursery.start_soon(schedule.run)
        await trio.sleep(3.5)
    assert [entry["exc_info"] for entry in logs if "failed" in entry["event"]] == [True, True, True]
