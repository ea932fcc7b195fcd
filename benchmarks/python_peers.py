"""One run of another library's Python client, for benchmarks/python_clients.py, which starts this in an environment
that has these libraries.

    python -m benchmarks.python_peers CLIENT WORKLOAD PORT MESSAGES

Prints the microseconds of CPU time of this process for each message; opening and closing the client, and storing what
is received, do not count.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiokafka
import aiokafka.admin
import nats
import redis
import redis.asyncio

from benchmarks.cpu_watch import Watch

BODY = b"x" * 1024
FETCH = 32
PIPELINE = 100
PARTITIONS = 4
GROUP = "benchmark"
READER = "reader"
FIELDS: Any = {"body": BODY}


# NATS JetStream: a stream in files and, to receive, a durable pull consumer.


@asynccontextmanager
async def jetstream(port: int) -> AsyncIterator[tuple[Any, str]]:
    """Yield the context of a connection, and the subject of a stream of its own, which is deleted afterwards."""
    connection = await nats.connect(f"nats://127.0.0.1:{port}")
    context, name = connection.jetstream(), uuid.uuid4().hex
    await context.add_stream(name=name, subjects=[name])
    try:
        yield context, name
    finally:
        await context.delete_stream(name)
        await connection.close()


async def publish_all(context: Any, subject: str, messages: int) -> list[Any]:
    futures = [await context.publish_async(subject, BODY) for _ in range(messages)]
    await context.publish_async_completed()
    return futures


async def nats_send(port: int, messages: int) -> float:
    async with jetstream(port) as (context, subject):
        await context.publish(subject, BODY)
        watch = Watch()
        for _ in range(messages):
            await context.publish(subject, BODY)
        return watch.took(messages).cpu_us


async def nats_send_many(port: int, messages: int) -> float:
    async with jetstream(port) as (context, subject):
        await context.publish(subject, BODY)
        watch = Watch()
        futures = await publish_all(context, subject, messages)
        took = watch.took(messages)
        for future in futures:
            future.result()
        return took.cpu_us


async def nats_receive(port: int, messages: int) -> float:
    async with jetstream(port) as (context, subject):
        await publish_all(context, subject, messages)
        subscription = await context.pull_subscribe(subject, durable=GROUP)
        watch, received = Watch(), 0
        while received < messages:
            for message in await subscription.fetch(FETCH):
                await message.ack()
                received += 1
        return watch.took(received).cpu_us


# Redis streams.


@asynccontextmanager
async def stream(port: int) -> AsyncIterator[tuple[Any, str]]:
    """Yield a client, and the name of a stream with a group, which is deleted afterwards."""
    name = uuid.uuid4().hex
    async with redis.asyncio.Redis(port=port) as client:
        await client.xgroup_create(name, GROUP, id="0", mkstream=True)
        try:
            yield client, name
        finally:
            await client.delete(name)


def pipelines(client: Any, name: str, messages: int) -> Iterator[Any]:
    """Yield pipelines that add messages, to be executed."""
    for first in range(0, messages, PIPELINE):
        pipeline = client.pipeline(transaction=False)
        for _ in range(min(PIPELINE, messages - first)):
            pipeline.xadd(name, FIELDS)
        yield pipeline


async def add_all(client: Any, name: str, messages: int) -> None:
    for pipeline in pipelines(client, name, messages):
        await pipeline.execute()


async def redis_send(port: int, messages: int) -> float:
    async with stream(port) as (client, name):
        watch = Watch()
        for _ in range(messages):
            await client.xadd(name, FIELDS)
        return watch.took(messages).cpu_us


async def redis_send_many(port: int, messages: int) -> float:
    async with stream(port) as (client, name):
        watch = Watch()
        await add_all(client, name, messages)
        return watch.took(messages).cpu_us


async def redis_receive(port: int, messages: int) -> float:
    async with stream(port) as (client, name):
        await add_all(client, name, messages)
        watch, received = Watch(), 0
        while received < messages:
            for _, entries in await client.xreadgroup(GROUP, READER, {name: ">"}, count=FETCH):
                await client.xack(name, GROUP, *(entry for entry, _ in entries))
                received += len(entries)
        return watch.took(received).cpu_us


@contextmanager
def blocking_stream(port: int) -> Iterator[tuple[Any, str]]:
    name = uuid.uuid4().hex
    with redis.Redis(port=port) as client:
        client.xgroup_create(name, GROUP, id="0", mkstream=True)
        try:
            yield client, name
        finally:
            client.delete(name)


def blocking_add_all(client: Any, name: str, messages: int) -> None:
    for pipeline in pipelines(client, name, messages):
        pipeline.execute()


def blocking_send(port: int, messages: int) -> float:
    with blocking_stream(port) as (client, name):
        watch = Watch()
        for _ in range(messages):
            client.xadd(name, FIELDS)
        return watch.took(messages).cpu_us


def blocking_send_many(port: int, messages: int) -> float:
    with blocking_stream(port) as (client, name):
        watch = Watch()
        blocking_add_all(client, name, messages)
        return watch.took(messages).cpu_us


def blocking_receive(port: int, messages: int) -> float:
    with blocking_stream(port) as (client, name):
        blocking_add_all(client, name, messages)
        watch, received = Watch(), 0
        while received < messages:
            for _, entries in client.xreadgroup(GROUP, READER, {name: ">"}, count=FETCH):
                client.xack(name, GROUP, *(entry for entry, _ in entries))
                received += len(entries)
        return watch.took(received).cpu_us


# Kafka.


@asynccontextmanager
async def topic(port: int) -> AsyncIterator[tuple[Any, str]]:
    """Yield a producer, and a topic of its own that it knows, which is deleted afterwards."""
    server, name = f"127.0.0.1:{port}", uuid.uuid4().hex
    admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=server)
    await admin.start()
    try:
        await admin.create_topics([aiokafka.admin.NewTopic(name, PARTITIONS, 1)])
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=server) as producer:
            for partition in range(PARTITIONS):
                await producer.send_and_wait(name, BODY, partition=partition)
            yield producer, name
        await admin.delete_topics([name])
    finally:
        await admin.close()


async def produce_all(producer: Any, name: str, messages: int) -> list[Any]:
    futures = [await producer.send(name, BODY) for _ in range(messages)]
    await producer.flush()
    return futures


async def kafka_send(port: int, messages: int) -> float:
    async with topic(port) as (producer, name):
        watch = Watch()
        for _ in range(messages):
            await producer.send_and_wait(name, BODY)
        return watch.took(messages).cpu_us


async def kafka_send_many(port: int, messages: int) -> float:
    async with topic(port) as (producer, name):
        watch = Watch()
        futures = await produce_all(producer, name, messages)
        took = watch.took(messages)
        for future in futures:
            future.result()
        return took.cpu_us


async def kafka_receive(port: int, messages: int) -> float:
    async with topic(port) as (producer, name):
        await produce_all(producer, name, messages)
        consumer = aiokafka.AIOKafkaConsumer(
            name, bootstrap_servers=f"127.0.0.1:{port}", group_id=name, auto_offset_reset="earliest"
        )
        async with consumer:
            watch, received = Watch(), 0
            async for _ in consumer:
                received += 1
                if received >= messages:
                    break
            return watch.took(received).cpu_us


RUNS: dict[str, dict[str, Callable[[int, int], Any]]] = {
    "nats-py": {"send": nats_send, "send_many": nats_send_many, "receive": nats_receive},
    "redis-py": {"send": blocking_send, "send_many": blocking_send_many, "receive": blocking_receive},
    "redis-py asyncio": {"send": redis_send, "send_many": redis_send_many, "receive": redis_receive},
    "aiokafka": {"send": kafka_send, "send_many": kafka_send_many, "receive": kafka_receive},
}


def main() -> None:
    client, workload, port, messages = sys.argv[1:]
    run = RUNS[client][workload]
    if asyncio.iscoroutinefunction(run):
        print(asyncio.run(run(int(port), int(messages))))
    else:
        print(run(int(port), int(messages)))


if __name__ == "__main__":
    main()
