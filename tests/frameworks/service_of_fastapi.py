"""A service as `uvicorn service_of_fastapi:api` runs it: the topic and its group come from the environment."""

from __future__ import annotations

import asyncio
import os

from fastapi import FastAPI

from triomq import ConsumeFromWhere
from triomq.aio import TrioMQ
from triomq.serializers import Json

app = TrioMQ(
    "service", name_server=os.environ["SERVICE_NAME_SERVER"], serializer=Json(int), request_timeout_seconds=60.0
)
api = FastAPI(lifespan=app.lifespan)
billed: asyncio.Queue[int] = asyncio.Queue()


@app.consumer(
    os.environ["SERVICE_TOPIC"],
    group=os.environ["SERVICE_GROUP"],
    consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
)
async def bill(value: int) -> None:
    await billed.put(value)


@api.post("/orders/{number}")
async def order(number: int) -> dict[str, str]:
    result = await app.producer.send_value(os.environ["SERVICE_TOPIC"], number, timeout_seconds=60)
    return {"message": result.message_id}


@api.get("/billed")
async def next_billed() -> int:
    return await billed.get()
