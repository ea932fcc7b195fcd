"""Message traces of gRPC clients. They write none, so their broker does, where it has the topic for traces
(traceTopicEnable): who sent a message, who received it, and how that ended.

A consumption is found again by what its receipt handle says, so nothing is kept until it ends. Lines are collected for
half a second; at most `MAX_WAITING` wait, and further ones are dropped: traces must never slow down or fail what they
trace.
"""

from __future__ import annotations

from typing import Any, Final

import trio

from triomq.broker.assembly.serving import Serving
from triomq.broker.grpc.client import GrpcClient
from triomq.broker.grpc.messages import type_of
from triomq.broker.message_writer import PendingPut
from triomq.broker.put_responses import STORED
from triomq.grpc_front import schema
from triomq.protocol import property_names as names
from triomq.protocol import stored_properties
from triomq.protocol.message import MessageExt
from triomq.protocol.receipt_handle import ReceiptHandle
from triomq.protocol.trace_records import (
    COMMITTED_MESSAGE,
    CONTEXT_CODES,
    DELAYED_MESSAGE,
    END_TRANSACTION,
    HALF_MESSAGE,
    NORMAL_MESSAGE,
    PUB,
    SUB_AFTER,
    SUB_BEFORE,
    TraceLine,
    keys_of,
    line,
    pack,
)
from triomq.remoting.log import get_logger
from triomq.store.results import MessageToStore

log = get_logger("triomq.broker.grpc")

WRITE_SECONDS: Final = 0.5
MAX_WAITING: Final = 2048
MAX_LINES: Final = 100
"""Lines of one trace message, which has the ids of all their messages among its keys."""
_KINDS: Final = {schema.MessageType.TRANSACTION: HALF_MESSAGE, schema.MessageType.DELAY: DELAYED_MESSAGE}


class Traces:
    """See the module's docstring."""

    def __init__(self, serving: Serving) -> None:
        self._configuration = serving.tables.configuration
        self._now_ms = serving.tables.now_ms
        self._writer = serving.writer
        self._host = serving.host.packed
        self._address = serving.address
        self._lines: list[TraceLine] = []
        self.dropped = 0

    @property
    def is_on(self) -> bool:
        broker = self._configuration.broker
        return broker.trace_topic_enable and broker.trace_on

    def sent(
        self, client: GrpcClient, topic: str, properties: dict[str, str], size_bytes: int, began_ms: int, offset_id: str
    ) -> None:
        """Note that a message was stored. The producer group is its topic, as everywhere for gRPC clients."""
        message_id, keys = properties.get(names.UNIQ_KEY), properties.get(names.KEYS, "")
        text = line(
            *(PUB, began_ms, self._configuration.broker.region_id, topic, topic, message_id),
            *(properties.get(names.TAGS, ""), keys, self._address, size_bytes, self._now_ms() - began_ms),
            *(_KINDS.get(type_of(properties), NORMAL_MESSAGE), offset_id, True),
        )
        self._add(client, text, message_id, keys)

    def ended(
        self, client: GrpcClient, topic: str, message_id: str, transaction_id: str, state: str, *, was_asked: bool
    ) -> None:
        """Note how a transaction has ended; `was_asked`: that is the answer to a check."""
        text = line(
            *(END_TRANSACTION, self._now_ms(), self._configuration.broker.region_id, topic, topic, message_id),
            *("", "", self._address, COMMITTED_MESSAGE, transaction_id, state, was_asked),
        )
        self._add(client, text, message_id)

    def received(self, client: GrpcClient, group: str, stored: MessageExt, handle: ReceiptHandle) -> None:
        """Note that a consumer got a message, unless its producer switched tracing off."""
        properties = stored.properties
        if not self.is_on or properties.get(names.TRACE_ON) == "false":
            return
        message_id, keys = properties.get(names.UNIQ_KEY) or stored.offset_msg_id, properties.get(names.KEYS, "")
        text = line(
            *(SUB_BEFORE, handle.popped_ms, properties.get(names.MSG_REGION), group, _request_id(handle)),
            *(message_id, stored.reconsume_times, keys),
        )
        self._add(client, text, message_id, keys)

    def consumed(
        self, client: GrpcClient, group: str, message_id: str, handle: ReceiptHandle, *, is_good: bool
    ) -> None:
        """Note what came of a message that a consumer got."""
        if not self.is_on:
            return
        now_ms = self._now_ms()
        text = line(
            *(SUB_AFTER, _request_id(handle), message_id, max(0, now_ms - handle.popped_ms), is_good, ""),
            *(CONTEXT_CODES["SUCCESS" if is_good else "FAILED"], now_ms, group),
        )
        self._add(client, text, message_id)

    def _add(self, client: GrpcClient, text: str, message_id: str | None, keys: str = "") -> None:
        if len(self._lines) >= MAX_WAITING:
            self.dropped += 1
            return
        self._lines.append(TraceLine(text, keys_of(message_id, keys)))
        if len(self._lines) == 1:
            client.start_soon(self._write_soon)

    async def _write_soon(self) -> None:
        """Write what is collected until then; at once, if the client ends before."""
        try:
            await trio.sleep(WRITE_SECONDS)
        finally:
            self._write()

    def _write(self) -> None:
        lines, self._lines = self._lines, []
        for at in range(0, len(lines), MAX_LINES):
            self._put(lines[at : at + MAX_LINES])

    def _put(self, lines: list[TraceLine]) -> None:
        now_ms = self._now_ms()
        for body, keys in pack(lines):
            properties: dict[str, Any] = {names.KEYS: " ".join(sorted(keys))}
            message = MessageToStore(
                self._configuration.broker.msg_trace_topic_name,
                0,
                body.encode(),
                stored_properties.of(properties),
                born_timestamp=now_ms,
                born_host=self._host,
                store_host=self._host,
            )
            pending = PendingPut()
            self._writer.put(message, False, pending)
            if pending.result.status not in STORED:
                self.dropped += len(lines)
                log.warning("traces of gRPC clients not written", lines=len(lines), error=pending.result.reason)


def _request_id(handle: ReceiptHandle) -> str:
    """Return what the lines of one consumption have in common."""
    return f"{handle.popped_ms:x}-{handle.queue_id:x}-{handle.queue_offset or 0:x}"
