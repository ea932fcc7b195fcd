"""Read a topic from the beginning at your own pace, without the offsets of a group.

python examples/lite_pull.py [NAME_SERVER]
"""

import sys

import trio

from triomq import LitePullConsumer


async def main(name_server: str) -> None:
    async with LitePullConsumer("example-report", name_server=name_server, auto_commit=False) as consumer:
        queues = await consumer.queues("Orders")
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_begin(queue)
        count = 0
        while messages := await consumer.poll(timeout_seconds=1):
            count += len(messages)
        print(f"{count} messages in {len(queues)} queues")


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
