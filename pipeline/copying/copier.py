"""The loop of a copy: pulls, sends and saved positions, in rounds.

One thread owns everything here. In a round each queue gets at most IN_FLIGHT messages, so this is what a killed copy
may send again. The positions of a topic are on disk before its next round.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final

from triomq.pipeline.copying import groups
from triomq.pipeline.copying.figures import Figures
from triomq.pipeline.copying.plan import Plan
from triomq.pipeline.copying.queue_table import QueueTable
from triomq.pipeline.copying.reading import MAX_DEPTH, read_round, slices
from triomq.pipeline.copying.records import Marks, SameNames
from triomq.pipeline.copying.sending import QueueSender
from triomq.pipeline.copying.sides import Chosen, choose, named
from triomq.pipeline.copying.state import QueueCopy
from triomq.protocol.codes import ResponseCode
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.cluster import Cluster
from triomq.spark.errors import BrokerError, MQSparkError
from triomq.spark.jobs.session import JobFailed

IN_FLIGHT: Final = MAX_DEPTH * 32
IDLE_SECONDS: Final = 0.1
RETRY_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 30.0
"""A copy with --once gives up when no round has succeeded for this time."""
REMINDER_SECONDS: Final = 300.0
"""A line is written again after this time, if it still holds."""
LINES_KEPT: Final = 1000
BURST_SECONDS: Final = 0.5


def tell(line: str) -> None:
    """Write one line for the operator."""
    sys.stderr.write(f"mqpipeline copy: {line}\n")
    sys.stderr.flush()


class Pace:
    """At most `rate` messages a second, 0 for no limit. What was not used is not saved, except for BURST_SECONDS."""

    def __init__(self, rate: int, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._clock = clock
        self._due = clock()

    def wait_seconds(self) -> float:
        """Return how long to wait before the next messages."""
        return max(self._due - self._clock(), 0.0)

    def add(self, count: int) -> None:
        """Note messages that were sent."""
        if self._rate:
            self._due = max(self._due, self._clock() - BURST_SECONDS) + count / self._rate


class Copier:
    """`stop`: set by a signal; what is in hand is finished."""

    def __init__(
        self,
        plan: Plan,
        table: QueueTable,
        sides: tuple[Cluster, Cluster],
        marks: Marks,
        figures: Figures,
        stop: threading.Event,
    ) -> None:
        self._plan = plan
        self._table = table
        self._source, self._target = sides
        self._sender = QueueSender(self._target, marks, plan.born_within_ms)
        self._stop = stop
        self._told: dict[str, float] = {}
        self._chosen: Chosen | None = None
        self._pace = Pace(plan.rate, self._source.clock)
        self._followed = groups.FollowedOffsets()
        self._figures = figures

    # -- what is copied ---------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Look for topics, queues and groups, and make what is missing at the target. Raises JobFailed."""
        self._source.forget_routes()
        self._target.forget_routes()
        is_first = self._chosen is None
        chosen = choose(self._plan, self._source, self._target, is_first=is_first)
        self._chosen = chosen
        for topic in self._table.keep(chosen.topics):
            self._tell_once(f"--from: topic {topic!r} does not exist any more, and is copied again when it does")
        with named("--to"):
            lacking = groups.missing_groups(self._target, chosen.target_masters, chosen.groups) if chosen.groups else []
            groups.make_groups(self._target, lacking)
        for topic in chosen.topics:
            try:
                self._table.take_up(topic, chosen)
            except (JobFailed, MQSparkError) as error:
                if is_first and (topic in self._plan.topics.exact() or not isinstance(error, JobFailed)):
                    raise
                self._tell_once(f"{error}; topic {topic!r} is not copied, or not all of it")

    # -- the loop ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Copy until everything that was there at the start is copied (--once), or until `stop`. Raises JobFailed."""
        self.refresh()
        ends = self._ends() if self._plan.is_once else {}
        now = last_success = self._source.clock()
        refreshed = translated = now
        while not self._stop.is_set():
            failures: list[BrokerError] = []
            stored = self.round(failures)
            self._figures.note_round(self._table.active.values())
            now = self._source.clock()
            if not failures:
                last_success = now
            self._judge(failures, now - last_success)
            if self._plan.is_once and all(self._reached(queue, end) for queue, end in ends.items()):
                break
            if now - translated >= self._plan.offsets_seconds:
                self._again(self.translate)
                translated = self._source.clock()
            if now - refreshed >= self._plan.refresh_seconds and not self._plan.is_once:
                self._again(self.refresh)
                refreshed = self._source.clock()
            if not stored:
                self._stop.wait(RETRY_SECONDS if failures else IDLE_SECONDS)
        self.translate()

    def _ends(self) -> dict[MessageQueue, int]:
        with named("--from"):
            return self._source.max_offsets(list(self._table.active))

    def _reached(self, queue: MessageQueue, end: int) -> bool:
        return (self._table.active[queue].next_offset or 0) >= end

    def _judge(self, failures: list[BrokerError], failing_seconds: float) -> None:
        """Tell what failed, and end where waiting does not help: without permission, unless some was there before."""
        if not failures:
            return
        self._figures.failures += 1
        for error in failures:
            has_begun = any(self._figures.copied.values())
            if error.code == ResponseCode.NO_PERMISSION and (self._plan.is_once or not has_begun):
                raise JobFailed(str(error))
        if self._plan.is_once and failing_seconds > PATIENCE_SECONDS:
            raise JobFailed(str(failures[0]))
        self._tell_once(f"{failures[0]}; trying again")

    def _again(self, action: Callable[[], None]) -> None:
        """Do what the next time will do as well, should it fail now."""
        try:
            action()
        except (JobFailed, MQSparkError) as error:
            self._figures.failures += 1
            self._tell_once(f"{error}; trying again")

    def _tell_once(self, line: str) -> None:
        now = self._source.clock()
        if now < self._told.get(line, now - REMINDER_SECONDS) + REMINDER_SECONDS:
            return
        if len(self._told) >= LINES_KEPT:
            self._told.clear()
        self._told[line] = now
        tell(line)

    def round(self, failures: list[BrokerError]) -> int:
        """Copy some messages of each queue and save the positions; return how many were stored."""
        total = 0
        now = self._source.clock()
        for some in slices([copy for copy in self._table.active.values() if copy.rests_until <= now]):
            if self._stop.is_set():
                break
            total += self._copy(self._table.sure(some, failures), failures)
        return total

    def _copy(self, copies: Sequence[QueueCopy], failures: list[BrokerError]) -> int:
        self._stop.wait(self._pace.wait_seconds())
        before = {copy: copy.next_offset for copy in copies}
        found = read_round(self._source, copies, self._most(len(copies)), failures)
        try:
            stored = self._sender.send_round(found, failures)
        except SameNames as error:
            raise JobFailed(
                f"a message was copied before, and both sides are called {str(error)!r}: tell them apart with "
                "--source-name and --target-name"
            ) from None
        for copy in copies:
            if copy.is_drained:
                copy.rest(self._source.clock())
            else:
                copy.rest_seconds = 0.0
        for topic in sorted({copy.source.topic for copy in copies if copy.next_offset != before[copy]}):
            self._table.save(topic)
        self._pace.add(stored)
        return stored

    def _most(self, queues: int) -> int:
        """How many messages of one queue a round may have: a tenth of a second's, with a rate."""
        rate = self._plan.rate
        return max(min(IN_FLIGHT, rate // (10 * max(queues, 1))), 1) if rate else IN_FLIGHT

    # -- groups -----------------------------------------------------------------------------------------------------

    def translate(self) -> None:
        """Store the offsets of the groups at the target. Raises JobFailed."""
        chosen = self._chosen
        if chosen is None or not chosen.groups:
            return
        with named("--from"):
            offsets = groups.consumed(self._source, chosen.source_masters)
        found = groups.translated(offsets, self._table.active, [config.group_name for config in chosen.groups])
        with named("--to"):
            done, busy = self._followed.store(self._target, chosen.target_masters, found, force=self._plan.force)
        self._figures.translated_groups = done
        for group in busy:
            self._tell_once(f"group {group!r} has members at the target; its offsets there stay as they are")
