"""The path of one message: bounds, choice of a queue, attempts, hooks, result.

A `Sender` is what a `Producer` sends through. It has a group name but is no member of the group: brokers do not know it
by heartbeats and cannot ask it about transactions. Trace messages and messages sent back by consumers need no more than
that. May not live here: heartbeats, the life of a client, preparing messages (outgoing.py).
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from math import inf

import trio

from triomq.client.core.errors import (
    BrokerRefused,
    ClientClosed,
    MQClientError,
    NameServersUnreachable,
    NoBroker,
    NoRoute,
    OperationTimeout,
    SendFailed,
)
from triomq.client.core.hooks import SendContext, SendHook
from triomq.client.core.latency import LatencyFaults
from triomq.client.core.log import get_logger
from triomq.client.core.outgoing import MessagePreparer, Outgoing, SendRules
from triomq.client.core.results import SendResult, SendStatus
from triomq.client.core.retry import RETRIED_SENDS
from triomq.client.core.routes import TopicRoute
from triomq.client.core.send_requests import SendRequests, send_result
from triomq.client.instance.caller import translated
from triomq.client.instance.client import Client
from triomq.client.instance.user_errors import concerns_one_call
from triomq.client.produce.failures import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, Failures, stored_nothing
from triomq.client.produce.in_flight import InFlight
from triomq.protocol import sys_flag
from triomq.protocol.codes import ResponseCode
from triomq.protocol.message import Message
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.system_topics import AUTO_CREATE_TOPIC
from triomq.remoting.errors import RemotingError

log = get_logger("triomq.client.producer")


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempts:
    """How often and how long one send is tried, and how a topic that does not exist yet is created."""

    timeout_seconds: float = 3.0
    """Limit of one send with all its attempts."""
    retries: int = 2
    """Attempts after the first; those that reached no broker do not count."""
    retry_when_not_stored_ok: bool = False
    default_topic_queues: int = 4
    template_topic: str = AUTO_CREATE_TOPIC


class Sender:
    """See the module's docstring. Any number of tasks may use one sender at the same time."""

    def __init__(
        self,
        client: Client,
        group: str,
        *,
        attempts: Attempts | None = None,
        rules: SendRules | None = None,
        hooks: Iterable[SendHook] = (),
        latency_faults: bool = False,
        max_in_flight: int = 10_000,
    ) -> None:
        """`group`: wire name."""
        self.group = group
        self.hooks: list[SendHook] = list(hooks)
        self.attempts = attempts or Attempts()
        self._client = client
        self._faults = LatencyFaults(latency_faults)
        ip = client.client_id.partition("@")[0]
        self.preparer = MessagePreparer(rules or SendRules(), client.namespace, _packed_ip(ip), client.config.now_ms)
        self._requests = SendRequests(
            group,
            template_topic=self.attempts.template_topic,
            default_topic_queues=self.attempts.default_topic_queues,
            unit_mode=client.config.unit_mode,
        )
        self._in_flight = InFlight(max_in_flight)
        self._clock: Callable[[], float] = trio.current_time

    def use_current_clock(self) -> None:
        """Read the clock of this trio run directly, at a third of what `trio.current_time` costs."""
        self._clock = trio.lowlevel.current_clock().current_time

    async def send(self, message: Message) -> SendResult:
        """Send one message to any queue of its topic. Raises MQClientError."""
        return await self.deliver(self.preparer.single(message), (message,))

    async def deliver(
        self,
        outgoing: Outgoing,
        messages: Sequence[Message],
        queue: MessageQueue | None = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """Send what was prepared from `messages`; a fixed `queue` (wire names) is tried once, and again only
        while its broker cannot be reached. Raises MQClientError."""
        return await self.deliver_until(self.deadline(timeout_seconds), outgoing, messages, queue)

    def deadline(self, timeout_seconds: float | None) -> float:
        """Return when a send that begins now must have ended; None stands for the usual limit."""
        return self._clock() + (self.attempts.timeout_seconds if timeout_seconds is None else timeout_seconds)

    async def deliver_until(
        self, deadline: float, outgoing: Outgoing, messages: Sequence[Message], queue: MessageQueue | None
    ) -> SendResult:
        """Send until `deadline` (of this sender's clock) at the latest; otherwise like `deliver`."""
        if not self._in_flight.enter_nowait():
            await self._in_flight.enter(deadline)
        try:
            if queue is not None:
                return await self._attempt_until_reached(outgoing, messages, queue, deadline)
            return await self._attempt_repeatedly(outgoing, messages, deadline)
        finally:
            self._in_flight.leave()

    async def tell(self, outgoing: Outgoing, queue: MessageQueue | None) -> None:
        """Send without a response. Raises MQClientError when nothing could be sent."""
        if queue is None:
            queue = self._next_queue(await self.publish_route(outgoing.topic))
        address = await self._client.master_of(queue.broker_name, outgoing.topic)
        request = self._requests.request(outgoing, queue, self._client.config.now_ms())
        await self._client.tell(address, request, vip=True)

    async def publish_route(self, topic: str, deadline: float = inf) -> TopicRoute:
        """Return the route to send by, of a topic's wire name. Raises NoRoute, OperationTimeout."""
        with trio.move_on_at(deadline):
            return await self._client.publish_route(
                topic, self.attempts.template_topic, self.attempts.default_topic_queues
            )
        asked = ", ".join(self._client.name_servers.addresses)
        raise OperationTimeout(f"the time limit of the send passed before a name server responded (asked: {asked})")

    async def wait_for_route(self, topic: str, deadline: float) -> TopicRoute:
        """Return the route to send by, as soon as a name server is there, a broker is registered, and the topic's
        broker has a master. Raises NoRoute at once for a topic that does not exist; NameServersUnreachable,
        OperationTimeout."""
        pause_seconds = FIRST_PAUSE_SECONDS
        unreachable: NameServersUnreachable | NoBroker | None = None
        while True:
            try:
                return await self.publish_route(topic, deadline)
            except NoBroker as error:
                if self._clock() + pause_seconds >= deadline:
                    raise
                unreachable = error
            except NoRoute:
                known = self._client.routes.get(topic)
                if known is None or not known.lacks_master or self._clock() + pause_seconds >= deadline:
                    raise
            except NameServersUnreachable as error:
                if error.are_wrong or self._clock() + pause_seconds >= deadline:
                    raise
                unreachable = error
            except OperationTimeout:
                if unreachable is not None:  # it says why
                    raise unreachable from None
                raise
            await trio.sleep(pause_seconds)
            pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)

    # Attempts.

    async def _attempt_repeatedly(self, outgoing: Outgoing, messages: Sequence[Message], deadline: float) -> SendResult:
        route = self._client.known_publish_route(outgoing.topic)
        if route is None:
            route = await self.wait_for_route(outgoing.topic, deadline)
        failures = Failures()
        last_result: SendResult | None = None
        while failures.counted <= self.attempts.retries:
            queue = self._next_queue(route, failures.brokers)
            if failures.brokers and not await self._pause_before(queue.broker_name, failures, deadline):
                break
            try:
                result = await self._attempt(outgoing, messages, queue, deadline)
            except ClientClosed:
                raise
            except BrokerRefused as error:
                if error.code not in RETRIED_SENDS:
                    raise
                failures.add(queue.broker_name, error)
                if error.code == ResponseCode.SERVICE_NOT_AVAILABLE:  # it may be a slave by now
                    route = await self._route_after_failure(outgoing.topic, route, deadline)
                continue
            except MQClientError as error:
                failures.add(queue.broker_name, error)
                route = await self._route_after_failure(outgoing.topic, route, deadline)
                continue
            if result.status is SendStatus.SEND_OK or not self.attempts.retry_when_not_stored_ok:
                return result
            last_result = result
            failures.add_doubtful(queue.broker_name)
        if last_result is not None:
            return last_result
        texts = failures.texts()
        if len(texts) == failures.counted == 1 and failures.last is not None:
            raise failures.last
        raise SendFailed(self._client.namespace.unwrap(outgoing.topic), texts) from failures.last

    async def _attempt_until_reached(
        self, outgoing: Outgoing, messages: Sequence[Message], queue: MessageQueue, deadline: float
    ) -> SendResult:
        """Send to a queue that was chosen: once, but a broker that is not there gets a moment. The order of messages
        that are sent one after the other stays, because the attempts before the last have stored nothing."""
        failures = Failures()
        while True:
            try:
                return await self._attempt(outgoing, messages, queue, deadline)
            except MQClientError as error:
                if not stored_nothing(error):
                    raise
                failures.add(queue.broker_name, error)
                if not await self._pause_before(queue.broker_name, failures, deadline):
                    raise
            await self._refresh_route(outgoing.topic, deadline)

    async def _pause_before(self, broker_name: str, failures: Failures, deadline: float) -> bool:
        """Wait as long as this broker needs. Return False at once when no time would be left for an attempt."""
        seconds = failures.pause_before(broker_name)
        if self._clock() + seconds >= deadline:
            return False
        if seconds > 0:
            await trio.sleep(seconds)
        return True

    async def _attempt(
        self, outgoing: Outgoing, messages: Sequence[Message], queue: MessageQueue, deadline: float
    ) -> SendResult:
        """Send one request to one queue. Raises MQClientError."""
        began = self._clock()
        client = self._client
        address = client.routes.master(queue.broker_name) or await self._master(queue, outgoing.topic, deadline)
        context = self._before_send(messages, queue, address, outgoing.sys_flag)
        try:
            left = deadline - self._clock()
            if left <= 0:
                raise OperationTimeout("the time limit of the send passed before this attempt")
            request = self._requests.request(outgoing, queue, client.config.now_ms())
            try:
                response = await client.invoke(address, request, left, vip=True)
            except RemotingError as error:
                raise translated(error, f"sending to {queue.broker_name} ({address})") from error
            topic = client.namespace.unwrap(outgoing.topic)
            result = send_result(outgoing, queue, response, topic=topic, address=address)
        except BaseException as error:
            if self._faults.enabled:
                self._faults.record(queue.broker_name, self._ms_since(began), self._ms_since(0), failed=True)
            if context is not None:
                self._after_send(context, None, error, self._ms_since(began))
            raise
        if self._faults.enabled:
            self._faults.record(queue.broker_name, self._ms_since(began), self._ms_since(0))
        if context is not None:
            self._after_send(context, result, None, self._ms_since(began))
        return result

    async def _master(self, queue: MessageQueue, topic: str, deadline: float) -> str:
        with trio.move_on_at(deadline):
            return await self._client.master_of(queue.broker_name, topic)
        raise OperationTimeout(f"the time limit of the send passed before the address of {queue.broker_name} was known")

    def _next_queue(self, route: TopicRoute, avoid: Collection[str] = ()) -> MessageQueue:
        queue = route.next_queue(self._faults, self._ms_since(0) if self._faults.enabled else 0, avoid)
        if queue is None:
            raise NoRoute(route.topic, self._client.name_servers.addresses, "it has no writable queue")
        return queue

    async def _route_after_failure(self, topic: str, route: TopicRoute, deadline: float) -> TopicRoute:
        """Return the freshest route available, so that the next attempt avoids a broker that has gone."""
        await self._refresh_route(topic, deadline)
        known = self._client.routes.get(topic)
        return known if known is not None and known.publish else route

    async def _refresh_route(self, topic: str, deadline: float) -> None:
        try:
            with trio.move_on_at(deadline):
                await self._client.refresh_publish_route(
                    topic, self.attempts.template_topic, self.attempts.default_topic_queues
                )
        except MQClientError as error:
            log.debug("route not refreshed after a failed send", topic=topic, error=str(error))

    # Hooks.

    def _before_send(
        self, messages: Sequence[Message], queue: MessageQueue, address: str, flags: int
    ) -> SendContext | None:
        if not self.hooks:
            return None
        is_half = sys_flag.transaction_type(flags) == sys_flag.TRANSACTION_PREPARED
        context = SendContext(self.group, messages[0], messages, queue, address, self._client.config.now_ms(), is_half)
        for hook in self.hooks:
            try:
                hook.before_send(context)
            except BaseException as failure:
                if not concerns_one_call(failure):
                    raise
                log.exception("send hook failed")
        return context

    def _after_send(
        self, context: SendContext, result: SendResult | None, error: BaseException | None, cost_ms: int
    ) -> None:
        context.result = result
        context.error = error
        context.cost_ms = cost_ms
        for hook in self.hooks:
            try:
                hook.after_send(context)
            except BaseException as failure:
                if not concerns_one_call(failure):
                    raise
                log.exception("send hook failed")

    def _ms_since(self, began: float) -> int:
        return int((self._clock() - began) * 1000)


def _packed_ip(ip: str) -> bytes:
    """The bytes of an address for message ids; random ones for a client_ip that is not an address."""
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip)
    except OSError:
        return secrets.token_bytes(4)
