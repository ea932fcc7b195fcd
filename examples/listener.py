"""Consume with a listener: many messages at once; failed ones are delivered again later.

python examples/listener.py [NAME_SERVER [COUNT]]
"""

import sys

import trio

from triomq import ConsumeRules, MessageExt, PushConsumer, RetryLater


async def main(name_server: str, count: int) -> None:
    seen = 0
    done = trio.Event()

    async def handle(message: MessageExt) -> None:
        nonlocal seen
        if message.tags == "step" and message.reconsume_times == 0:
            raise RetryLater(delay_level=1)  # once more, in a second
        seen += 1
        print(f"{seen}: {message.body.decode()!r}, try {message.reconsume_times + 1}")
        if seen == count:
            done.set()

    rules = ConsumeRules(concurrency=8, max_reconsume_times=3)
    async with PushConsumer("example-stock", name_server=name_server, rules=rules) as consumer:
        consumer.subscribe("Orders")
        consumer.listen(handle)
        await done.wait()


if __name__ == "__main__":
    arguments = sys.argv[1:]
    trio.run(main, arguments[0] if arguments else "127.0.0.1:9876", int(arguments[1]) if len(arguments) > 1 else 104)
