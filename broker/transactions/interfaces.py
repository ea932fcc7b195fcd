"""What others see of transactions, and what a plug-in may replace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from triomq.broker.message_writer import PendingPut
from triomq.broker.transactions.check import CheckReads, HalfMessage


class TransactionStore(CheckReads, Protocol):
    """Where transactions live. `TransactionLog` is the one that RocketMQ's files need."""

    def half_at(self, physical_offset: int) -> HalfMessage | None:
        """Return the half message at this physical offset, None if there is none."""

    async def load(self) -> None:
        """Read how recent transactions ended; called once, before requests arrive."""

    def commit(self, half: HalfMessage, pending: PendingPut) -> None:
        """End the transaction by storing its message; `pending` finishes when that message is as durable as it
        requests. If it is committed already, wait for the message that is stored. Raises TransactionEnded."""

    def rollback(self, half: HalfMessage, pending: PendingPut) -> None:
        """End the transaction without a message; `pending` finishes when that is as durable as a message. Raises
        TransactionEnded if it is committed."""

    def is_settled(self, half: HalfMessage) -> bool:
        """Return True if this half message is known to need no further check."""

    def put_back(self, half: HalfMessage, pending: PendingPut) -> bool:
        """Store a copy behind the other half messages and give `half` the copy's offsets; `pending` finishes when the
        copy is durable: no answer may name its offsets before. Return False on failure, which finishes nothing."""

    def give_up(self, half: HalfMessage) -> bool:
        """Move it to the topic of messages whose transactions never ended. Return False on failure."""

    def resume(self, physical_offset: int, pending: PendingPut) -> None:
        """Resume the checks of a discarded message. Raises RecordError if there is none."""

    def queue_ids(self) -> Sequence[int]:
        """Return the ids of the half queues; create the topic if it does not exist."""

    def half_offset(self, queue_id: int) -> int:
        """Return the queue offset of the first unchecked half message."""

    def op_offset(self, queue_id: int) -> int:
        """Return the queue offset of the first op message that may still be needed."""

    def keep_offsets(self, queue_id: int, half_offset: int, op_offset: int) -> None:
        """Record the progress of a check run."""


class CheckListener(Protocol):
    """Handles half messages whose transactions have not ended (RocketMQ: AbstractTransactionalMessageCheckListener)."""

    def check(self, half: HalfMessage) -> None:
        """Find out how the transaction ended; must not wait or raise."""

    def discard(self, half: HalfMessage) -> bool:
        """Discard a message that was checked too often or is too old. Return False on failure; it is then tried
        again."""
