"""Batches of thousands of messages, stored in steps, between which other clients are served.

RocketMQ has no bound but maxMessageSize, into which 190,000 empty messages fit. The whole batch is checked before the
first message is stored, so that a batch that cannot be read stores nothing. Messages of others may come between those
of two steps. Everything is stored, or the response says what went wrong: then a part may be there, as after a crash.

A batch takes several times its own memory until it is answered, most of it for the ids in its response. So only a few
are stored at a time; the others wait as the requests that they are, whose bytes are counted.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Final

from triomq.broker.message_writer import AwaitedPut, MessageWriter
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RecordError, RequestRefused
from triomq.protocol.message_id import offset_message_id_bytes_reference
from triomq.protocol.properties import MAX_PROPERTIES_BYTES
from triomq.protocol.record import BatchUnit, end_of_units, split_batch
from triomq.protocol.speedups import accelerated
from triomq.remoting.scheduling.step_line import Steps
from triomq.store.results import MessageToStore, PutResult, PutStatus

_offset_message_id: Final = accelerated(offset_message_id_bytes_reference)

LONG_BATCH: Final = 1024
"""More messages than this are stored in steps."""
MESSAGES_IN_A_STEP: Final = 128
"""Messages that are stored in half a millisecond."""
LONG_BATCHES_AT_A_TIME: Final = 4
"""Further ones wait, first come, first served. One that waits for a slave does not hold up all others."""


async def put_in_steps(
    writer: MessageWriter, message: MessageToStore, wait: bool, limits: tuple[int, int], steps: Steps
) -> PutResult:
    """Store the batch that is the body of `message`, each unit with the properties of `message`, too. Return the result
    of all, when all are as durable as asked. `limits` are those of messages and of bytes. Raises RequestRefused."""
    body = message.body
    if len(body) > limits[1]:
        raise _refused(f"it has {len(body)} bytes, more than maxMessageSize {limits[1]}")
    count = 0
    for units in _parts(body):
        count += len(units)
        if count > limits[0]:
            raise _refused(f"it has more than {limits[0]} messages; send several batches")
        longest = max([len(unit.properties) for unit in units])
        if longest + len(message.properties.text) + 1 > MAX_PROPERTIES_BYTES:
            raise _refused(f"a message has more than {MAX_PROPERTIES_BYTES} bytes of properties")
        await steps.next()
    puts: list[AwaitedPut] = []
    offsets = array("q")  # a list would take five times the memory
    for units in _parts(body):
        put = AwaitedPut()
        writer.put_batch(message, units, wait, put)
        puts.append(put)
        offsets.extend(put.result.physical_offsets or ())
        put.result.physical_offsets = None
        if put.result.status is not PutStatus.PUT_OK:
            break
        await steps.next()
    results = [await put.wait() for put in puts]
    whole = results[0]
    whole.status = next((one.status for one in results if one.status is not PutStatus.PUT_OK), whole.status)
    whole.message_count = count
    whole.size_bytes = sum([one.size_bytes for one in results])
    whole.physical_offsets = offsets
    return whole


async def ids_in_steps(store_host_hex: bytes, physical_offsets: Sequence[int], steps: Steps) -> bytes:
    """Return the ids of the messages at these offsets as the response has them."""
    parts: list[bytes] = []
    for begin in range(0, len(physical_offsets), LONG_BATCH):
        some = physical_offsets[begin : begin + LONG_BATCH]
        parts.append(b",".join([_offset_message_id(store_host_hex, offset) for offset in some]))
        await steps.next()
    return b",".join(parts)


def _parts(body: bytes) -> Iterator[list[BatchUnit]]:
    at = 0
    view = memoryview(body)
    while at < len(body):
        end = end_of_units(body, at, MESSAGES_IN_A_STEP)
        try:
            yield split_batch(view[at:end])
        except RecordError as error:
            raise _refused(str(error)) from None
        at = end


def _refused(why: str) -> RequestRefused:
    return RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"the batch cannot be read: {why}")
