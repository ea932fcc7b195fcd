"""Consuming in order, one message at a time for each queue (RocketMQ: ConsumeMessageOrderlyService).

One task for each held queue takes messages out of the window in order. A failed message holds up its queue and is tried
again after a pause, or goes to the dead letter topic when it has failed too often. Nothing is consumed while the
broker's lock on the queue is not confirmed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import trio

from triomq.client.consume.assigned import AssignedQueue
from triomq.client.consume.clock import now_ms
from triomq.client.consume.consuming import ConsumeOwner, Consuming, Listener, Verdict
from triomq.client.consume.offset_store import OffsetStore
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.hooks import ConsumeHook
from triomq.client.core.log import get_logger
from triomq.client.instance.client import Client
from triomq.client.instance.opening import inside
from triomq.protocol.message import MessageExt

log = get_logger("triomq.client.consume")


class OrderedConsuming(Consuming):
    """One task for each held queue."""

    ordered = True

    def __init__(
        self,
        client: Client,
        owner: ConsumeOwner,
        offsets: OffsetStore,
        rules: ConsumeRules,
        listener: Listener,
        hooks: Sequence[ConsumeHook],
    ) -> None:
        super().__init__(client, owner, offsets, rules, listener, hooks)
        self._limit = trio.CapacityLimiter(rules.concurrency)

    def opened(self, assigned: AssignedQueue) -> Callable[[AssignedQueue], Awaitable[None]] | None:
        return self.run

    async def submit(self, assigned: AssignedQueue, messages: Sequence[MessageExt]) -> None:
        """Do nothing: the messages are in the window, from which the task of the queue takes them."""

    async def run(self, assigned: AssignedQueue) -> None:
        """Consume one queue until it is dropped."""
        inside.set(self._owner)
        while not assigned.dropped:
            if self._owner.is_paused or not assigned.may_run or not self._may_consume(assigned):
                await assigned.wait_change(1)
                continue
            messages = assigned.window.take(self._rules.batch_max_size)
            if not messages:
                await assigned.wait_change(60)
                continue
            assigned.busy += 1
            try:
                async with self._limit:
                    pause_seconds = await self._consume_if_still_ours(assigned, messages)
            finally:
                assigned.busy -= 1
                assigned.notify()
            if pause_seconds > 0:
                await trio.sleep(pause_seconds)

    def _may_consume(self, assigned: AssignedQueue) -> bool:
        return self._owner.is_broadcasting or assigned.holds_lock(now_ms())

    async def _consume_if_still_ours(self, assigned: AssignedQueue, messages: Sequence[MessageExt]) -> float:
        """The queue may have been reset or given up, or its lock lost, while other queues had all the calls."""
        if assigned.dropped:
            return 0
        if not assigned.may_run or not self._may_consume(assigned):
            assigned.window.put_back()
            return 0
        return await self._consume(assigned, messages)

    async def _consume(self, assigned: AssignedQueue, messages: Sequence[MessageExt]) -> float:
        """Returns how long the queue pauses."""
        assigned.window.last_consume_ms = now_ms()
        verdict = await self.call(assigned.queue, messages)
        if assigned.dropped:
            return 0
        if verdict.all_consumed:
            self._settled(assigned, assigned.window.settle())
            return 0
        done: list[MessageExt] = []
        failed: list[MessageExt] = []
        pauses = False
        for message in messages:
            reason = verdict.reason_of(message, is_last=self.is_last_try(message))
            if verdict.ok and reason is None:
                done.append(message)
            elif reason is None and verdict.delay_level >= 0:
                failed.append(message)
                pauses = True
            else:
                gone = await self._bury(assigned, message, reason)
                (done if gone else failed).append(message)
        if done:
            self._settled(assigned, assigned.window.remove(done))
        for message in failed:
            message.reconsume_times += 1
        assigned.window.put_back()
        return self._rules.suspend_seconds if pauses else 0

    async def _bury(self, assigned: AssignedQueue, message: MessageExt, reason: str | None) -> bool:
        if self._owner.is_broadcasting:
            log.warning("broadcast message failed; it is dropped", group=self._owner.group, reason=reason)
            return True
        return await self._failed.deliver_again(message, assigned.queue.broker_name, -1, 0, reason)

    @property
    def retry_limit(self) -> int | None:
        limit = self._rules.max_reconsume_times
        return None if limit < 0 or self._owner.is_broadcasting else limit

    def pause_before_retry(self, message: MessageExt, verdict: Verdict) -> str:
        return f"{self._rules.suspend_seconds:g} s"
