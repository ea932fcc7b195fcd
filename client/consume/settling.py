"""Settling: what becomes of received messages: each is acknowledged, or hidden for another time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import trio

from triomq.client.core import pop_requests
from triomq.client.core.errors import BrokerRefused, InvisibleTimeOver, MQClientError, NotSettled
from triomq.client.core.received_message import Receipt, ReceivedMessage
from triomq.client.core.requests import Call, T
from triomq.client.instance.client import Client
from triomq.protocol.codes import ResponseCode
from triomq.protocol.message import MessageExt

GIVE_BACK_MS: Final = 1000
"""When a message comes again that is given back: the shortest invisible time."""
ACKS_OF_A_REQUEST: Final = 1000
REQUESTS_AT_ONCE: Final = 16


class Settling:
    """Settles the messages of one group (wire name). Owns which receipts are about to be replaced."""

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._hiding: dict[Receipt, trio.Event] = {}

    async def acknowledge(self, message: MessageExt) -> None:
        """Acknowledge a message. Raises InvisibleTimeOver, NotSettled, BrokerRefused, BrokerUnreachable,
        OperationTimeout."""
        receipt = await self._last_receipt(message)
        await self._ask(pop_requests.acknowledge(receipt), receipt)

    async def acknowledge_all(self, messages: Sequence[ReceivedMessage]) -> list[tuple[ReceivedMessage, MQClientError]]:
        """Acknowledge messages, in one request for each broker where it can be; return those that failed. Raises
        NotSettled, and nothing is acknowledged."""
        for message in messages:
            self._receipt(message)
        for message in messages:
            await self._last_receipt(message)
        now_ms = self._client.config.now_ms()
        singles: list[list[ReceivedMessage]] = []
        of_brokers: dict[str, list[ReceivedMessage]] = {}
        for message in messages:
            if pop_requests.fits_batch(message._receipt, now_ms):
                of_brokers.setdefault(message._receipt.handle.broker_name, []).append(message)
            else:
                singles.append([message])
        batches = [
            each[first : first + ACKS_OF_A_REQUEST]
            for each in of_brokers.values()
            for first in range(0, len(each), ACKS_OF_A_REQUEST)
        ]
        failures: list[tuple[ReceivedMessage, MQClientError]] = []
        limit = trio.CapacityLimiter(REQUESTS_AT_ONCE)

        async def one(batch: list[ReceivedMessage]) -> None:
            async with limit:
                receipts = [message._receipt for message in batch]
                is_one = len(receipts) == 1
                call = pop_requests.acknowledge(*receipts) if is_one else pop_requests.acknowledge_many(receipts)
                try:
                    await self._ask(call, receipts[0])
                except MQClientError as error:
                    failures.extend((message, error) for message in batch)

        async with trio.open_nursery() as nursery:
            for batch in (*batches, *singles):
                nursery.start_soon(one, batch)
        return failures

    async def hide(self, message: ReceivedMessage, invisible_ms: int) -> None:
        """Have a message invisible from now on. Acknowledging it waits until this has ended. Raises what `acknowledge`
        raises."""
        receipt = await self._last_receipt(message)
        done = self._hiding[receipt] = trio.Event()
        call = pop_requests.change_invisible_time(receipt, invisible_ms, self._client.config.now_ms())
        try:
            # A response that nobody waited for would have the new handle.
            with trio.CancelScope(shield=True):
                message._receipt = await self._ask(call, receipt)
        finally:
            del self._hiding[receipt]
            done.set()

    async def give_back(self, message: ReceivedMessage) -> None:
        """Have a message that nobody has seen delivered again soon. Raises what `acknowledge` raises."""
        receipt = message._receipt
        await self._ask(
            pop_requests.change_invisible_time(receipt, GIVE_BACK_MS, self._client.config.now_ms()), receipt
        )

    async def _last_receipt(self, message: MessageExt) -> Receipt:
        """Return the receipt of a message when no request is about to replace it. Raises NotSettled."""
        while (hiding := self._hiding.get(self._receipt(message))) is not None:
            await hiding.wait()
        return self._receipt(message)

    async def _ask(self, call: Call[T], receipt: Receipt) -> T:
        """Send a request to the broker of a message. Raises InvisibleTimeOver, BrokerRefused, BrokerUnreachable,
        OperationTimeout."""
        try:
            address = await self._client.master_soon(receipt.handle.broker_name, receipt.topic)
            return await self._client.call(address, call)
        except BrokerRefused as error:
            if error.code != ResponseCode.NO_MESSAGE:
                raise
            why = f"{call.action}: its time is over, it is delivered again ({error.remark})"
            raise InvisibleTimeOver(why) from error

    def _receipt(self, message: MessageExt) -> Receipt:
        """Return the receipt of a message that this group has received. Raises NotSettled."""
        if not isinstance(message, ReceivedMessage):
            raise NotSettled(f"{message!r} was not received by a SimpleConsumer")
        receipt = message._receipt
        if receipt.group != self._group:
            raise NotSettled(f"this message was received by the group {receipt.group}, not by {self._group}")
        return receipt
