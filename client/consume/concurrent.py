"""Consuming in any order, any number of messages at once (RocketMQ: ConsumeMessageConcurrentlyService).

Pulled messages wait in runs, in the order in which they arrived. They leave in one of three ways, and
the first task that asks decides which:

    workers    tasks that call the listener. A worker continues with the next messages without a pause as long as the
               listener does not wait for anything; the moment it does, another worker wakes up. So a listener that only
               computes costs no task switch, and one that waits has `concurrency` calls at once.
    elsewhere  a facade calls the listener in the application's threads: `concurrency` calls at once, without a worker
               for each, because a task that waits for another thread costs more than its call (Elsewhere).
    take       the application's own tasks take single messages (`async for`, `receive`), and settle them.

Bounds: the windows of the queues limit what waits here (pull_loop.py), and `submit` waits above
`max_cached_messages`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

import trio

from triomq.client.consume.assigned import AssignedQueue
from triomq.client.consume.blocking_point import tell_when_blocked
from triomq.client.consume.consuming import FIRST_RETRY_LEVEL, OK, ConsumeOwner, Consuming, Listener, Verdict
from triomq.client.consume.delivery import Delivery
from triomq.client.consume.failed_messages import DEFAULT_MAX_RECONSUME_TIMES
from triomq.client.consume.offset_store import OffsetStore
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.errors import CLOSED, ClientClosed
from triomq.client.core.hooks import ConsumeHook
from triomq.client.core.log import get_logger
from triomq.client.core.results import ConsumeStatus, RetryLater
from triomq.client.core.spans import NO_SPANS
from triomq.client.instance.client import Client
from triomq.client.instance.opening import inside
from triomq.protocol.message import MessageExt

log = get_logger("triomq.client.consume")

RESUBMIT_SECONDS = 5.0
EXPIRY_CHECK_SECONDS = 60.0
MESSAGES_BETWEEN_CHECKPOINTS = 64
"""A checkpoint after this number of messages keeps a listener that never waits from starving other tasks."""


class _Run:
    """Messages of one pull, and how many of them have left."""

    __slots__ = ("assigned", "at", "messages")

    def __init__(self, assigned: AssignedQueue, messages: Sequence[MessageExt]) -> None:
        self.assigned = assigned
        self.messages = messages
        self.at = 0


class Elsewhere(Protocol):
    """Calls the listener in other threads. Used in the consumer's thread."""

    @property
    def is_in_threads(self) -> bool:
        """Whether a call that runs cannot be cancelled, because it has a thread of its own."""

    def start(self, delivery: Delivery, finish: Callable[[Delivery, Verdict], None]) -> None:
        """Have the listener called, at the latest after `flush`, and after that `finish` in the consumer's thread."""

    def flush(self) -> None:
        """Let the calls begin that were started."""

    def stop(self) -> None:
        """Cancel the calls that run, and leave those behind that cannot be cancelled: the consumer closes. None of them
        finishes."""


class ConcurrentConsuming(Consuming):
    """Consuming in any order; see the module's docstring."""

    ordered = False

    def __init__(
        self,
        client: Client,
        owner: ConsumeOwner,
        offsets: OffsetStore,
        rules: ConsumeRules,
        listener: Listener,
        hooks: Sequence[ConsumeHook],
        in_use: Callable[[], Sequence[AssignedQueue]],
    ) -> None:
        """`in_use` returns the queues that are held now."""
        super().__init__(client, owner, offsets, rules, listener, hooks)
        self._in_use = in_use
        self._runs: deque[_Run] = deque()
        self._waiting = 0
        self._offers: deque[Delivery] = deque()
        self._idle = trio.lowlevel.ParkingLot()
        self._room = trio.lowlevel.ParkingLot()
        self._listening = trio.Event()
        self._elsewhere: Elsewhere | None = None
        self._calls_elsewhere = 0
        self._since_checkpoint = 0
        self._has_ended = False

    def start(self) -> None:
        super().start()
        self._owner.start_soon(self._run_workers)
        self._owner.start_soon(self._expire)

    def listen(self, elsewhere: Elsewhere | None = None) -> None:
        """Start the workers, or have the listener called elsewhere: there is one now."""
        self._elsewhere = elsewhere
        self._listening.set()

    async def submit(self, assigned: AssignedQueue, messages: Sequence[MessageExt]) -> None:
        """Take over what was pulled; wait while too much is waiting."""
        if messages:
            self._runs.append(_Run(assigned, messages))
            self._waiting += len(messages)
            self._wake_one()
        while self._waiting > self._rules.max_cached_messages:
            await self._room.park()

    def end(self) -> None:
        """Have `take` raise ClientClosed: the consumer closes."""
        self._has_ended = True
        self._idle.unpark_all()

    def wake(self) -> None:
        """Wake the tasks that wait for messages: the consumer is no longer suspended."""
        self._idle.unpark_all()

    def _wake_one(self) -> None:
        if self._runs or self._offers:
            self._idle.unpark()

    def _next(self, count: int) -> tuple[AssignedQueue, Sequence[MessageExt]] | None:
        """Return up to `count` messages of one queue, the oldest that wait; None when there are none, or none may
        leave."""
        if self._owner.is_paused:
            return None
        runs = self._runs
        while runs:
            run = runs[0]
            messages = run.messages
            at = run.at
            if run.assigned.window.dropped:
                self._left(len(messages) - at)
                runs.popleft()
                continue
            end = run.at = at + count
            if end >= len(messages):
                runs.popleft()
                end = len(messages)
            self._left(end - at)
            return run.assigned, messages[at:end]
        return None

    def _left(self, count: int) -> None:
        self._waiting -= count
        if self._room and self._waiting <= self._rules.max_cached_messages:
            self._room.unpark_all()

    # Workers.

    async def _run_workers(self) -> None:
        await self._listening.wait()
        inside.set(self._owner)
        if self._elsewhere is not None:
            await self._call_elsewhere(self._elsewhere)
        for _ in range(self._rules.concurrency):
            self._owner.start_soon(self._work)

    async def _work(self) -> None:
        size = self._rules.batch_max_size
        while True:
            found = self._next(size)
            if found is None:
                await self._idle.park()
                continue
            await tell_when_blocked(self._consume(*found), self._wake_one)
            self._since_checkpoint += len(found[1])
            if self._since_checkpoint >= MESSAGES_BETWEEN_CHECKPOINTS:
                self._since_checkpoint = 0
                await trio.lowlevel.checkpoint()

    async def _consume(self, assigned: AssignedQueue, messages: Sequence[MessageExt]) -> None:
        began_ms = int(self._clock() * 1000)
        window = assigned.window
        for message in messages:
            window.started_ms[message.queue_offset] = began_ms
        window.last_consume_ms = began_ms
        assigned.busy += 1
        try:
            verdict = await self.call(assigned.queue, messages)
            if not assigned.dropped:
                await self._finish(assigned, messages, verdict)
        finally:
            assigned.busy -= 1
            assigned.notify()

    async def _finish(self, assigned: AssignedQueue, messages: Sequence[MessageExt], verdict: Verdict) -> None:
        window = assigned.window
        if verdict.all_consumed:
            self._settled(assigned, window.remove(messages))
            return
        # Messages that were sent back in the meantime, because they took too long, are no longer in the window.
        left = [message for message in messages if message.queue_offset in window]
        done: list[MessageExt] = []
        again: list[MessageExt] = []
        if self._owner.is_broadcasting:
            done = left
            reason = next((reason for _, reason in verdict.wrong), verdict.reason)
            log.warning(
                "broadcast message failed; it is dropped", group=self._owner.group, count=len(left), reason=reason
            )
        else:
            for message in left:
                reason = verdict.reason_of(message, is_last=self.is_last_try(message))
                ok = (verdict.ok and reason is None) or await self._failed.deliver_again(
                    message,
                    assigned.queue.broker_name,
                    verdict.delay_level if reason is None else -1,
                    self.retry_limit,
                    reason,
                )
                (done if ok else again).append(message)
        self._settled(assigned, window.remove(done))
        if again:
            for message in again:
                message.reconsume_times += 1
                window.started_ms.pop(message.queue_offset, None)
            self._owner.start_soon(self._resubmit, assigned, again)

    async def _resubmit(self, assigned: AssignedQueue, messages: Sequence[MessageExt]) -> None:
        await trio.sleep(RESUBMIT_SECONDS)
        if not assigned.dropped:
            await self.submit(assigned, messages)

    # Calls in other threads.

    async def _call_elsewhere(self, elsewhere: Elsewhere) -> None:
        try:
            while True:
                delivery = None if self._calls_elsewhere >= self._rules.concurrency else self._claim()
                if delivery is None:
                    elsewhere.flush()
                    await self._idle.park()
                    continue
                self.begin(delivery)
                payloads = self._owner.payloads
                if payloads is not None and not await tell_when_blocked(payloads.fits(delivery), elsewhere.flush):
                    elsewhere.flush()
                    await trio.lowlevel.checkpoint()
                    continue
                self._calls_elsewhere += 1
                elsewhere.start(delivery, self._finish_elsewhere)
        finally:
            elsewhere.stop()

    def _finish_elsewhere(self, delivery: Delivery, verdict: Verdict) -> None:
        self._calls_elsewhere -= 1
        self._settle(delivery, verdict)
        self._wake_one()

    # The application's own tasks.

    def take_nowait(self) -> Delivery | None:
        """Return the next message, to be settled by the task that takes it; None when there is none."""
        if self._offers:
            return self._offers.popleft()
        delivery = self._claim()
        if delivery is not None:
            self.begin(delivery)
        return delivery

    def claim_share(self, at_most: int, others: int) -> list[Delivery]:
        """Return messages that wait, to be handed out by a facade in its own thread: a share of those that are left
        when each of the others who ask at this moment has got one. None when hooks or spans have to see the moment at
        which the application gets each."""
        if self._hooks or self._client.spans is not NO_SPANS:
            return []
        share = min(at_most, max(0, self._waiting - others) // (1 + others))
        claimed: list[Delivery] = []
        while len(claimed) < share:
            found = self._next(share - len(claimed))
            if found is None:
                break
            assigned, messages = found
            claimed += [Delivery(message, self, assigned) for message in messages]
        return claimed

    def _claim(self) -> Delivery | None:
        found = self._next(1)
        return None if found is None else Delivery(found[1][0], self, found[0])

    def begin(self, delivery: Delivery) -> None:
        assigned = delivery.assigned
        if assigned is None or delivery.began is not None:
            return
        messages = (delivery.message,)
        delivery.context = self._before(assigned.queue, messages)
        if self._client.spans is not NO_SPANS:
            delivery.span = self.span(assigned.queue, messages)
        delivery.began = self._clock()
        began_ms = int(delivery.began * 1000)
        window = assigned.window
        window.started_ms[delivery.message.queue_offset] = began_ms
        window.last_consume_ms = began_ms
        assigned.busy += 1

    async def take(self) -> Delivery:
        """Return the next message, waiting for one. Raises ClientClosed."""
        while not self._has_ended:
            delivery = self.take_nowait()
            if delivery is not None:
                # A task that was woken may have been cancelled, or found no message: wake another one if any are left.
                self._wake_one()
                return delivery
            await self._idle.park()
        raise ClientClosed(CLOSED)

    def offer(self, delivery: Delivery) -> None:
        """Hand out this message next."""
        self._offers.append(delivery)
        self._wake_one()

    def settled(self, delivery: Delivery, error: RetryLater | None) -> None:
        assigned = delivery.assigned
        if error is None and assigned is not None and assigned.window.dropped:
            log.warning(
                "message acknowledged too late; its queue is another member's now, which gets it again",
                group=self._owner.group,
                queue=str(assigned.queue),
                id=delivery.message.msg_id,
            )
        self._settle(delivery, OK if error is None else Verdict(error=error))

    def _settle(self, delivery: Delivery, verdict: Verdict) -> None:
        assigned = delivery.assigned
        assert assigned is not None
        self.begin(delivery)
        assert delivery.began is not None
        delivery.span.end(*verdict.failure)
        if verdict.is_mistake:
            self._log_mistake(assigned.queue, [delivery.message], verdict)
        self._after(assigned.queue, 1, verdict, delivery.began, delivery.context)
        if verdict.ok:
            assigned.busy -= 1
            self._settled(assigned, assigned.window.remove_one(delivery.message))
        else:
            self._owner.start_soon(self._finish_refused, assigned, delivery.message, verdict)

    async def _finish_refused(self, assigned: AssignedQueue, message: MessageExt, verdict: Verdict) -> None:
        try:
            if not assigned.dropped:
                await self._finish(assigned, [message], verdict)
        finally:
            assigned.busy -= 1
            assigned.notify()

    def returned(self, delivery: Delivery) -> None:
        assigned = delivery.assigned
        assert assigned is not None
        if delivery.began is not None:
            delivery.span.end("returned")
            assigned.busy -= 1
            assigned.window.started_ms.pop(delivery.message.queue_offset, None)
        self._runs.appendleft(_Run(assigned, [delivery.message]))
        self._waiting += 1
        self._wake_one()

    # Messages that take too long.

    async def _expire(self) -> None:
        """Send messages back whose consuming takes too long, so that they do not block the offset of their queue."""
        while True:
            await trio.sleep(min(EXPIRY_CHECK_SECONDS, self._rules.consume_timeout_seconds))
            for assigned in list(self._in_use()):
                now_ms = int(self._clock() * 1000)
                late = assigned.window.overdue(now_ms, int(self._rules.consume_timeout_seconds * 1000))
                for message in late:
                    log.warning(
                        "message sent back: consuming takes too long", queue=str(assigned.queue), id=message.msg_id
                    )
                    reason = None
                    if self.is_last_try(message):
                        reason = f"consuming took longer than {self._rules.consume_timeout_seconds:g} s"
                    level = FIRST_RETRY_LEVEL if reason is None else -1
                    if self._owner.is_broadcasting or await self._failed.deliver_again(
                        message, assigned.queue.broker_name, level, self.retry_limit, reason
                    ):
                        self._settled(assigned, assigned.window.remove([message]))

    @property
    def retry_limit(self) -> int:
        times = self._rules.max_reconsume_times
        return DEFAULT_MAX_RECONSUME_TIMES if times < 0 else times


class OfferedMessage:
    """A message that waits for the application's own tasks although no queue brought it here: an administrator wants it
    consumed, or its queue is an ordered one. `wait` ends when it is settled."""

    def __init__(self) -> None:
        self._done = trio.Event()
        self._error: RetryLater | None = None
        self.refused = False

    def begin(self, delivery: Delivery) -> None:
        """The listener's call around it has begun already."""

    def settled(self, delivery: Delivery, error: RetryLater | None) -> None:
        self._error = error
        self._done.set()

    def returned(self, delivery: Delivery) -> None:
        self.refused = True
        self._done.set()

    async def wait(self) -> ConsumeStatus | None:
        """Wait until the message is consumed. Raises RetryLater when it has to be delivered again."""
        await self._done.wait()
        if self._error is not None:
            raise self._error
        return None
