"""A broker inside a program, for tests: no installation, no ports to choose, no files left behind.

python examples/embedded_cluster.py
"""

import trio

from triomq import Message, Producer, PushConsumer
from triomq.broker.embedded import LocalCluster


async def main() -> None:
    async with LocalCluster() as cluster:
        print(f"NameServer at {cluster.name_server}, broker at {cluster.brokers['broker-a']}")
        async with Producer("p", name_server=cluster.name_server) as producer:
            await producer.send(Message("Hello", b"world"))
        async with PushConsumer("g", name_server=cluster.name_server) as consumer:
            consumer.subscribe("Hello")
            message = await anext(consumer)
            print(f"Hello {message.body.decode()}")


if __name__ == "__main__":
    trio.run(main)
