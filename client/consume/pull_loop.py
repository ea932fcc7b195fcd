"""The task that keeps one held queue's window filled (RocketMQ: PullMessageService,
DefaultMQPushConsumerImpl.pullMessage).

It pulls with long polls as fast as the window empties, waits while the window is full, the consumer is paused or
(ordered) the lock is missing, and continues after every error. It ends with the queue's cancel scope.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Protocol

import trio

from triomq.client.consume.assigned import AssignedQueue
from triomq.client.consume.clock import now_ms
from triomq.client.consume.pulling import Puller
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.errors import BrokerRefused, MQClientError
from triomq.client.core.log import get_logger, report
from triomq.client.core.results import PullResult, PullStatus
from triomq.client.core.retry import NOT_REGISTERED
from triomq.client.instance.client import Client
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import ProtocolError
from triomq.protocol.message import MessageExt
from triomq.protocol.subscription import SubscriptionData

log = get_logger("triomq.client.pull")

ERROR_SECONDS = 3.0
PAUSED_SECONDS = 1.0
FULL_SECONDS = 1.0
UNLOCKED_SECONDS = 3.0
NO_PROGRESS_SECONDS = 0.5
FLOW_CONTROL_SECONDS = 0.02
RESTART_NOTED_SECONDS = 10.0


class PullOwner(Protocol):
    """The consumer, as the pull loop sees it."""

    @property
    def is_paused(self) -> bool: ...

    @property
    def is_ordered(self) -> bool: ...

    @property
    def is_broadcasting(self) -> bool: ...

    def subscription_of(self, topic: str) -> SubscriptionData | None: ...

    def cached_bytes_total(self) -> int: ...

    async def offset_illegal(self, assigned: AssignedQueue, next_offset: int) -> None:
        """Continue at another offset: the broker has no message at ours."""

    async def begin_anew(self, assigned: AssignedQueue) -> None:
        """Forget the position in a queue whose topic was deleted. Raises MQClientError."""

    def pulled(self, topic: str, cost_ms: int, count: int) -> None:
        """Count messages in the statistics."""


class PullLoop:
    """Fills the windows of one consumer's queues; `run` is the task of one queue."""

    def __init__(
        self,
        client: Client,
        owner: PullOwner,
        puller: Puller,
        rules: ConsumeRules,
        submit: Callable[[AssignedQueue, Sequence[MessageExt]], Awaitable[None]],
        skipped: Callable[[AssignedQueue], None],
    ) -> None:
        """`submit` passes new messages on, and waits while there are too many. `skipped` notes that no wanted message
        lies before `next_offset` and none waits, so that the offset may advance."""
        self._client = client
        self._owner = owner
        self._puller = puller
        self._rules = rules
        self._submit = submit
        self._skipped = skipped
        self._note_restart_at = -inf

    async def run(self, assigned: AssignedQueue) -> None:
        """Pull until the queue is dropped."""
        while not assigned.dropped:
            assigned.window.last_pull_ms = now_ms()
            reason = self._must_wait(assigned)
            if reason is not None:
                await assigned.wait_change(reason)
                continue
            master = self._client.routes.master(assigned.queue.broker_name)
            try:
                pause_seconds = await self._once(assigned)
            except (MQClientError, ProtocolError) as error:
                pause_seconds = await self._after_error(assigned, error)
                found = self._client.routes.master(assigned.queue.broker_name)
                if found not in (None, master):
                    continue
                if pause_seconds > NO_PROGRESS_SECONDS:
                    await self._client.pause(pause_seconds)
                    continue
            if pause_seconds > 0:
                await trio.sleep(pause_seconds)

    def _must_wait(self, assigned: AssignedQueue) -> float | None:
        """Return how long to wait at most before the next look, or None when a pull may be sent."""
        owner, rules = self._owner, self._rules
        if owner.is_paused or not assigned.may_run:
            return PAUSED_SECONDS
        if assigned.topic_gone and (len(assigned.window) or assigned.busy):
            return FULL_SECONDS
        if owner.is_ordered and not owner.is_broadcasting and not assigned.window.locked:
            return UNLOCKED_SECONDS
        span = None if owner.is_ordered else rules.max_span
        if assigned.window.is_full(rules.max_cached_messages, rules.max_cached_bytes, span):
            return FULL_SECONDS
        if len(assigned.window) and owner.cached_bytes_total() >= rules.max_cached_bytes_total:
            return FULL_SECONDS
        return None

    async def _once(self, assigned: AssignedQueue) -> float:
        """Pull once and process the result; return the pause before the next pull, in seconds."""
        queue = assigned.queue
        if assigned.topic_gone:
            await self._owner.begin_anew(assigned)
            assigned.topic_gone = False
            return ERROR_SECONDS
        subscription = self._owner.subscription_of(queue.topic)
        if subscription is None:
            return PAUSED_SECONDS
        asked_offset = assigned.next_offset
        began_ms = now_ms()
        result = await self._puller.pull(
            queue,
            subscription,
            asked_offset,
            max_count=self._rules.pull_batch_size,
            suspend_seconds=self._rules.pull_suspend_seconds,
            timeout_seconds=self._rules.pull_timeout_seconds,
            send_expression=self._rules.send_expression,
        )
        assigned.last_pull_error = None
        if assigned.dropped:
            return 0
        if result.messages:
            # Only pulls that found messages: the others take as long as the broker holds them.
            self._owner.pulled(queue.topic, now_ms() - began_ms, len(result.messages))
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.warning(
                "offset found outside the queue", queue=str(queue), asked=asked_offset, next=result.next_begin_offset
            )
            await self._owner.offset_illegal(assigned, result.next_begin_offset)
            return 0
        return await self._take(assigned, asked_offset, result)

    async def _take(self, assigned: AssignedQueue, asked_offset: int, result: PullResult) -> float:
        assigned.next_offset = result.next_begin_offset
        if result.messages:
            new = assigned.window.put(result.messages)
            assigned.notify()
            await self._submit(assigned, new)
            return self._rules.pull_interval_seconds
        # No wanted message up to here: with an empty window the offset may advance, so that nothing is read twice.
        if len(assigned.window) == 0 and not assigned.busy:
            self._skipped(assigned)
        no_progress = result.status is PullStatus.NO_MATCHED_MSG and result.next_begin_offset == asked_offset
        # A replica responds so to an offset that it does not have yet, immediately and every time.
        return NO_PROGRESS_SECONDS if no_progress else self._rules.pull_interval_seconds

    async def _after_error(self, assigned: AssignedQueue, error: Exception) -> float:
        """Log the error, repair what can be repaired, and return the pause before the next pull, in seconds."""
        if isinstance(error, BrokerRefused) and error.code == ResponseCode.FLOW_CONTROL:
            return FLOW_CONTROL_SECONDS
        if isinstance(error, BrokerRefused) and error.code in NOT_REGISTERED and assigned.last_pull_error is None:
            self._note_restart(error)
            assigned.last_pull_error = ""  # the next refusal is worth a warning: a heartbeat did not help
        elif assigned.last_pull_error != str(error):
            report(log, "pull failed; continuing", error, queue=str(assigned.queue))
            assigned.last_pull_error = str(error)
        if self._tells_of_deletion(assigned, error):
            assigned.topic_gone = True
            return 0
        try:
            if isinstance(error, BrokerRefused) and error.code in NOT_REGISTERED:
                await self._client.heartbeat_one(error.address)
                return NO_PROGRESS_SECONDS
            if not isinstance(error, BrokerRefused):
                await self._client.refresh_route(assigned.queue.topic)
            elif error.code == ResponseCode.SERVICE_NOT_AVAILABLE:  # it stops, and another one may lead soon
                await self._client.refresh_route(assigned.queue.topic)
                return NO_PROGRESS_SECONDS
        except MQClientError as second:
            log.debug("recovery from a failed pull failed", queue=str(assigned.queue), error=str(second))
        return ERROR_SECONDS

    def _note_restart(self, error: BrokerRefused) -> None:
        """Say once for all queues that a broker does not know the group, which a heartbeat mends."""
        now = trio.current_time()
        if now >= self._note_restart_at:
            self._note_restart_at = now + RESTART_NOTED_SECONDS
            name = ResponseCode(error.code).name
            log.info("group not known by a broker that restarted; heartbeat sent", broker=error.address, reason=name)

    def _tells_of_deletion(self, assigned: AssignedQueue, error: Exception) -> bool:
        """Return whether this refusal of a pull says that the position means nothing any more. A slave may only not
        know the topic yet."""
        return (
            isinstance(error, BrokerRefused)
            and error.code == ResponseCode.TOPIC_NOT_EXIST
            and error.address == self._client.routes.master(assigned.queue.broker_name)
            and assigned.next_offset > 0
            and not assigned.topic_gone
        )
