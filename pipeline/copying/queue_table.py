"""The queues of a copy: which there are, where each goes, and how far it is.

One thread owns everything here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from triomq.client.core.routes import TopicRoute
from triomq.pipeline.copying.offset_map import OffsetMap
from triomq.pipeline.copying.plan import Plan
from triomq.pipeline.copying.records import Marks
from triomq.pipeline.copying.selection import FewerQueues, placed
from triomq.pipeline.copying.sides import Chosen, named
from triomq.pipeline.copying.state import QueueCopy, StateDirectory
from triomq.pipeline.copying.tail import read_back
from triomq.pipeline.copying.targets import make_topic, planned, queues_of, readable_queues, widened
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.cluster import Cluster
from triomq.spark.errors import BrokerError
from triomq.spark.jobs.session import JobFailed


class QueueTable:
    """`active`: the queues that the source has now, by their places there."""

    def __init__(self, plan: Plan, sides: tuple[Cluster, Cluster], state: StateDirectory, marks: Marks) -> None:
        self._plan = plan
        self._source, self._target = sides
        self._state = state
        self._marks = marks
        self._known: dict[str, dict[MessageQueue, QueueCopy]] = {}
        self._has_settled = False
        self.active: dict[MessageQueue, QueueCopy] = {}

    def keep(self, topics: Iterable[str]) -> list[str]:
        """Rest the queues of all other topics, which the source has no more; return their names, sorted."""
        kept = set(topics)
        gone = sorted({queue.topic for queue in self.active} - kept)
        self.active = {queue: copy for queue, copy in self.active.items() if queue.topic in kept}
        return gone

    def take_up(self, topic: str, chosen: Chosen) -> None:
        """Make the target topic if there is none, and begin with the queues that are new. Queues of a broker that the
        source does not show now rest until it does. Raises JobFailed, BrokerError."""
        with named("--from"):
            route = self._source.find_route(topic)
        if route is None:
            return  # deleted meanwhile
        sources = readable_queues(route)
        if not sources:
            raise JobFailed(f"--from: topic {topic!r} must not be read (perm)")
        current = set(sources)
        self.active = {queue: copy for queue, copy in self.active.items() if queue.topic != topic or queue in current}
        if current <= self.active.keys():
            return
        new_name = self._plan.target_of(topic)
        if topic not in self._known:
            self._known[topic] = self._state.load(topic, new_name)
        known = self._known[topic]
        places = self._places(new_name, route, chosen)
        fresh = [queue for queue in sources if queue not in self.active]
        copies = {queue: known.get(queue) or QueueCopy(queue, places[queue], None, OffsetMap()) for queue in fresh}
        self._position(list(copies.values()))
        known |= copies
        self.active |= copies
        self.save(topic)

    def _places(self, new_name: str, route: TopicRoute, chosen: Chosen) -> dict[MessageQueue, MessageQueue]:
        """Return source queue -> target queue. A target topic of which queues are in use here gets as many as the
        source has now; one of somebody else's making stays as it is."""
        masters = chosen.target_masters
        sources = readable_queues(route)
        fixed = {queue: copy.target for queue, copy in self._known[route.topic].items()}
        with named("--to"):
            there = self._target.find_route(new_name)
            away = sorted({place.broker_name for place in fixed.values()} - masters.keys())
            if away and not fixed.keys() >= set(sources):
                raise JobFailed(f"--to: broker {away[0]!r} of topic {new_name!r} is not registered at the name server")
            if there is None and not away:
                make_topic(self._target, new_name, planned(route, masters), masters)
                there = self._target.find_route(new_name)
            try:
                return placed(sources, _writable(new_name, there) if not away else [], fixed)
            except FewerQueues as error:
                if not fixed or there is None:
                    raise JobFailed(f"--to: {error}; give it more (mqadmin updateTopic -r -w)") from None
            make_topic(self._target, new_name, widened(there, planned(route, masters)), masters)
            try:
                return placed(sources, _writable(new_name, self._target.find_route(new_name)), fixed)
            except FewerQueues as error:
                raise JobFailed(f"--to: {error}; give it more (mqadmin updateTopic -r -w)") from None

    def _position(self, copies: list[QueueCopy]) -> None:
        """Find out where each queue begins."""
        if self._plan.exactly_once:
            for copy in copies:
                copy.is_unsure = True
            failures: list[BrokerError] = []
            if not self._has_settled:
                self._target.pause(self._plan.settle_seconds)
                self._has_settled = True
            self._read_back(copies, failures)
            if failures:
                raise failures[0]
        new = [copy for copy in copies if copy.next_offset is None]
        with named("--from"):
            bound = self._source.max_offsets if self._plan.starts_latest else self._source.min_offsets
            begins = bound([copy.source for copy in new])
        with named("--to"):
            ends = self._target.max_offsets([copy.target for copy in new])
        for copy in new:
            copy.next_offset = begins[copy.source]
            copy.offsets.add(begins[copy.source], ends[copy.target], 0)

    def sure(self, copies: Sequence[QueueCopy], failures: list[BrokerError]) -> list[QueueCopy]:
        """Return those whose position is that of the target, after reading back the others; appends to `failures` why
        some are not. All of them without --exactly-once."""
        if not self._plan.exactly_once:
            return list(copies)
        self._note_masters(copies, failures)
        unsure = [copy for copy in copies if copy.is_unsure]
        if unsure:
            self._target.pause(self._plan.settle_seconds)
            self._read_back(unsure, failures)
        return [copy for copy in copies if not copy.is_unsure]

    def _note_masters(self, copies: Sequence[QueueCopy], failures: list[BrokerError]) -> None:
        """Another master may lack what the one before has confirmed."""
        for copy in copies:
            try:
                address = self._target.address(copy.target.topic, copy.target.broker_name)
            except BrokerError as error:
                failures.append(error)
                for other in copies:
                    other.is_unsure = True
                return
            if copy.address and copy.address != address:
                copy.is_unsure = True
            copy.address = address

    def _read_back(self, copies: Sequence[QueueCopy], failures: list[BrokerError]) -> None:
        silent: set[str] = set()
        for copy in copies:
            if copy.target.broker_name in silent:
                continue
            try:
                read_back(self._target, copy, self._marks.position(copy.source))
            except BrokerError as error:
                silent.add(copy.target.broker_name)
                failures.append(type(error)(f"--to: {error}", error.code))

    def save(self, topic: str) -> None:
        """Write the positions of a topic, those of resting queues as well. Raises JobFailed."""
        self._state.save(topic, self._plan.target_of(topic), self._known[topic].values())


def _writable(topic: str, route: TopicRoute | None) -> list[MessageQueue]:
    """Return the queues of a target topic. Raises JobFailed."""
    targets = queues_of(route) if route is not None else []
    if not targets:
        raise JobFailed(f"--to: topic {topic!r} must not be written (perm)")
    return targets
