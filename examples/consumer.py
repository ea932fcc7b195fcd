"""Consume in a loop: asking for the next message acknowledges the previous one.

python examples/consumer.py [NAME_SERVER [COUNT]]        # start examples/producer.py beside it
"""

import sys

import trio

from triomq import PushConsumer


async def main(name_server: str, count: int) -> None:
    async with PushConsumer("example-billing", name_server=name_server) as consumer:
        consumer.subscribe("Orders", "new || step")
        async for message in consumer:
            print(f"{message.body.decode()!r} from queue {message.queue_id}, try {message.reconsume_times + 1}")
            count -= 1
            if not count:
                consumer.ack()
                break


if __name__ == "__main__":
    arguments = sys.argv[1:]
    trio.run(main, arguments[0] if arguments else "127.0.0.1:9876", int(arguments[1]) if len(arguments) > 1 else 4)
