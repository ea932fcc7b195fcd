"""Transactions: a store that counts commits, and a check listener that decides without asking the producer.

python examples/extending/transactions.py
"""

from typing import Any

import trio

from triomq import LocalTransactionState, Message, MessageExt, TransactionProducer
from triomq.broker.configuration import Configuration
from triomq.broker.embedded import LocalCluster, VirtualClock
from triomq.broker.extensions import Extensions
from triomq.broker.message_writer import PendingPut
from triomq.broker.transactions.check import HalfMessage
from triomq.broker.transactions.interfaces import CheckListener, TransactionStore

seen: list[str] = []


class CountedTransactions:
    """Entry point: [project.entry-points."triomq.transaction_stores"] counted = "my_package:CountedTransactions"

    It does one thing itself and leaves the rest to the broker's own."""

    commits = 0

    def __init__(self, own: TransactionStore, configuration: Configuration) -> None:
        self.own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def commit(self, half: HalfMessage, pending: PendingPut) -> None:
        type(self).commits += 1
        self.own.commit(half, pending)


class GiveUpAtOnce:
    """Entry point: [project.entry-points."triomq.transaction_listeners"] give-up = "my_package:GiveUpAtOnce" """

    def __init__(self, own: CheckListener, configuration: Configuration) -> None:
        self.own = own

    def check(self, half: HalfMessage) -> None:
        """Decide here; the broker's own listener would ask the producer."""
        seen.append(half.properties.get("KEYS", ""))

    def discard(self, half: HalfMessage) -> bool:
        return self.own.discard(half)


def undecided(message: Message, argument: str) -> LocalTransactionState:
    return LocalTransactionState.COMMIT_MESSAGE if argument == "paid" else LocalTransactionState.UNKNOW


def never_asked(message: MessageExt) -> LocalTransactionState:
    raise AssertionError("the check listener does not ask")


async def main() -> None:
    extensions = Extensions(
        transaction_store=CountedTransactions,  # type: ignore[arg-type]  # __getattr__ has the rest
        transaction_listener=GiveUpAtOnce,
    )
    clock = VirtualClock()  # checks are due after a minute of its time, however slow this machine is
    async with (
        LocalCluster(extensions=extensions, clock=clock) as cluster,
        TransactionProducer("p", undecided, never_asked, name_server=cluster.name_server) as producer,
    ):
        await producer.send_in_transaction(Message("Orders", b"...", keys="order-1"), "paid")
        await producer.send_in_transaction(Message("Orders", b"...", keys="order-2"), "open")
        await clock.advance_until_async(lambda: seen, at_most_seconds=120)
    print(f"committed: {CountedTransactions.commits}, looked at: {seen[0]}")


if __name__ == "__main__":
    trio.run(main)
