"""The wrong methods of planted bugs: each function takes the original and returns what replaces it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import trio

from triomq.broker.grpc.call import Call
from triomq.broker.grpc.consuming import Consuming
from triomq.broker.grpc.results import OK, set_status, sum_up
from triomq.broker.message_writer import MessageWriter
from triomq.broker.nameservers.link import NameServerLink
from triomq.broker.pop import log_records
from triomq.broker.pop.deliveries import Deliveries
from triomq.broker.pop.in_flight import InFlight
from triomq.broker.pop.log import InFlightLog, State
from triomq.broker.pulls.long_polling import LongPolling
from triomq.broker.tables.delay_offsets import DelayOffsets
from triomq.broker.transactions.transactions import TransactionLog
from triomq.client.consume.group_consumer import GroupConsumer
from triomq.client.core.offsets import LocalOffsetFile
from triomq.grpc_front import schema
from triomq.namesrv.routes import RouteTable
from triomq.remoting.memory import Share


def nothing(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **options: None


def nothing_async(_: Callable[..., Any]) -> Callable[..., Any]:
    async def nothing(*arguments: Any, **options: Any) -> None:
        await trio.lowlevel.checkpoint()

    return nothing


def forever(_: Callable[..., Any]) -> Callable[..., Any]:
    async def sleep(*arguments: Any, **options: Any) -> None:
        await trio.sleep_forever()

    return sleep


def plus(number: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrong(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: original(*arguments) + number

    return wrong


def waits_for_nothing(original: Callable[..., Any]) -> Callable[..., Any]:
    def take_settings(self: MessageWriter) -> None:
        original(self)
        self._waits_for_disk = False

    return take_settings


def skips_one_in(count: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrong(original: Callable[..., Any]) -> Callable[..., Any]:
        calls = itertools.count(1)
        return lambda *arguments: original(*arguments) if next(calls) % count else None

    return wrong


def reads_on(original: Callable[..., Any]) -> Callable[..., Any]:
    calls = itertools.count(1)

    def get_messages(*arguments: Any) -> Any:
        result = original(*arguments)
        if result.records and next(calls) % 3 == 0:
            result.next_begin_offset += 1
        return result

    return get_messages


def begins_at_the_end(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(self: DelayOffsets) -> None:
        original(self)
        self._offsets = {level: offset + 15 for level, offset in self._offsets.items()}

    return load


def commits_ahead(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, group, topic, queue_id, offset: original(self, group, topic, queue_id, offset + 3)


def only_the_outcome(_: Callable[..., Any]) -> Callable[..., Any]:
    def commit(self: TransactionLog, half: Any, pending: Any) -> None:
        self.rollback(half, pending)

    return commit


def without_the_last(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, group, member, queues, members: original(self, group, member, queues, members)[:3]


def one_behind(original: Callable[..., Any]) -> Callable[..., Any]:
    async def read(*arguments: Any) -> int | None:
        offset = await original(*arguments)
        return None if offset is None else offset + 1

    return read


def as_far_as_it_read(_: property) -> property:
    return property(lambda self: self.next_after_pulled or None)


def says_it_did(_: Callable[..., Any]) -> Callable[..., Any]:
    async def deliver_again(*arguments: Any) -> bool:
        await trio.lowlevel.checkpoint()
        return True

    return deliver_again


def without_retries(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: {topic for topic in original(self) if not topic.startswith("%RETRY%")}


def one_broker_at_most(original: Callable[..., Any]) -> Callable[..., Any]:
    def route(self: RouteTable, topic: str) -> Any:
        found = original(self, topic)
        if found is not None:
            del found.queue_datas[1:]
        return found

    return route


def without_a_sync(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, path: self.make_directories(path)


def always(value: object) -> Callable[[Any], Any]:
    return lambda _: lambda *arguments, **options: value


def copies_leave_no_trace(original: Callable[..., Any]) -> Callable[..., Any]:
    def put_op(self: TransactionLog, queue_id: int, half_offset: int, state: int, pending: Any) -> Any:
        return original(self, queue_id, half_offset, state, pending) if state <= 0 else None

    return put_op


def forgets_what_changed_meanwhile(original: Callable[..., Any]) -> Callable[..., Any]:
    async def send_due(self: NameServerLink, seconds: float) -> None:
        await original(self, seconds)
        self._changed.clear()

    return send_due


def stores_nothing_at_the_end(original: Callable[..., Any]) -> Callable[..., Any]:
    async def leave(self: GroupConsumer) -> None:
        self._offsets.table._changed.clear()
        await original(self)

    return leave


def goes_on(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, doing, error: None


def with_raw_codes(original: Callable[..., Any]) -> Callable[..., Any]:
    def matches(self: LongPolling, parked: Any) -> bool:
        if parked.message_filter is not None:
            parked.scanned_offset = self._store.reading.max_offset(parked.header.topic, parked.header.queue_id)
            return False
        return bool(original(self, parked))

    return matches


def never_gives_back(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, count: original(self, count) if count > 0 else None


def leaves_nothing(original: Callable[..., Any]) -> Callable[..., Any]:
    def left(self: Share) -> None:
        self._has_left = True

    return left


def begins_in_the_past(original: Callable[..., Any]) -> Callable[..., Any]:
    def load(self: LocalOffsetFile) -> Any:
        return {queue: offset + 1 for queue, offset in original(self).items()}

    return load


def only_new(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, config: original(self, config) if self.get(config.topic_name) is None else None


def as_if_its_own(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, log_end: log_end


def does_nothing(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, config: None


# Of POP.


def without_records(kind: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def wrong(original: Callable[..., Any]) -> Callable[..., Any]:
        def append(self: InFlightLog, records: bytes) -> None:
            kept = [body for body in log_records.Records(records) if body[0] != kind]
            original(self, b"".join(log_records.encode(*body) for body in kept))

        return append

    return wrong


def at_once(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, response: response


def keeps_the_handle(original: Callable[..., Any]) -> Callable[..., Any]:
    def change(self: InFlight, queue_offset: int, popped_ms: int, visible_ms: int) -> None:
        original(self, queue_offset, self.popped_ms(queue_offset), visible_ms)

    return change


def counts_as_an_attempt(_: Callable[..., Any]) -> Callable[..., Any]:
    return InFlight.receive_again


def without_what_is_in_flight(original: Callable[..., Any]) -> Callable[..., Any]:
    def state(self: Deliveries) -> State:
        queues = self._all()
        records = [
            log_records.encode_queue(queue.number, *queue.key, InFlight(queue.in_flight.next_offset))
            for queue in queues
        ]
        return records, original(self)[1]

    return state


def by_their_times(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: iter(sorted(original(self), key=self.visible_ms))


def acknowledges_nothing(_: Callable[..., Any]) -> Callable[..., Any]:
    def acknowledge(self: Consuming, call: Call, request: Any) -> None:
        answer = schema.AckMessageResponse()
        for entry in request.entries:
            result = answer.entries.add(message_id=entry.message_id, receipt_handle=entry.receipt_handle)
            set_status(result.status, OK, None)
        sum_up(answer)
        call.reply(answer)

    return acknowledge
