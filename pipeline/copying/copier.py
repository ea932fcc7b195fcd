"""The loop of a copy: pulls, sends and saved positions, in rounds.

One thread owns everything here. In a round each queue gets at most IN_FLIGHT messages, so this is what a killed copy
may send again. The positions of a topic are on disk before its next round.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from triomq.pipeline.copying import groups
from triomq.pipeline.copying.figures import Figures
from triomq.pipeline.copying.offset_map import OffsetMap
from triomq.pipeline.copying.plan import Plan
from triomq.pipeline.copying.reading import MAX_DEPTH, read_round, slices
from triomq.pipeline.copying.selection import FewerQueues, placed
from triomq.pipeline.copying.sending import QueueSender
from triomq.pipeline.copying.sides import Chosen, choose, named
from triomq.pipeline.copying.state import QueueCopy, StateDirectory
from triomq.pipeline.copying.tail import read_back
from triomq.pipeline.copying.targets import make_topic, planned, queues_of, readable_queues
from triomq.protocol.codes import ResponseCode
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.cluster import Cluster
from triomq.spark.errors import BrokerError, MQSparkError
from triomq.spark.jobs.session import JobFailed

IN_FLIGHT: Final = MAX_DEPTH * 32
IDLE_SECONDS: Final = 0.2
RETRY_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 30.0
"""A copy with --once gives up when no round has succeeded for this time."""


class Copier:
    """`tell`: writes one line for the operator. `stop`: set by a signal; what is in hand is finished."""

    def __init__(
        self,
        plan: Plan,
        sides: tuple[Cluster, Cluster],
        state: StateDirectory,
        figures: Figures,
        stop: threading.Event,
        tell: Callable[[str], None],
    ) -> None:
        self._plan = plan
        self._source, self._target = sides
        self._state = state
        self._sender: QueueSender | None = None
        self._stop = stop
        self._tell = tell
        self._told: set[str] = set()
        self._chosen: Chosen | None = None
        self._copies: dict[MessageQueue, QueueCopy] = {}
        self._began = self._source.clock()
        self.figures = figures
        self.copied = 0

    # -- what is copied ---------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Look for topics, queues and groups, and make what is missing at the target. Raises JobFailed."""
        self._source.forget_routes()
        self._target.forget_routes()
        chosen = choose(self._plan, self._source, self._target)
        is_first = self._chosen is None
        self._chosen = chosen
        if self._sender is None:
            self._sender = QueueSender(
                self._target,
                self._plan.name or chosen.cluster,
                born_within_ms=self._plan.born_within_ms,
                marks=self._plan.exactly_once,
            )
        with named("--to"):
            lacking = groups.missing_groups(self._target, chosen.target_masters, chosen.groups) if chosen.groups else []
            groups.make_groups(self._target, lacking)
        for topic in chosen.topics:
            try:
                self._take_up(topic, chosen)
            except JobFailed as error:
                if is_first and topic in self._plan.topics.exact():
                    raise
                self._tell_once(f"{error}; the topic is not copied")

    def _take_up(self, topic: str, chosen: Chosen) -> None:
        """Make the target topic if there is none, and begin with the queues that are new."""
        with named("--from"):
            route = self._source.find_route(topic)
            if route is None:
                return  # deleted meanwhile
            sources = readable_queues(route)
        if not sources:
            raise JobFailed(f"--from: topic {topic!r} must not be read (perm)")
        if all(queue in self._copies for queue in sources):
            return
        new_name = self._plan.target_of(topic)
        with named("--to"):
            there = self._target.find_route(new_name)
            if there is None:
                plan = planned(route, chosen.target_masters)
                make_topic(self._target, new_name, plan, chosen.target_masters)
                there = self._target.find_route(new_name)
            targets = queues_of(there) if there is not None else []
            if not targets:
                raise JobFailed(f"--to: topic {new_name!r} must not be written (perm)")
        saved = self._state.load(topic, new_name)
        try:
            places = placed(sources, targets, {queue: copy.target for queue, copy in saved.items()})
        except FewerQueues as error:
            raise JobFailed(f"--to: {error}; give it more (mqadmin updateTopic -r -w)") from None
        fresh = [queue for queue in sources if queue not in self._copies]
        copies = {queue: saved.get(queue) or QueueCopy(queue, places[queue], None, OffsetMap()) for queue in fresh}
        self._position(list(copies.values()))
        self._copies |= copies
        self._save(topic)

    def _position(self, copies: list[QueueCopy]) -> None:
        """Find out where each queue begins."""
        if self._plan.exactly_once:
            for copy in copies:
                copy.is_unsure = True
            self._make_sure(copies)
        new = [copy for copy in copies if copy.next_offset is None]
        with named("--from"):
            bound = self._source.max_offsets if self._plan.starts_latest else self._source.min_offsets
            begins = bound([copy.source for copy in new])
        with named("--to"):
            ends = self._target.max_offsets([copy.target for copy in new])
        for copy in new:
            copy.next_offset = begins[copy.source]
            copy.offsets.add(begins[copy.source], ends[copy.target], 0)

    def _make_sure(self, copies: list[QueueCopy]) -> None:
        unsure = [copy for copy in copies if copy.is_unsure]
        if unsure and self._sender is not None:
            self._target.pause(self._plan.settle_seconds)
            with named("--to"):
                for copy in unsure:
                    read_back(self._target, copy, self._sender.position(copy.source))

    def _save(self, topic: str) -> None:
        copies = [copy for copy in self._copies.values() if copy.source.topic == topic]
        if copies:
            self._state.save(topic, copies[0].target.topic, copies)

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
            self.figures.note_round(self._copies.values())
            now = self._source.clock()
            if not failures:
                last_success = now
            self._judge(failures, now - last_success)
            if self._plan.is_once and all(self._reached(queue, end) for queue, end in ends.items()):
                break
            if now - translated >= self._plan.offsets_seconds:
                translated = now
                self._again(self.translate)
            if now - refreshed >= self._plan.refresh_seconds and not self._plan.is_once:
                refreshed = now
                self._again(self.refresh)
            if not stored:
                self._stop.wait(RETRY_SECONDS if failures else IDLE_SECONDS)
        self.translate()

    def _ends(self) -> dict[MessageQueue, int]:
        with named("--from"):
            return self._source.max_offsets(list(self._copies))

    def _reached(self, queue: MessageQueue, end: int) -> bool:
        return (self._copies[queue].next_offset or 0) >= end

    def _judge(self, failures: list[BrokerError], failing_seconds: float) -> None:
        """Tell what failed, and end where waiting does not help."""
        self.figures.failures += bool(failures)
        for error in failures:
            if error.code == ResponseCode.NO_PERMISSION:
                raise JobFailed(str(error))
        if not failures:
            self._told.clear()
            return
        if self._plan.is_once and failing_seconds > PATIENCE_SECONDS:
            raise JobFailed(str(failures[0]))
        self._tell_once(f"{failures[0]}; trying again")

    def _again(self, action: Callable[[], None]) -> None:
        """Do what the next time will do as well, should it fail now."""
        try:
            action()
        except (JobFailed, MQSparkError) as error:
            self.figures.failures += 1
            self._tell_once(f"{error}; trying again")

    def _tell_once(self, line: str) -> None:
        if line not in self._told:
            if len(self._told) > 100:
                self._told.clear()
            self._told.add(line)
            self._tell(line)

    def round(self, failures: list[BrokerError]) -> int:
        """Copy some messages of each queue and save the positions; return how many were stored."""
        sender = self._sender
        assert sender is not None, "refresh comes first"
        total = 0
        for some in slices(list(self._copies.values())):
            if self._stop.is_set():
                break
            if self._plan.exactly_once:
                try:
                    self._make_sure(some)
                except JobFailed as error:
                    failures.append(BrokerError(str(error)))
                    continue
            self._pace()
            before = {copy: (copy.next_offset, copy.lost) for copy in some}
            found = read_round(self._source, some, self._most(len(some)), failures)
            stored = sender.send_round(found, failures)
            changed = {copy.source.topic for copy in some if (copy.next_offset, copy.lost) != before[copy]}
            for copy in some:
                step = (copy.next_offset or 0) - (before[copy][0] or 0) - (copy.lost - before[copy][1])
                self.figures.copied[copy.source.topic] = self.figures.copied.get(copy.source.topic, 0) + max(step, 0)
            for topic in sorted(changed):
                self._save(topic)
            total += stored
            self.copied += stored
        return total

    def _most(self, queues: int) -> int:
        """How many messages of one queue a round may have: a tenth of a second's, with a rate."""
        return max(min(IN_FLIGHT, self._plan.rate // (10 * queues)), 1) if self._plan.rate else IN_FLIGHT

    def _pace(self) -> None:
        if self._plan.rate:
            ahead = self._began + self.copied / self._plan.rate - self._source.clock()
            if ahead > 0:
                self._stop.wait(ahead)

    # -- groups -----------------------------------------------------------------------------------------------------

    def translate(self) -> None:
        """Store the offsets of the groups at the target. Raises JobFailed."""
        chosen = self._chosen
        if chosen is None or not chosen.groups:
            return
        with named("--from"):
            offsets = groups.consumed(self._source, chosen.source_masters)
        found = groups.translated(offsets, self._copies, [config.group_name for config in chosen.groups])
        with named("--to"):
            done, busy = groups.store_translated(self._target, chosen.target_masters, found, force=self._plan.force)
        self.figures.translated_groups = done
        for group in busy:
            self._tell_once(f"group {group!r} has members at the target; its offsets there stay as they are")

    @property
    def lag(self) -> int:
        return sum(copy.lag for copy in self._copies.values())

    @property
    def lost(self) -> int:
        return sum(copy.lost for copy in self._copies.values())

    @property
    def topics(self) -> int:
        return len({queue.topic for queue in self._copies})
