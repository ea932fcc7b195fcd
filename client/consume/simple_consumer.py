"""Receiving single messages: each is acknowledged by itself, or it is delivered again when its invisible time is over
(RocketMQ 5: SimpleConsumer, POP).

    async with SimpleConsumer("billing", name_server="127.0.0.1:9876") as consumer:
        consumer.subscribe("Orders")
        for message in await consumer.receive(invisible_seconds=60):
            ...
            await consumer.ack(message)

The brokers know what each group has in flight, so members of a group share messages and not queues, and there are no
offsets to keep here. What it asks is a *place*: all queues of one topic at one broker. An idle broker must not hide the
messages of others, so several places are held in turn, each for a part of a second.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Self, Unpack

import trio

from triomq.client.consume.filter_checks import FilterChecks
from triomq.client.consume.held_receives import HeldReceives, Request
from triomq.client.consume.pulling import show
from triomq.client.consume.settling import Settling
from triomq.client.core import pop_requests, requests
from triomq.client.core.config import ClientOptions
from triomq.client.core.errors import (
    AcksFailed,
    ClientClosed,
    ConfigurationError,
    MQClientError,
    NoRoute,
)
from triomq.client.core.group_names import check_group
from triomq.client.core.log import get_logger, report
from triomq.client.core.received_message import ReceivedMessage
from triomq.client.core.results import ConsumeFromWhere, MessageModel
from triomq.client.instance.client import Client
from triomq.client.instance.event_loop import check_in_trio
from triomq.client.instance.own_client import OpenedWithClient
from triomq.client.instance.subscribing import subscription
from triomq.protocol.bodies.heartbeat import CONSUME_ACTIVELY, ConsumerData
from triomq.protocol.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.pop import PopMessageRequestHeader
from triomq.protocol.message import MessageExt
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.subscription import SQL92, TAG, SubscriptionData

__all__ = ["ReceivedMessage", "SimpleConsumer"]

log = get_logger("triomq.client.simple")

MAX_MESSAGES: Final = 32
MIN_INVISIBLE_SECONDS: Final = 1.0
MAX_INVISIBLE_SECONDS: Final = 12 * 3600.0
HOLD_SECONDS: Final = 20.0
"""How long a broker may hold one request of a receive."""
ROUND_SECONDS: Final = 1.0
"""How long a round may take that holds several places in turn."""
PAUSE_SECONDS: Final = 0.5
"""Pause after a broker that did not hold a request although it had nothing."""
LEFT_OUT_SECONDS: Final = 10.0
"""How long a place that failed is asked only after the others."""
LEAVE_SECONDS: Final = 5.0
ALL_QUEUES: Final = -1
INIT_MODES: Final = {ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET: 0, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET: 1}


class Place(NamedTuple):
    """All queues of a topic (wire name) at one broker."""

    topic: str
    broker_name: str


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a receive asks for, at any place."""

    max_messages: int
    invisible_ms: int


class SimpleConsumer(OpenedWithClient):
    """Receives single messages, which are hidden from the other members of the group until they are acknowledged, or
    their invisible time is over and they are delivered again (RocketMQ 5: SimpleConsumer). It needs brokers that know
    POP: TrioMQ or RocketMQ 5.

    `ordered`: a queue has one batch at a time, and nothing behind it is received before all of it is acknowledged.
    `consume_from`: where a group begins in a queue without an offset, CONSUME_FROM_FIRST_OFFSET or
    CONSUME_FROM_LAST_OFFSET. `client`: share this open client.
    """

    def __init__(
        self,
        group: str,
        *,
        client: Client | None = None,
        ordered: bool = False,
        consume_from: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        **options: Unpack[ClientOptions],
    ) -> None:
        check_group(group, "consumer")
        if consume_from not in INIT_MODES:
            raise ConfigurationError(f"a SimpleConsumer cannot begin at {consume_from.name}: only at first or last")
        super().__init__(client, options)
        self.group_name = group
        self.group = self._client.namespace.wrap(group)
        self.ordered = ordered
        self.consume_from = consume_from
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._filters = FilterChecks(self._client, self.group)
        self._turn = 0
        self._tell_brokers = False
        self._waiting: set[trio.CancelScope] = set()
        self._held_receives = HeldReceives(self._client)
        self._settling = Settling(self._client, self.group)
        self._left_out: dict[Place, float] = {}
        """Places that failed, and until when they are left out (trio's time)."""
        self._lost_attempts: dict[Place, str] = {}
        """Ordered receives whose responses were lost: the broker repeats what it had answered to the same attempt."""

    async def __aenter__(self) -> Self:
        check_in_trio(type(self).__name__)
        if self._is_open:
            raise ClientClosed("this consumer is already open")
        async with AsyncExitStack() as stack:
            await self._enter_client(stack)
            self._client.add_consumer(self)
            stack.push_async_callback(self._leave)
            self._tell_brokers = True
            self._stack = stack.pop_all()
        self._opening_task = trio.lowlevel.current_task()
        return self

    async def _leave(self) -> None:
        for scope in self._waiting:
            scope.cancel()
        with trio.CancelScope(shield=True, deadline=trio.current_time() + LEAVE_SECONDS):
            await self._client.remove_consumer(self.group)
        self._client.consumers.pop(self.group, None)

    def subscribe(self, topic: str, expression: str = "*", *, sql: bool = False) -> None:
        """Receive the messages of this topic: all, those with one of the tags in "a || b", or with `sql` those that
        fulfil a SQL92 condition. Raises ConfigurationError for an expression that cannot be used."""
        wire = self._client.namespace.wrap(topic)
        made = self._subscriptions[wire] = subscription(self._client, wire, expression, SQL92 if sql else TAG)
        self._filters.subscribed(made)
        self._tell_brokers = True

    def unsubscribe(self, topic: str) -> None:
        """Receive nothing of this topic any more."""
        wire = self._client.namespace.wrap(topic)
        self._subscriptions.pop(wire, None)
        self._filters.unsubscribed(wire)
        self._lost_attempts = {place: each for place, each in self._lost_attempts.items() if place.topic != wire}
        self._tell_brokers = True

    # Receiving.

    async def receive(
        self, max_messages: int = MAX_MESSAGES, *, invisible_seconds: float = 60.0, wait_seconds: float = 20.0
    ) -> list[ReceivedMessage]:
        """Return up to `max_messages` (1 to 32) messages of one topic and one broker as soon as there are some; an
        empty list when `wait_seconds` have passed. They are delivered again after `invisible_seconds` (1 s to 12 h)
        unless they are acknowledged. What was taken by a receive whose response is lost comes again at that time too,
        or for an `ordered` consumer with its next receive. A receive that is cancelled stays at its broker until
        `wait_seconds` have passed (20 s at most): the next one with the same arguments takes its place, and otherwise
        what it takes comes again after a second.

        Brokers and topics have their turns, and a broker that fails is left out if others respond. Raises
        ConfigurationError for values that cannot be used, BrokerRefused, BrokerUnreachable, OperationTimeout, NoRoute.
        """
        if not 1 <= max_messages <= MAX_MESSAGES:
            raise ConfigurationError(f"max_messages must be from 1 to {MAX_MESSAGES}, not {max_messages}")
        if not wait_seconds >= 0:
            raise ConfigurationError(f"wait_seconds must be 0 or more, not {wait_seconds}")
        wanted = _Wanted(max_messages, _invisible_ms(invisible_seconds))
        self._check_open()
        await trio.lowlevel.checkpoint()
        with trio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                return await self._receive(wanted, trio.current_time() + wait_seconds)
            finally:
                self._waiting.discard(scope)
        raise ClientClosed("this SimpleConsumer was closed while a call waited")

    async def _receive(self, wanted: _Wanted, deadline: float) -> list[ReceivedMessage]:
        failed: dict[Place, MQClientError] = {}
        is_first = True
        while True:
            every = await self._places()
            places = sorted(
                (place for place in every if place not in failed or not self._is_left_out(place)), key=self._is_left_out
            )
            left_seconds = max(0.0, deadline - trio.current_time())
            # One place is held at once; of several, somebody may have messages now.
            round_seconds = HOLD_SECONDS if len(places) == 1 else 0.0 if is_first else ROUND_SECONDS
            for place in places:
                hold_seconds = min(left_seconds, round_seconds) / len(places)
                try:
                    messages = await self._ask(place, wanted, hold_seconds)
                except MQClientError as error:
                    self._check_open()
                    failed[place] = error
                    self._left_out[place] = trio.current_time() + LEFT_OUT_SECONDS
                    continue
                failed.pop(place, None)
                self._left_out.pop(place, None)
                if messages:
                    self._turn += 1 + every.index(place)
                    return messages
            if all(place in failed for place in every):
                raise failed[every[-1]]
            if trio.current_time() >= deadline:
                self._report(failed)
                return []
            is_first = False

    def _is_left_out(self, place: Place) -> bool:
        return trio.current_time() < self._left_out.get(place, 0.0)

    def _report(self, failed: Mapping[Place, MQClientError]) -> None:
        for place, error in failed.items():
            report(log, "nothing received from a broker", error, topic=place.topic, broker=place.broker_name)

    async def _places(self) -> list[Place]:
        """Return all places, beginning with the one whose turn it is. Raises NoRoute, NameServersUnreachable, and
        ConfigurationError if nothing is subscribed, or a broker has refused a filter."""
        if not self._subscriptions:
            raise ConfigurationError("nothing is subscribed: call SimpleConsumer.subscribe(topic) first")
        places: list[Place] = []
        for topic in list(self._subscriptions):
            route = await self._client.route(topic)
            places += [Place(topic, name) for name in dict.fromkeys(queue.broker_name for queue in route.subscribe)]
            await self._filters.check(topic)
        if not places:
            topics = ", ".join(self._subscriptions)
            raise NoRoute(topics, self._client.name_servers.addresses, "none of its brokers has queues to read")
        self._filters.raise_refusal()
        if self._tell_brokers:
            self._tell_brokers = False
            try:
                await self._client.heartbeat_all()
            except trio.Cancelled:
                self._tell_brokers = True
                raise
        self._check_open()
        self._turn %= len(places)
        return [*places[self._turn :], *places[: self._turn]]

    async def _ask(self, place: Place, wanted: _Wanted, hold_seconds: float) -> list[ReceivedMessage]:
        """Ask one place, which may hold the request."""
        made = self._subscriptions.get(place.topic)
        if made is None:  # the application has unsubscribed meanwhile
            return []
        asked_at = trio.current_time()

        def request() -> Request:
            attempt_id = (self._lost_attempts.pop(place, None) or uuid.uuid4().hex) if self.ordered else None
            header = self._header(place, wanted, made, hold_seconds, attempt_id)
            return Request(partial(self._send, header, place, made), partial(self._give_back, place, attempt_id))

        messages = await self._held_receives.receive((place, wanted, made), hold_seconds, request)
        not_held_seconds = asked_at + hold_seconds - trio.current_time()
        if not messages and not_held_seconds > 0:
            await trio.sleep(min(PAUSE_SECONDS, not_held_seconds))
        return messages

    def _header(
        self, place: Place, wanted: _Wanted, made: SubscriptionData, hold_seconds: float, attempt_id: str | None
    ) -> PopMessageRequestHeader:
        return PopMessageRequestHeader(
            consumer_group=self.group,
            topic=place.topic,
            queue_id=ALL_QUEUES,
            max_msg_nums=wanted.max_messages,
            invisible_time=wanted.invisible_ms,
            poll_time=int(hold_seconds * 1000),
            born_time=self._client.config.now_ms(),
            init_mode=INIT_MODES[self.consume_from],
            exp_type=made.expression_type,
            exp=made.sub_string,
            order=self.ordered,
            attempt_id=attempt_id,
            broker_name=place.broker_name,
        )

    async def _send(
        self, header: PopMessageRequestHeader, place: Place, made: SubscriptionData
    ) -> list[ReceivedMessage]:
        limit = header.poll_time / 1000 + self._client.config.request_timeout_seconds
        try:
            address = await self._client.master_soon(place.broker_name, place.topic)
            messages = await self._client.call(address, pop_requests.receive(header), limit)
        except BaseException:
            if header.attempt_id is not None:
                self._lost_attempts[place] = header.attempt_id
            raise
        return await self._kept(made, messages)

    async def _give_back(self, place: Place, attempt_id: str | None, messages: Sequence[ReceivedMessage]) -> None:
        """Have messages delivered again soon that nobody waits for."""
        if attempt_id is not None:
            self._lost_attempts[place] = attempt_id
            return
        for message in messages:
            try:
                await self._settling.give_back(message)
            except MQClientError as error:
                report(log, "message of a cancelled receive not given back", error, id=message.msg_id)

    async def _kept(self, made: SubscriptionData, messages: Sequence[ReceivedMessage]) -> list[ReceivedMessage]:
        """Return the messages that the subscription wants. Brokers compare only the hashes of tags, so the others have
        to be acknowledged."""
        unwanted = []
        if made.tags_set and not made.class_filter_mode:
            unwanted = [message for message in messages if message.tags not in made.tags_set]
        if unwanted:
            for message, error in await self._settling.acknowledge_all(unwanted):
                report(log, "message of another tag not acknowledged", error, id=message.msg_id)
            messages = [message for message in messages if message.tags in made.tags_set]
        for message in messages:
            show(message, self._client.namespace)
        return list(messages)

    # What becomes of received messages.

    async def ack(self, messages: ReceivedMessage | Iterable[ReceivedMessage]) -> None:
        """Acknowledge a message, or several: they are not delivered again. Repeating it does no harm.

        Raises InvisibleTimeOver for a message that is held no more; NotSettled, and nothing is acknowledged, for one
        that another group or no `SimpleConsumer` received; BrokerRefused, BrokerUnreachable, OperationTimeout. Of
        several messages AcksFailed says which of them failed, and why.
        """
        self._check_open()
        await trio.lowlevel.checkpoint()
        if isinstance(messages, MessageExt):
            await self._settling.acknowledge(messages)
            return
        every = list(messages)
        failures = await self._settling.acknowledge_all(every)
        if failures:
            raise AcksFailed(f"{len(failures)} of {len(every)} messages not acknowledged", failures)

    async def extend(self, message: ReceivedMessage, seconds: float) -> None:
        """Have a message invisible for `seconds` (1 s to 12 h) from now on. Copies of it that were made before cannot
        be acknowledged any more. An `ack` of the message waits until this has ended. Raises what `ack` raises of one
        message, and ConfigurationError."""
        self._check_open()
        await trio.lowlevel.checkpoint()
        await self._settling.hide(message, _invisible_ms(seconds))

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClientClosed("this consumer is closed: use it inside `async with SimpleConsumer(...) as consumer`")

    # ConsumerMember.

    def topics(self) -> set[str]:
        return set(self._subscriptions)

    def heartbeat_data(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=CONSUME_ACTIVELY,
            message_model=MessageModel.CLUSTERING.value,
            consume_from_where=self.consume_from.value,
            subscription_data_set=self._sorted_subscriptions(),
            unit_mode=self._client.config.unit_mode,
        )

    def _sorted_subscriptions(self) -> list[SubscriptionData]:
        return [made for _, made in sorted(self._subscriptions.items())]

    def wake_rebalance(self) -> None:
        return  # it holds no share of the queues

    def members_changed(self) -> None:
        return  # it holds no share of the queues

    async def persist_offsets(self) -> None:
        return  # the brokers keep the offsets

    async def store_offsets_again(self, broker_name: str) -> None:
        return  # the brokers keep the offsets

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        # A broker that is asked to reset the offsets of a group with members leaves it to these.
        for queue, queue_offset in offsets.items():
            if queue.topic == topic:
                address = await self._client.master_of(queue.broker_name, topic)
                await self._client.call(address, requests.update_consumer_offset(self.group, queue, queue_offset))

    def consume_offsets(self, topic: str) -> dict[MessageQueue, int]:
        return {}

    def running_info(self, with_stacks: bool) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(
            properties={"PROP_CONSUME_TYPE": CONSUME_ACTIVELY, "consumerGroup": self.group_name},
            subscription_set=self._sorted_subscriptions(),
        )

    async def consume_directly(self, message: MessageExt, broker_name: str | None) -> ConsumeMessageDirectlyResult:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"the group {self.group} receives and has no listener")


def _invisible_ms(seconds: float) -> int:
    if not MIN_INVISIBLE_SECONDS <= seconds <= MAX_INVISIBLE_SECONDS:
        raise ConfigurationError(f"an invisible time must be from 1 s to 12 h (43,200 s), not {seconds} s")
    return int(seconds * 1000)
