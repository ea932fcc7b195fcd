"""The clients of POP: they receive, acknowledge, extend invisible times and let some pass, and note each handle.

They send the requests themselves, so that they can do what no good client does: use a handle that is not valid any
more, and repeat a receive although its response came.
"""

from __future__ import annotations

from base64 import b64encode
from functools import partial

import trio

from sim.cluster import now_ms
from sim.history import DONE, REFUSED, UNKNOWN, Consumed, Receipt, Use
from sim.plan import POPPED_IN_ORDER, TOPICS
from sim.workload import ClientNode
from triomq.client.core.config import ClientConfig
from triomq.client.core.errors import BrokerRefused, MQClientError
from triomq.client.instance.client import Client
from triomq.protocol.bodies.batch_ack import BatchAck, BatchAckMessageRequestBody
from triomq.protocol.codes import POLLING_FULL, POLLING_TIMEOUT, RequestCode, ResponseCode
from triomq.protocol.command import new_request
from triomq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from triomq.protocol.message import MessageExt
from triomq.protocol.receipt_handle import NORMAL, ReceiptHandle
from triomq.protocol.record import decode_records

LANES = 2
"""Receives of one client that wait at one broker at the same time; in order: 1."""
MOST_AT_ONCE = 8
LONGEST_WAIT_MS = 8000
REQUEST_SECONDS = 3.0
INVISIBLE_MS = (1000, 2000, 4000, 8000)
SHARE_LEFT = 0.08
"""How often a client lets a message come again."""
SHARE_LATE = 0.06
"""How often it acknowledges when the invisible time is over."""
SHARE_CHANGED = 0.15
SHARE_OLD_HANDLE = 0.3
"""How often it uses the handle from before a change first."""
SHARE_BATCH = 0.3
SHARE_REPEATED = 0.3
"""How often it repeats a receive in order although the response came."""


class _Lane:
    """One receive after the other at one broker; `header` is that of the last one."""

    def __init__(self, client: Client, broker: str, header: PopMessageRequestHeader) -> None:
        self.client = client
        self.broker = broker
        self.header = header


class Popping(ClientNode):
    """A member of a group that receives messages one by one."""

    topic = ""
    group = ""
    brokers: tuple[str, ...] = ()
    _receives = 0

    @property
    def _in_order(self) -> bool:
        return self.topic == POPPED_IN_ORDER

    async def _serve(self, task_status: trio.TaskStatus[object]) -> None:
        async with Client(ClientConfig(**self.options())) as client, trio.open_nursery() as nursery:
            task_status.started()
            for broker in self.brokers:
                for _ in range(1 if self._in_order else LANES):
                    nursery.start_soon(self._receive_on, _Lane(client, broker, self._header()), nursery)

    async def _receive_on(self, lane: _Lane, nursery: trio.Nursery) -> None:
        """Receive from one broker, one receive after the other."""
        while True:
            await trio.sleep(self.choose.random() * 0.2)
            lane.header = self._header()
            receipts = await self._receive(lane)
            if receipts is None:  # no answer; in order the same attempt asks again
                await trio.sleep(self.choose.random())
                receipts = await self._receive(lane) if self._in_order else None
            while receipts and self._in_order and self.choose.random() < SHARE_REPEATED:
                await trio.sleep(self.choose.random() * 0.3)
                receipts = await self._receive(lane) or receipts
            if not receipts:
                continue
            if self._in_order:
                await self._work_on(lane, receipts)
            else:
                nursery.start_soon(self._work_on, lane, receipts)

    # -- receiving -----------------------------------------------------------------------------------------------------

    def _header(self) -> PopMessageRequestHeader:
        choose = self.choose
        return PopMessageRequestHeader(
            consumer_group=self.group,
            topic=self.topic,
            queue_id=choose.randrange(TOPICS[self.topic]) if choose.random() < 0.3 else -1,
            max_msg_nums=choose.randint(1, MOST_AT_ONCE),
            invisible_time=choose.choice(INVISIBLE_MS),
            poll_time=choose.choice((0, choose.randrange(LONGEST_WAIT_MS))),
            born_time=now_ms(),
            init_mode=0,
            exp="*",
            order=self._in_order,
            attempt_id=f"{self.name}-{self._lives}-{choose.getrandbits(48):x}" if self._in_order else None,
        )

    async def _receive(self, lane: _Lane) -> list[Receipt] | None:
        """Return the handles of what came, None if no answer did."""
        header, history = lane.header, self.history
        request = new_request(RequestCode.POP_MESSAGE, header)
        longest_seconds = header.poll_time / 1000 + REQUEST_SECONDS
        asked = self.group, lane.broker, trio.current_time() + longest_seconds
        history.unanswered.append(asked)
        nothing = ResponseCode.PULL_NOT_FOUND, POLLING_TIMEOUT, POLLING_FULL
        try:
            response = await lane.client.ask(
                await lane.client.master_of(lane.broker, self.topic),
                request,
                "receive",
                timeout_seconds=longest_seconds,
                accept=(ResponseCode.SUCCESS, *nothing),
                vip=False,
            )
        except MQClientError as error:
            self._trace.add(f"{self.name}: no answer from {lane.broker}: {type(error).__name__}")
            return None
        history.unanswered.remove(asked)
        if response.code != ResponseCode.SUCCESS:
            return []
        self._receives += 1
        popped_ms = response.header(PopMessageResponseHeader).pop_time
        return [self._got(lane, popped_ms, message) for message in decode_records(response.body)]

    def _got(self, lane: _Lane, popped_ms: int, message: MessageExt) -> Receipt:
        history, key, header = self.history, message.keys or "", lane.header
        known = history.sent.get(key)
        if known is None or known[:2] != (self.topic, message.body):
            history.wrong.append(f"{self.name} received {key!r}, which nobody sent so")
        receipt = Receipt(
            *(self.group, self.name, lane.broker, message.queue_id, message.queue_offset, key, popped_ms),
            visible_ms=popped_ms + header.invisible_time,
            got_ms=now_ms(),
            times=message.reconsume_times,
            receive=self._receives,
            attempt=header.attempt_id or "",
        )
        history.receipts.append(receipt)
        place = f"{lane.broker} {message.queue_id}:{message.queue_offset}"
        self._trace.add(f"{self.name}: received {key} {place}, {receipt.times} times before, at {popped_ms}")
        return receipt

    # -- what becomes of it --------------------------------------------------------------------------------------------

    async def _work_on(self, lane: _Lane, receipts: list[Receipt]) -> None:
        """Acknowledge what was received, each message or those of a queue together; do worse with some."""
        if not self._in_order and self.choose.random() < SHARE_BATCH:
            await trio.sleep(self.choose.random() * 0.5)
            await self._acknowledge_together(lane, receipts)
            return
        async with trio.open_nursery() as nursery:
            for receipt in receipts:
                work = partial(self._work_on_one, lane, receipt)
                if self._in_order:
                    await work()
                else:
                    nursery.start_soon(work)

    async def _work_on_one(self, lane: _Lane, receipt: Receipt) -> None:
        choose = self.choose
        fate = 1.0 if self.is_finished else choose.random()
        await trio.sleep(choose.random() * 0.1)
        if fate < SHARE_LEFT:
            return
        if fate < SHARE_LEFT + SHARE_LATE:
            await trio.sleep(max(0, receipt.visible_ms - now_ms()) / 1000 + choose.random() * 3)
        elif fate < SHARE_LEFT + SHARE_LATE + SHARE_CHANGED:
            changed = await self._change(lane, receipt)
            if choose.random() < SHARE_OLD_HANDLE:
                await self._acknowledge(lane, receipt)
            if changed is None:
                return
            await trio.sleep(choose.random())
            if choose.random() < SHARE_LEFT:
                return
            receipt = changed
        await self._acknowledge(lane, receipt)

    async def _acknowledge(self, lane: _Lane, receipt: Receipt) -> None:
        header = AckMessageRequestHeader(
            consumer_group=self.group,
            topic=self.topic,
            queue_id=receipt.queue_id,
            extra_info=_handle(receipt),
            offset=receipt.queue_offset,
        )
        uses = self._begin_to_acknowledge([receipt])
        result = await self._ask(lane, RequestCode.ACK_MESSAGE, header)
        self._acknowledged(receipt, uses[0], result)

    async def _acknowledge_together(self, lane: _Lane, receipts: list[Receipt]) -> None:
        acks = [
            BatchAck(
                bits=b64encode(b"\1").decode(),
                consumer_group=self.group,
                pop_time=receipt.popped_ms,
                queue_id=receipt.queue_id,
                retry=NORMAL,
                start_offset=receipt.queue_offset,
                topic=self.topic,
            )
            for receipt in receipts
        ]
        body = BatchAckMessageRequestBody(acks=acks, broker_name=lane.broker).encode()
        uses = self._begin_to_acknowledge(receipts)
        result = await self._ask(lane, RequestCode.BATCH_ACK_MESSAGE, None, body)
        for receipt, use in zip(receipts, uses, strict=True):
            # Handles that are not valid any more are left out without a word.
            is_left_out = result == DONE and now_ms() >= receipt.visible_ms
            self._acknowledged(receipt, use, UNKNOWN if is_left_out else result)

    def _begin_to_acknowledge(self, receipts: list[Receipt]) -> list[Use]:
        uses = [Use(False, now_ms()) for _ in receipts]
        for receipt, use in zip(receipts, uses, strict=True):
            receipt.uses.append(use)
            self.history.consumed[self.group, receipt.key].append(_consumed(receipt, self.topic))
        return uses

    def _acknowledged(self, receipt: Receipt, use: Use, result: str) -> None:
        use.ended_ms, use.result = now_ms(), result
        self._trace.add(f"{self.name}: acknowledges {receipt.key} of {receipt.popped_ms}: {result}")
        if result == REFUSED:  # it will come again
            consumed = self.history.consumed[self.group, receipt.key]
            consumed.pop()
            if not consumed:
                del self.history.consumed[self.group, receipt.key]

    async def _change(self, lane: _Lane, receipt: Receipt) -> Receipt | None:
        """Change an invisible time. Return the new handle, None if there is none."""
        invisible_ms = self.choose.choice(INVISIBLE_MS)
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=self.group,
            topic=self.topic,
            queue_id=receipt.queue_id,
            extra_info=_handle(receipt),
            offset=receipt.queue_offset,
            invisible_time=invisible_ms,
        )
        use = Use(True, now_ms())
        receipt.uses.append(use)
        before = receipt.visible_ms
        receipt.visible_ms = min(before, now_ms() + invisible_ms)
        request = new_request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        try:
            address = await lane.client.master_of(lane.broker, self.topic)
            response = await lane.client.ask(address, request, "change", timeout_seconds=REQUEST_SECONDS, vip=False)
        except BrokerRefused as error:
            use.ended_ms = now_ms()
            if error.code == ResponseCode.NO_MESSAGE:
                use.result, receipt.visible_ms = REFUSED, before
            return None
        except MQClientError:
            return None
        use.ended_ms, use.result = now_ms(), DONE
        popped_ms = response.header(ChangeInvisibleTimeResponseHeader).pop_time
        changed = Receipt(
            *(receipt.group, self.name, receipt.broker, receipt.queue_id, receipt.queue_offset, receipt.key, popped_ms),
            visible_ms=popped_ms + invisible_ms,
            got_ms=now_ms(),
            times=receipt.times,
        )
        self.history.receipts.append(changed)
        self._trace.add(f"{self.name}: changes {receipt.key} of {receipt.popped_ms} to {popped_ms} + {invisible_ms}")
        return changed

    async def _ask(self, lane: _Lane, code: int, header: AckMessageRequestHeader | None, body: bytes = b"") -> str:
        """Send an acknowledgement. Return what the answer says."""
        try:
            address = await lane.client.master_of(lane.broker, self.topic)
            request = new_request(code, header, body=body)
            await lane.client.ask(address, request, "acknowledge", timeout_seconds=REQUEST_SECONDS, vip=False)
        except BrokerRefused as error:
            return REFUSED if error.code == ResponseCode.NO_MESSAGE else UNKNOWN
        except MQClientError:
            return UNKNOWN
        return DONE


def _handle(receipt: Receipt) -> str:
    place = receipt.broker, receipt.queue_id, receipt.queue_offset, receipt.queue_offset
    return ReceiptHandle(receipt.popped_ms, receipt.visible_ms - receipt.popped_ms, NORMAL, *place).text()


def _consumed(receipt: Receipt, topic: str) -> Consumed:
    place = receipt.broker, receipt.queue_id, receipt.queue_offset
    return Consumed(receipt.key, receipt.group, receipt.member, topic, *place, at=trio.current_time())
