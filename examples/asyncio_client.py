"""The same client in an asyncio program.

python examples/asyncio_client.py [NAME_SERVER]
"""

import asyncio
import sys

from triomq.aio import Message, Producer, PushConsumer


async def main(name_server: str) -> None:
    async with Producer("example-producers", name_server=name_server) as producer:
        await asyncio.gather(*(producer.send(Message("AsyncioExample", b"%d" % number)) for number in range(10)))
    async with PushConsumer("example-asyncio", name_server=name_server) as consumer:
        consumer.subscribe("AsyncioExample")
        total = 0
        for _ in range(10):
            total += int((await anext(consumer)).body)
        consumer.ack()
    print(f"the sum is {total}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"))
