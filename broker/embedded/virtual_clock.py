"""A clock that a test controls: hours of a cluster's time pass in milliseconds, and no client notices.

    clock = VirtualClock()
    with LocalCluster(clock=clock) as cluster:      # runs in a thread of its own
        ...                                         # any clients, also in other processes
        clock.advance(2 * 3600)                     # two hours later, everything due has happened, in order

The clock runs like any clock, and jumps ahead on request. It governs the cluster: when delayed messages are due, when
transactions are checked and files deleted, and the store's timestamps. Clients keep their own time, so everything about
clients (idle connections, missing heartbeats, queue locks, held pulls, brokers silent at the NameServer) counts real
time: a jump never expires a live client.

`advance` jumps from one due event to the next: a delayed message, a transaction check, a full hour (when retention
looks at deleteWhen), a deletion in progress. After each jump it waits until the cluster is idle and, if messages were
stored, until the clients have been silent for `settle_seconds` of real time, so that their reactions (a retry, a
commit) happen before the clock moves on. If nothing else is pending it gives them up to `patience_seconds`, since the
next event may be what a client makes of the message that it is handling. It does not jump past a consumer of this
process that has no queues yet of a topic that exists (remoting/virtual_time.py). Housekeeping that nobody can observe
runs once per jump.

A clock drives one cluster at a time. Any thread may call everything but `attach`.
"""

from __future__ import annotations

import datetime
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf

import trio
from trio.testing import wait_all_tasks_blocked

from triomq.broker import optional
from triomq.protocol.clock import JumpHeard, NowMs
from triomq.remoting.process_bound import ProcessBound
from triomq.remoting.virtual_time import Watched
from triomq.store.disk.files import Files, UnsyncedFiles

SHORTEST_JUMP_SECONDS = 0.1
"""An event that stays due (a message that the store refuses) is examined again after this time."""
JUST_BEHIND_SECONDS = 0.0005
"""Times are requested in whole ms, so a jump ends slightly after its event."""
LONGEST_WAIT_SECONDS = 2.0
"""The longest real time of one wait for idleness, because a client may send all the time."""
LOOK_SECONDS = 0.0005
CONSUMERS_SECONDS = 30.0
"""The longest real time for consumers of this process to get their queues before a jump."""
ASK_SECONDS = 0.005
"""How often a condition is evaluated while clients have time to react."""
MAX_JUMPS_KEPT = 10_000


class VirtualClock(ProcessBound, trio.abc.Clock):
    """See the module's docstring.

    `start`: the wall-clock time when the cluster starts (local time if it has no zone), now by default.
    `settle_seconds`, `patience_seconds`: real time for clients to react, see the module's docstring.
    """

    def __init__(
        self, start: datetime.datetime | None = None, *, settle_seconds: float = 0.02, patience_seconds: float = 0.25
    ) -> None:
        self._start_ms = time.time_ns() // 1_000_000 if start is None else int(start.timestamp() * 1000)
        self._began = time.perf_counter()
        self._ahead_seconds = 0.0
        self._jumps = _Jumps(self._start_ms - time.time_ns() // 1_000_000)
        self._settle_seconds = settle_seconds
        self._patience_seconds = patience_seconds
        self._run: _Run | None = None
        self._watched: Watched | None = None
        self._heard: list[JumpHeard] = []

    # trio.abc.Clock.

    def start_clock(self) -> None:
        """Do nothing: the clock has run since it was created."""

    def current_time(self) -> float:
        return time.perf_counter() - self._began + self._ahead_seconds

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()

    # What tests use.

    def now_ms(self) -> int:
        """Return the cluster's wall clock, milliseconds since 1970."""
        return self._start_ms + int(self.current_time() * 1000)

    @property
    def now(self) -> datetime.datetime:
        """Return the cluster's wall clock as local time."""
        return datetime.datetime.fromtimestamp(self.now_ms() / 1000)

    def advance(self, seconds: float) -> None:
        """Let time pass; return when everything that fell due has happened. Blocks: in a trio task use `advance_async`,
        in asyncio `asyncio.to_thread(clock.advance, seconds)`."""
        self._in_run(self._advance, self.current_time() + seconds)

    async def advance_async(self, seconds: float) -> None:
        """Let time pass as `advance` does, without blocking a trio program: its run is not the cluster's, so its tasks
        continue meanwhile."""
        await trio.to_thread.run_sync(partial(self.advance, seconds))

    def advance_to(self, moment: datetime.datetime | datetime.time) -> None:
        """Advance to a moment; a time of day means its next occurrence. Raises ValueError if the moment has passed."""
        if isinstance(moment, datetime.time):
            now = self.now
            moment = datetime.datetime.combine(now.date(), moment)
            if moment <= now:
                moment += datetime.timedelta(days=1)
        seconds = moment.timestamp() - self.now_ms() / 1000
        if seconds < 0:
            raise ValueError(f"{moment} has passed: the clock says {self.now}")
        self.advance(seconds)

    def advance_until(self, condition: Callable[[], object], *, at_most_seconds: float) -> None:
        """Jump from one due event to the next until `condition()` is true (evaluated in this thread, also while clients
        work). Raises TimeoutError if that takes more than `at_most_seconds` of the cluster's time; it names the
        consumers of this process that have no queues."""
        target = self.current_time() + at_most_seconds
        while not self._comes_true(condition):
            if self.current_time() >= target:
                waiting = "".join(f"; {each}" for each in self._watched.without_queues()) if self._watched else ""
                raise TimeoutError(f"not true within {at_most_seconds:g} s of the cluster's time: {condition}{waiting}")
            self._in_run(self._step, target)

    async def advance_until_async(self, condition: Callable[[], object], *, at_most_seconds: float) -> None:
        """Evaluate `condition` in a thread, so that a trio program is not blocked; otherwise like `advance_until`."""
        await trio.to_thread.run_sync(partial(self.advance_until, condition, at_most_seconds=at_most_seconds))

    # What the cluster uses.

    def attach(self, seconds_to_next: Callable[[], float], log_end: Callable[[], int], watched: Watched) -> None:
        """Control the time of this trio run. `seconds_to_next` returns the time to the next due event except full hours
        (inf: none); `log_end` grows with every stored message; `watched` are the consumers that a jump waits for."""
        self._watched = watched
        self._run = _Run(trio.lowlevel.current_trio_token(), trio.Lock(), seconds_to_next, log_end)

    def detach(self) -> None:
        self._run = self._watched = None
        self._heard.clear()

    def on_jump(self, heard: JumpHeard) -> None:
        """Call `heard(seconds)` in the cluster's thread after each jump."""
        self._heard.append(heard)

    def files(self) -> Files:
        """Return files whose modification times are the cluster's time, and which do not wait for a disk."""
        return _TimedFiles(self._jumps)

    # Inside.

    def _in_run(self, function: Callable[[float], Awaitable[None]], target: float) -> None:
        run = self._run
        if run is None:
            self._jump(max(0.0, target - self.current_time()))
        else:
            trio.from_thread.run(function, target, trio_token=run.token)

    def _comes_true(self, condition: Callable[[], object]) -> bool:
        """Return whether the condition becomes true before the next jump. Called in the test's thread; it returns as
        soon as the condition is true."""
        while not condition():
            run = self._run
            if run is None or not trio.from_thread.run(self._settle, trio_token=run.token):
                return bool(condition())
            patience_ends = time.perf_counter() + self._patience_seconds
            while not trio.from_thread.run(self._is_more_stored, run, ASK_SECONDS, trio_token=run.token):
                if condition():
                    return True
                if time.perf_counter() >= patience_ends:
                    return False
        return True

    async def _advance(self, target: float) -> None:
        await self._work_off()
        while self.current_time() < target:
            await self._step(target)
            await self._work_off()

    async def _step(self, target: float) -> None:
        """Jump to the next due event, at most to `target`; or wait until the consumers have their queues, after which
        they have as much time to react as after a jump."""
        run = self._run
        if run is None:
            return
        async with run.lock:
            if await self._waited_for_consumers():
                run.settled_end = -1
                return
            now_ms = self.now_ms()
            until_due = (
                min(run.seconds_to_next(), (optional.tasks.next_hour(now_ms) - now_ms) / 1000) + JUST_BEHIND_SECONDS
            )
            until_due = max(SHORTEST_JUMP_SECONDS, until_due)
            self._jump(max(0.0, min(target - self.current_time(), until_due)))

    async def _waited_for_consumers(self) -> bool:
        """Wait until the consumers of this process have the queues of topics that exist. Return whether some had not.
        Raises TimeoutError."""
        waiting = self._watched.waiting() if self._watched is not None else []
        if not waiting:
            return False
        with trio.move_on_after(CONSUMERS_SECONDS):
            while self._watched is not None and (waiting := self._watched.waiting()):  # noqa: ASYNC110 (in other threads)
                await trio.sleep(ASK_SECONDS)
            return True
        raise TimeoutError(
            f"the clock does not jump past consumers without queues, waited for {CONSUMERS_SECONDS:g} s: "
            f"{'; '.join(waiting)}. In a trio task use advance_async or advance_until_async: what blocks the event "
            "loop keeps its consumers from their queues"
        )

    def _jump(self, seconds: float) -> None:
        self._ahead_seconds += seconds
        self._jumps.add(seconds * 1000)
        for heard in self._heard:
            heard(seconds)

    async def _work_off(self) -> None:
        """Wait until the cluster is idle and its clients no longer react to what it stored."""
        while await self._settle():
            run = self._run
            if run is None or not await self._is_more_stored(run, self._patience_seconds):
                return

    async def _settle(self) -> bool:
        """Wait until the cluster is idle and its clients have been silent. Return True if the next event may be a
        client's reaction to a message stored meanwhile, since nothing else is pending."""
        run = self._run
        if run is None:
            return False
        threads = trio.to_thread.current_default_thread_limiter()
        before = run.settled_end
        with trio.move_on_after(LONGEST_WAIT_SECONDS):
            async with run.lock:
                while True:
                    await wait_all_tasks_blocked()
                    if threads.borrowed_tokens:
                        await trio.sleep(LOOK_SECONDS)  # a flush or an unlink
                    elif run.log_end() == run.settled_end:
                        break
                    else:
                        await wait_all_tasks_blocked(self._settle_seconds)
                        run.settled_end = run.log_end()  # silence followed everything stored since then, too
        return run.settled_end != before and run.seconds_to_next() == inf

    async def _is_more_stored(self, run: _Run, seconds: float) -> bool:
        """Return whether a client stores something within this time."""
        with trio.move_on_after(seconds):
            while run.log_end() == run.settled_end:  # noqa: ASYNC110 (the logs of several brokers have no common event)
                await trio.sleep(LOOK_SECONDS)
        return run.log_end() != run.settled_end


class _Run:
    """The cluster's trio run."""

    def __init__(
        self,
        token: trio.lowlevel.TrioToken,
        lock: trio.Lock,
        seconds_to_next: Callable[[], float],
        log_end: Callable[[], int],
    ) -> None:
        self.token = token
        self.lock = lock
        self.seconds_to_next = seconds_to_next
        self.log_end = log_end
        self.settled_end = -1


class _Jumps:
    """Real times of the last jumps, to compute the cluster's time at a real time."""

    def __init__(self, ahead_ms: float) -> None:
        self._real_ms = [0]
        self._ahead_ms = [ahead_ms]

    def add(self, jump_ms: float) -> None:
        ahead_ms = self._ahead_ms[-1] + jump_ms
        real_ms = time.time_ns() // 1_000_000
        if real_ms <= self._real_ms[-1]:
            self._ahead_ms[-1] = ahead_ms
            return
        self._real_ms.append(real_ms)
        self._ahead_ms.append(ahead_ms)
        if len(self._real_ms) > MAX_JUMPS_KEPT:
            del self._real_ms[: MAX_JUMPS_KEPT // 2], self._ahead_ms[: MAX_JUMPS_KEPT // 2]

    def at(self, real_ms: int) -> int:
        """Return the cluster's time at a real time."""
        return real_ms + int(self._ahead_ms[max(0, bisect_right(self._real_ms, real_ms) - 1)])

    def real_at(self, cluster_ms: int) -> int:
        """Return the real time of a cluster time; if a jump skipped that time, the real time of the jump."""
        for jumped_ms, ahead_ms in zip(reversed(self._real_ms), reversed(self._ahead_ms), strict=True):
            if cluster_ms - ahead_ms >= jumped_ms:
                return int(cluster_ms - ahead_ms)
        return self._real_ms[0]


class _TimedFiles(UnsyncedFiles):
    def __init__(self, jumps: _Jumps) -> None:
        self._jumps = jumps

    def modified_ms(self, path: str) -> int:
        return self._jumps.at(super().modified_ms(path))

    def set_modified(self, path: str, modified_ms: int) -> None:
        super().set_modified(path, self._jumps.real_at(modified_ms))


def run_now_ms(start: datetime.datetime | None = None) -> NowMs:
    """Return a wall clock that follows the clock of this trio run, for programs that bring their own (trio's
    MockClock):

    async def test_a_delay(autojump_clock):
        now_ms = run_now_ms()
        async with LocalCluster(now_ms=now_ms) as cluster, Producer(..., now_ms=now_ms) as producer: ...
    """
    clock = trio.lowlevel.current_clock()
    began = clock.current_time()
    start_ms = time.time_ns() // 1_000_000 if start is None else int(start.timestamp() * 1000)
    return lambda: start_ms + int((clock.current_time() - began) * 1000)
