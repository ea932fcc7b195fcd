"""A service: handlers of topics that open and close together.

python examples/application.py [NAME_SERVER]        (or: triomq run application:app --directory examples)
"""

import asyncio
import sys
from collections.abc import AsyncIterator

from triomq import ConsumeFromWhere, Producer, TrioMQ
from triomq.serializers import Json

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET

app = TrioMQ("example-shop", name_server=sys.argv[1] if len(sys.argv) == 2 else "127.0.0.1:9876", serializer=Json(int))


@app.provides
async def booked() -> AsyncIterator[set[int]]:
    """What handlers share: opened before them, and closed after them."""
    yield set()
    print("closed")


@app.consumer("ShopNumbers", group="example-squares", retries=3, consume_from=FIRST)
async def square(value: int, producer: Producer[int]) -> None:
    await producer.send_value("ShopSquares", value**2)


@app.consumer("ShopSquares", group="example-bookings", consume_from=FIRST)
async def book(value: int, booked: set[int], app: TrioMQ) -> None:
    print(f"{app.name} books {value}")
    booked.add(value)  # a message may come twice
    if len(booked) == 3:
        stop.set()


stop = asyncio.Event()


async def main() -> None:
    async with app:
        for number in (2, 3, 4):
            await app.producer.send_value("ShopNumbers", number)
        await stop.wait()


if __name__ == "__main__":
    asyncio.run(main())
