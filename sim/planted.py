"""Bugs that are put into the running program on purpose: a simulation is worth what it finds.

Each replaces one method of the real program by a wrong one; the run of its seed must fail (tests/test_simulation.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import trio

from triomq.broker.delay import DelayOffsets
from triomq.broker.message_writer import MessageWriter
from triomq.broker.replication.log_follower import LogFollower
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.topics import TopicTable
from triomq.broker.transactions import TransactionLog
from triomq.client.consume.failed_messages import FailedMessages
from triomq.client.consume.offset_store import BrokerOffsets
from triomq.client.consume.push_consumer import PushConsumer
from triomq.client.core.allocation import Averagely
from triomq.client.core.process_queue import ProcessQueue
from triomq.namesrv.routes import RouteTable
from triomq.store.delay import DelayLevels
from triomq.store.queues.dispatch import Dispatch
from triomq.store.reading import Reading
from triomq.store.upkeep.flush import Flush


@dataclass(frozen=True)
class Bug:
    """`wrong(original)` returns what replaces the method `name` of `owner`. `seed` is one that finds it."""

    owner: type
    name: str
    wrong: Callable[[Callable[..., Any]], Callable[..., Any]]
    seed: int = 0

    @contextmanager
    def planted(self) -> Iterator[None]:
        original = self.owner.__dict__[self.name]
        setattr(self.owner, self.name, self.wrong(original))
        try:
            yield
        finally:
            setattr(self.owner, self.name, original)


def _nothing(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: None


def _nothing_async(_: Callable[..., Any]) -> Callable[..., Any]:
    async def nothing(*arguments: Any, **options: Any) -> None:
        await trio.lowlevel.checkpoint()

    return nothing


def _forever(_: Callable[..., Any]) -> Callable[..., Any]:
    async def sleep(*arguments: Any, **options: Any) -> None:
        await trio.sleep_forever()

    return sleep


def _plus(number: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrong(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: original(*arguments) + number

    return wrong


def _waits_for_nothing(original: Callable[..., Any]) -> Callable[..., Any]:
    def take_settings(self: MessageWriter) -> None:
        original(self)
        self._waits_for_disk = False

    return take_settings


def _skips_one_in(count: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrong(original: Callable[..., Any]) -> Callable[..., Any]:
        calls = itertools.count(1)
        return lambda *arguments: original(*arguments) if next(calls) % count else None

    return wrong


def _reads_on(original: Callable[..., Any]) -> Callable[..., Any]:
    calls = itertools.count(1)

    def get_messages(*arguments: Any) -> Any:
        result = original(*arguments)
        if result.records and next(calls) % 20 == 0:
            result.next_begin_offset += 1
        return result

    return get_messages


def _begins_at_the_end(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(self: DelayOffsets) -> None:
        original(self)
        self._offsets = {level: offset + 2 for level, offset in self._offsets.items()}

    return load


def _commits_ahead(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, group, topic, queue_id, offset: original(self, group, topic, queue_id, offset + 3)


def _only_the_outcome(_: Callable[..., Any]) -> Callable[..., Any]:
    def commit(self: TransactionLog, half: Any, pending: Any) -> None:
        self.rollback(half)

    return commit


def _without_the_last(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, group, member, queues, members: original(self, group, member, queues, members)[:3]


def _one_behind(original: Callable[..., Any]) -> Callable[..., Any]:
    async def read(*arguments: Any) -> int | None:
        offset = await original(*arguments)
        return None if offset is None else offset + 1

    return read


def _as_far_as_it_read(_: property) -> property:
    return property(lambda self: self.next_after_pulled or None)


def _says_it_did(_: Callable[..., Any]) -> Callable[..., Any]:
    async def deliver_again(*arguments: Any) -> bool:
        await trio.lowlevel.checkpoint()
        return True

    return deliver_again


def _without_retries(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: {topic for topic in original(self) if not topic.startswith("%RETRY%")}


def _one_broker_at_most(original: Callable[..., Any]) -> Callable[..., Any]:
    def route(self: RouteTable, topic: str) -> Any:
        found = original(self, topic)
        if found is not None:
            del found.queue_datas[1:]
        return found

    return route


BUGS = {
    # The store.
    "acknowledged_before_the_sync": Bug(MessageWriter, "_take_settings", _waits_for_nothing, seed=8),
    "a_sync_that_reaches_no_disk": Bug(Flush, "_sync", _nothing_async, seed=2),
    "a_queue_without_some_entries": Bug(Dispatch, "_add", _skips_one_in(97)),
    "a_read_that_skips_a_message": Bug(Reading, "get_messages", _reads_on),
    # The broker.
    "a_restart_that_delays_for_too_short": Bug(DelayLevels, "deliver_at", _plus(-500)),
    "a_restart_that_forgets_delayed_messages": Bug(DelayOffsets, "load", _begins_at_the_end, seed=2),
    "offsets_stored_ahead": Bug(OffsetTable, "commit", _commits_ahead),
    "a_commit_without_its_message": Bug(TransactionLog, "commit", _only_the_outcome),
    "a_restart_that_forgets_topics": Bug(TopicTable, "load", _nothing, seed=1),
    "a_slave_that_copies_nothing": Bug(LogFollower, "run", _forever),
    # The NameServer.
    "a_route_with_one_broker": Bug(RouteTable, "route", _one_broker_at_most, seed=2),
    # The client.
    "a_share_without_its_last_queue": Bug(Averagely, "__call__", _without_the_last, seed=2),
    "a_consumer_that_begins_behind_its_offset": Bug(BrokerOffsets, "read", _one_behind),
    "a_consumer_that_commits_what_it_only_read": Bug(ProcessQueue, "commit_offset", _as_far_as_it_read, seed=40),  # type: ignore[arg-type]
    "a_failure_that_counts_as_success": Bug(FailedMessages, "deliver_again", _says_it_did),
    "a_retry_topic_that_nobody_reads": Bug(PushConsumer, "topics", _without_retries),
}
