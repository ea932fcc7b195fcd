"""Typed messages: values in, values out, and what cannot be read goes to the dead letter topic with a reason.

python examples/typed_messages.py [NAME_SERVER]
"""

import sys
from dataclasses import dataclass

import trio

from triomq import ConsumeFromWhere, Message, MessageExt, Producer, PushConsumer
from triomq.serializers import Json, Text


@dataclass
class Order:
    number: int
    customer: str


async def main(name_server: str) -> None:
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    done = trio.Event()

    async def price(message: MessageExt[Order]) -> None:
        order = message.value
        await answers.reply_value(message, f"order {order.number} of {order.customer} costs 42")

    async def explain(message: MessageExt) -> None:
        print(f"dead letter {message.body.decode()!r}: {message.properties['DEAD_LETTER_REASON']}")
        done.set()

    async with (
        Producer("example-typed", serializer=Json(Order), name_server=name_server) as orders,
        Producer("example-answers", serializer=Text(), name_server=name_server) as answers,
        PushConsumer("example-prices", serializer=Json(Order), name_server=name_server, consume_from=first) as prices,
        PushConsumer("example-dead", name_server=name_server, consume_from=first) as dead,
    ):
        prices.subscribe("Prices")
        prices.listen(price)
        dead.subscribe("%DLQ%example-prices")
        dead.listen(explain)
        await orders.send(Message("Prices", b'{"number": "seventeen"}'))
        await prices.wait_assigned("Prices")
        reply = await orders.request_value("Prices", Order(17, "Zoe"), Text(), timeout_seconds=30)
        print(reply.value)
        await done.wait()


if __name__ == "__main__":
    trio.run(main, sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
