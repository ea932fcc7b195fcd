"""Receives by POP from a group of brokers, while leaders change.

A leader knows what is in flight, and the group knows the offset that this leaves to commit (docs/internals/pop.md). So
within the office of one leader nothing comes again that it has acknowledged as done, and nothing before its time. A
later leader begins at an offset that is at least the end of what was done without a gap, and nothing is lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.headers.pop import AckMessageRequestHeader, PopMessageRequestHeader, PopMessageResponseHeader
from triomq.protocol.receipt_handle import NORMAL, ReceiptHandle
from triomq.protocol.record import decode_records

TOPIC, GROUP = "Popped", "receivers"

Office = tuple[str, int]
"""A leader and its term."""


@dataclass(frozen=True)
class Receipt:
    """A message as it was received once."""

    queue_id: int
    queue_offset: int
    body: str
    handle: ReceiptHandle


def receive_request(most: int, invisible_ms: int, now_ms: int) -> RemotingCommand:
    """Return a receive of all queues that does not wait."""
    header = PopMessageRequestHeader(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=-1,
        max_msg_nums=most,
        invisible_time=invisible_ms,
        poll_time=0,
        born_time=now_ms,
        init_mode=0,
        exp_type="TAG",
        exp="*",
        order=False,
    )
    return new_request(RequestCode.POP_MESSAGE, header)


def receipts_of(response: RemotingCommand, broker_name: str) -> list[Receipt]:
    """Return what a receive has brought."""
    if not response.body:
        return []
    header = response.header(PopMessageResponseHeader)
    return [
        Receipt(
            message.queue_id,
            message.queue_offset,
            message.body.decode(),
            ReceiptHandle(
                header.pop_time,
                header.invisible_time,
                NORMAL,
                broker_name,
                message.queue_id,
                message.queue_offset,
                message.queue_offset,
            ),
        )
        for message in decode_records(response.body)
    ]


def acknowledgement(receipt: Receipt) -> RemotingCommand:
    header = AckMessageRequestHeader(
        consumer_group=GROUP,
        topic=TOPIC,
        queue_id=receipt.queue_id,
        offset=receipt.queue_offset,
        extra_info=receipt.handle.text(),
    )
    return new_request(RequestCode.ACK_MESSAGE, header)


class ReceiveChecks:
    """What clients have sent, received and had acknowledged."""

    def __init__(self, violated: Callable[[str], None]) -> None:
        self._violated = violated
        self.sent: set[str] = set()
        self.attempted: set[str] = set()
        """What somebody has tried to acknowledge. Everything else comes again until somebody does."""
        self._ends: defaultdict[int, int] = defaultdict(int)
        """Queue id -> the end of what is done without a gap."""
        self._office: Office | None = None
        self._done: defaultdict[int, set[int]] = defaultdict(set)
        """Queue id -> queue offsets that the leader in office has acknowledged as done."""
        self._ready_ms: dict[tuple[int, int], int] = {}

    def _enter(self, office: Office) -> None:
        if office != self._office:
            self._office = office
            self._done.clear()
            self._ready_ms.clear()

    def receive(self, office: Office, receipts: list[Receipt]) -> None:
        """Check what the leader in office has delivered."""
        self._enter(office)
        for each in receipts:
            place = each.queue_id, each.queue_offset
            if each.queue_offset < self._ends[each.queue_id]:
                self._violated(f"{place} comes again, done is all before {self._ends[each.queue_id]}")
            if each.queue_offset in self._done[each.queue_id]:
                self._violated(f"{place} comes again from the leader that has acknowledged it as done")
            if each.handle.popped_ms < self._ready_ms.get(place, 0):
                self._violated(f"{place} comes again before its time")
            self._ready_ms[place] = each.handle.popped_ms + each.handle.invisible_ms

    def acknowledge(self, office: Office, receipt: Receipt) -> None:
        """Note that the leader in office has acknowledged a message as done."""
        self._enter(office)
        done = self._done[receipt.queue_id]
        done.add(receipt.queue_offset)
        while self._ends[receipt.queue_id] in done:
            self._ends[receipt.queue_id] += 1

    def left(self) -> set[str]:
        """Return what was sent and is still to be received by somebody who acknowledges it."""
        return self.sent - self.attempted
