"""What a client instance needs of the producers and consumers that share it. Groups here are wire names (with
namespace)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from triomq.protocol.bodies.heartbeat import ConsumerData
from triomq.protocol.bodies.running_info import ConsumeMessageDirectlyResult, ConsumerRunningInfo
from triomq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from triomq.protocol.message import MessageExt
from triomq.protocol.message_queue import MessageQueue


class ProducerMember(Protocol):
    """One producer group of this client."""

    @property
    def group(self) -> str: ...

    async def check_transaction(
        self, broker_address: str, header: CheckTransactionStateRequestHeader, message: MessageExt
    ) -> None:
        """Report the outcome of a half message to the broker, which asks for it."""


class ConsumerMember(Protocol):
    """One consumer group of this client."""

    @property
    def group(self) -> str: ...

    def topics(self) -> set[str]:
        """Topics whose routes must be kept fresh."""

    def heartbeat_data(self) -> ConsumerData: ...

    def wake_rebalance(self) -> None:
        """Rebalance soon: queues changed."""

    def members_changed(self) -> None:
        """Rebalance soon, and store offsets before: another member may be about to take over queues."""

    async def persist_offsets(self) -> None: ...

    async def store_offsets_again(self, broker_name: str) -> None:
        """Store all offsets of the queues of one broker, which may have lost the last ones. Raises MQClientError."""

    async def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at other offsets (of the next messages): an administrator moved the group."""

    def consume_offsets(self, topic: str) -> dict[MessageQueue, int]: ...

    def running_info(self, with_stacks: bool) -> ConsumerRunningInfo: ...

    async def consume_directly(self, message: MessageExt, broker_name: str | None) -> ConsumeMessageDirectlyResult:
        """Consume this message now, whatever its queue, for an administrator."""
