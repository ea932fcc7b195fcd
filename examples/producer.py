"""Send messages: a single one, ordered ones, a batch, a delayed one.

python examples/producer.py [NAME_SERVER]
"""

import sys

import trio

from triomq import Message, Producer


async def main(name_server: str) -> None:
    async with Producer("example-producers", name_server=name_server) as producer:
        result = await producer.send(Message("Orders", b"order 1", tags="new", keys="order-1"))
        print(f"stored in {result.queue.broker_name} queue {result.queue.queue_id} as {result.message_id}")

        for step in (b"paid", b"packed", b"sent"):
            await producer.send(Message("Orders", b"order 1: " + step, tags="step"), sharding_key="order-1")
        print("three steps of one order, in order")

        results = await producer.send_batch(Message("Orders", b"order %d" % number) for number in range(2, 102))
        print(f"100 messages in {len(results)} request(s)")

        reminder = Message("Orders", b"order 1: how was it?", tags="reminder")
        reminder.delay_level = 2  # five seconds
        await producer.send(reminder)
        print("and one for later")


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
