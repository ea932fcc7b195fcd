"""Send a request over a topic and wait for its reply.

python examples/request_reply.py [NAME_SERVER]
"""

import sys

import trio

from triomq import Client, ClientConfig, Message, MessageExt, Producer, PushConsumer, reply_to


async def main(name_server: str) -> None:
    # One client, so all three share one connection to each broker.
    async with (
        Client(ClientConfig(name_server=name_server)) as client,
        Producer("example-askers", client=client) as asker,
        Producer("example-answerers", client=client) as answerer,
        PushConsumer("example-calculators", client=client) as calculator,
    ):

        async def answer(message: MessageExt) -> None:
            number = int(message.body)
            await answerer.send(reply_to(message, b"%d" % (number * number)))

        await answerer.send(Message("Squares", b"0"))  # makes the topic
        calculator.subscribe("Squares", "question")
        calculator.listen(answer)
        await calculator.wait_assigned("Squares")
        for number in (2, 3, 12):
            reply = await asker.request(Message("Squares", b"%d" % number, tags="question"), timeout_seconds=10)
            print(f"{number} squared is {reply.body.decode()}")


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
