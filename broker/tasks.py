"""Schedule: the periodic tasks of the broker, as one table of name, first time and period (RocketMQ: the scheduled
executors of BrokerController, BrokerStatsManager and several services).

    schedule = Schedule(configuration, now_ms=now_ms)
    schedule.add("registerBrokerAll", registration.register_all)
    nursery.start_soon(schedule.run)

TIMETABLE defines when, assembly/timetable.py what. A call is a plain or an async function. Each runs in a task of its
own, so a slow one delays no other, and never twice at a time. A failure is logged, and the task runs again at its next
time. Periods count from due time to due time; missed times are skipped. Configured periods follow configuration
changes.

Times of day (midnight, full hours) are local wall-clock times, as in RocketMQ; all others use trio's clock.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import structlog
import trio
from msgspec import Struct

from triomq.broker.configuration import Configuration
from triomq.protocol.clock import NowMs

log = structlog.get_logger("triomq.broker.tasks")

SLOW_SECONDS: Final = 1.0
REPEAT_SECONDS: Final = 60.0
"""A plain function that takes longer than this blocks the event loop and is logged."""
_LOOK_AGAIN_SECONDS: Final = 60.0
"""Longest sleep towards a time of day, because the wall clock may be set during it."""

Call: TypeAlias = Callable[[], "Awaitable[object] | object"]
Seconds: TypeAlias = "float | Callable[[Configuration], float]"


class Timing(Struct, frozen=True):
    """First after `first` seconds, then every `period` seconds; or at times of day: `at` returns the next one (ms)."""

    first: Seconds = 0.0
    period: Seconds = 0.0
    at: Callable[[int], int] | None = None


def next_minute(now_ms: int) -> int:
    """Return the next full minute after a time, both in ms since 1970."""
    return now_ms - now_ms % 60_000 + 60_000


def next_five_minutes(now_ms: int) -> int:
    """Return the next full minute that is a multiple of five."""
    return now_ms - now_ms % 300_000 + 300_000


def next_hour(now_ms: int) -> int:
    """Return the next full hour, local time."""
    local = time.localtime(now_ms // 1000)
    return (now_ms // 1000 - local.tm_min * 60 - local.tm_sec + 3600) * 1000


def next_midnight(now_ms: int) -> int:
    """Return the next midnight, local time; a day may have 23 or 25 hours."""
    day = time.localtime(now_ms // 1000)
    return int(time.mktime((day.tm_year, day.tm_mon, day.tm_mday + 1, 0, 0, 0, 0, 0, -1))) * 1000


def _offset_period(configuration: Configuration) -> float:
    return configuration.broker.flush_consumer_offset_interval_ms / 1000


def _registration_period(configuration: Configuration) -> float:
    return configuration.broker.registration_period_ms / 1000


TIMETABLE: Final[dict[str, Timing]] = {
    "BrokerStats.record": Timing(at=next_midnight),
    "persist consumerOffset.json": Timing(10, _offset_period),
    "persist consumerFilter.json": Timing(10, 10),
    "keep queueLocks.json": Timing(10, 10),
    "protectBroker": Timing(180, 180),
    "printWaterMark": Timing(10, 1),
    "update name server list": Timing(10, 120),
    "fetch name server list": Timing(10, 120),
    "printMasterAndSlaveDiff": Timing(10, 60),
    "registerBrokerAll": Timing(10, _registration_period),
    "half messages without a producer": Timing(60, 60),
    "SlaveSynchronize.syncAll": Timing(3, 10),
    "ClientHousekeepingService": Timing(10, 10),
    "StatsItemSet sample minute": Timing(0, 10),
    "StatsItemSet sample hour": Timing(0, 600),
    "StatsItemSet sample day": Timing(0, 3600),
    "StatsItemSet print minute": Timing(at=next_minute),
    "StatsItemSet print hour": Timing(at=next_hour),
    "StatsItemSet print day": Timing(at=next_midnight),
    "MomentStatsItemSet print": Timing(at=next_five_minutes),
    "StoreStatsService sample": Timing(1, 1),
    "StoreStatsService print": Timing(60, 60),
}
"""Task name -> timing. The name is RocketMQ's if RocketMQ has such a task."""

NOT_SCHEDULED: Final[dict[str, str]] = {
    "BrokerFastFailure": "requests are handled in their turn or refused at once; deadlines of waiting puts have a task",
    "dispatch behind log": "dispatching is part of the commit, so it is never behind",
    "PullRequestHoldService": "held pulls wait on their queue's watermark and one heap of deadlines",
    "delay delivery, one task per level": "DelayedDelivery sleeps until the next message is due",
    "delay put results, one per level": "puts of delayed messages complete on the store's watermarks",
    "scanResponseTable (each remoting server and client)": "each call has its own time limit",
    "NettyEventExecutor (each)": "connections tell their owner directly",
    "TransactionalMessageCheckService": "TransactionChecks.run, a task of its own: a long check delays the next",
    "delay offset persist": "DelayedDelivery.run, which owns the offsets, also for the last time when it ends",
    "FileWatchService": "ServerCertificates.watch, begun and ended with the ports",
    "AclFileWatchService": "AccessTable.run, where aclEnable is set",
}
"""RocketMQ's tasks that are not part of this schedule, and what replaces them."""


class Schedule:
    """The tasks of one broker. They are added before or while `run` runs; only the event loop touches it. `woke_late`
    receives how many seconds after its time each periodic task woke."""

    def __init__(
        self, configuration: Configuration, *, now_ms: NowMs, woke_late: Callable[[float], None] | None = None
    ) -> None:
        self._configuration = configuration
        self._now_ms = now_ms
        self._woke_late = woke_late
        self._calls: dict[str, Call] = {}
        self._timings: dict[str, Timing] = {}
        self._system_errors: dict[str, tuple[str, float]] = {}  # by task: the present one, and when it was logged
        self._nursery: trio.Nursery | None = None

    @property
    def names(self) -> list[str]:
        """Return the names of the tasks in the order in which they were added."""
        return list(self._calls)

    def add(self, name: str, call: Call, timing: Timing | None = None) -> None:
        """Call `call` at the times of TIMETABLE[name], or of `timing`. A name can be added once."""
        if name in self._calls:
            raise ValueError(f"the task {name!r} is in the schedule already")
        self._timings[name] = timing if timing is not None else TIMETABLE[name]
        self._calls[name] = call
        if self._nursery is not None:
            self._nursery.start_soon(self._keep_calling, name)

    async def run(self) -> None:
        """Run all tasks until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for name in self._calls:
                nursery.start_soon(self._keep_calling, name)
            nursery.start_soon(trio.sleep_forever)

    async def _keep_calling(self, name: str) -> None:
        timing = self._timings[name]
        if timing.at is not None:
            while True:
                await self._sleep_until_wall_clock(timing.at(self._now_ms()))
                await self._call(name)
        due = trio.current_time() + self._seconds(timing.first)
        while True:
            await trio.sleep_until(due)
            if self._woke_late is not None:
                self._woke_late(trio.current_time() - due)
            await self._call(name)
            # Never a period of 0: this task would occupy the event loop.
            due = max(due + max(0.001, self._seconds(timing.period)), trio.current_time())

    async def _sleep_until_wall_clock(self, due_ms: int) -> None:
        while (left_ms := due_ms - self._now_ms()) > 0:  # noqa: ASYNC110 (nobody tells when a clock is set)
            await trio.sleep(min(left_ms / 1000, _LOOK_AGAIN_SECONDS))

    async def _call(self, name: str) -> None:
        began = trio.current_time()
        try:
            result = self._calls[name]()
            elapsed = trio.current_time() - began
            if elapsed > SLOW_SECONDS:
                log.warning("event loop blocked by a task", name=name, seconds=round(elapsed, 3))
            if inspect.isawaitable(result):
                await result
            self._system_errors.pop(name, None)
        except OSError as error:
            self._system_error(name, str(error))
        except Exception:
            log.exception("task failed; it runs again at its next time", name=name)

    def _system_error(self, name: str, text: str) -> None:
        """Log what the system refused, such as a write to a full disk. It concerns the machine, not the code, so it has
        no traceback, and a task that repeats it each second logs it once a minute."""
        before, logged_at = self._system_errors.get(name, ("", 0.0))
        if text != before or trio.current_time() >= logged_at + REPEAT_SECONDS:
            self._system_errors[name] = (text, trio.current_time())
            log.error("task failed; it runs again at its next time", name=name, error=text)

    def _seconds(self, given: Seconds) -> float:
        return given(self._configuration) if callable(given) else given
