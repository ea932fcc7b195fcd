"""Receive single messages: what is not acknowledged in time is delivered again.

python examples/simple_consumer.py [NAME_SERVER]
"""

import sys

import trio

from triomq import Admin, ConsumeFromWhere, Message, Producer, SimpleConsumer


async def main(name_server: str) -> None:
    async with Admin(name_server=name_server) as admin:
        await admin.create_topic("SimpleExample")
    async with Producer("example-producers", name_server=name_server) as producer:
        for text in ("short work", "long work", "work that fails"):
            await producer.send(Message("SimpleExample", text.encode()))
    async with SimpleConsumer(
        "example-simple", consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, name_server=name_server
    ) as consumer:
        consumer.subscribe("SimpleExample")
        done = 0
        while done < 3:
            for message in await consumer.receive(invisible_seconds=2):
                text = message.body.decode()
                print(f"{text}, attempt {message.delivery_attempt}")
                if text == "long work":
                    await consumer.extend(message, 60)
                if text != "work that fails" or message.delivery_attempt > 1:
                    await consumer.ack(message)
                    done += 1


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
