"""A message and a database change that either both happen or neither.

python examples/transaction.py [NAME_SERVER]
"""

import sqlite3
import sys

import trio

from triomq import LocalTransactionState, Message, MessageExt, PushConsumer, TransactionProducer

database = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
database.execute("CREATE TABLE orders (id TEXT PRIMARY KEY)")


def execute(message: Message, argument: str) -> LocalTransactionState:
    """Run the local transaction, in a thread, because this is a plain function."""
    if argument == "order-2":
        return LocalTransactionState.ROLLBACK_MESSAGE  # out of stock
    database.execute("INSERT INTO orders VALUES (?)", (argument,))
    return LocalTransactionState.COMMIT_MESSAGE


def check(message: MessageExt) -> LocalTransactionState:
    """Look up the outcome in the database: the broker asks because it did not receive the outcome."""
    found = database.execute("SELECT 1 FROM orders WHERE id = ?", (message.keys,)).fetchone()
    return LocalTransactionState.COMMIT_MESSAGE if found else LocalTransactionState.ROLLBACK_MESSAGE


async def main(name_server: str) -> None:
    async with TransactionProducer("example-orders", execute, check, name_server=name_server) as producer:
        for key in ("order-1", "order-2", "order-3"):
            result = await producer.send_in_transaction(Message("PaidOrders", key.encode(), keys=key), key)
            print(f"{key}: {result.state.name}")
    async with PushConsumer("example-shipping", name_server=name_server) as consumer:
        consumer.subscribe("PaidOrders")
        for _ in range(2):
            message = await anext(consumer)
            print(f"to be shipped: {message.body.decode()}")
        consumer.ack()


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
