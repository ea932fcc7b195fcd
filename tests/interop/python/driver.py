"""The Python driver of the interoperability tests: the project's own client behind the same commands as the other
drivers.

`driver.py serve` reads commands from stdin, words separated by tabs: `ID COMMAND --name value ...` starts one (several
run at the same time), `ID stop` ends it, the end of stdin ends all. Each event is one JSON object per line on stdout.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import trio

from triomq.client.consume.pull_consumer import PullConsumer
from triomq.client.consume.push_consumer import PushConsumer
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.results import ConsumeFromWhere, MessageModel, RetryLater, SendResult
from triomq.client.produce.producer import Producer
from triomq.protocol.message import Message, MessageExt

ASYNC_AT_ONCE = 64
_instances = count(1)


class Events:
    """Prints the events of one command."""

    def __init__(self, command_id: str) -> None:
        self.id = command_id

    def emit(self, event: str, **fields: Any) -> None:
        sys.stdout.write(json.dumps({"id": self.id, "event": event, **fields}) + "\n")
        sys.stdout.flush()

    def sent(self, line: int, result: SendResult) -> None:
        self.emit(
            "sent",
            line=line,
            status=result.status.name,
            broker=result.queue.broker_name,
            queue=result.queue.queue_id,
            queue_offset=result.queue_offset,
            msg_id=result.message_id,
            offset_msg_id=result.offset_message_id,
        )

    def message(self, message: MessageExt) -> None:
        self.emit(
            "message",
            topic=message.topic,
            broker=message.broker_name,
            queue=message.queue_id,
            queue_offset=message.queue_offset,
            physical_offset=message.physical_offset,
            msg_id=message.uniq_key,
            tags=message.tags,
            keys=message.keys,
            flag=message.flag,
            sys_flag=message.sys_flag,
            reconsume_times=message.reconsume_times,
            born_ms=message.born_timestamp,
            store_ms=message.store_timestamp,
            properties=message.properties,
            body=base64.b64encode(message.body).decode(),
        )


Arguments = dict[str, str]


def client_options(arguments: Arguments) -> dict[str, Any]:
    """Return short periods, as the other drivers use them."""
    return {
        "name_server": arguments["namesrv"],
        "instance_name": f"p{os.getpid()}-{next(_instances)}",
        "route_interval_seconds": 1.0,
        "heartbeat_interval_seconds": 1.0,
        "persist_interval_seconds": 0.5,
        "offset_directory": Path.home() / "offsets",
    }


def messages_of(arguments: Arguments) -> list[Message]:
    """Return the lines of --file, each with its line end."""
    parts = Path(arguments["file"]).read_bytes().split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
    tags = arguments["tags"].split(",") if "tags" in arguments else []
    messages = []
    for number, line in enumerate(lines):
        message = Message(arguments["topic"], line, keys=f"{arguments.get('keys', 'key')}-{number}")
        message.put_user_property("line", str(number))
        if tags:
            message.tags = tags[number % len(tags)]
        if "delay-level" in arguments:
            message.delay_level = int(arguments["delay-level"])
        messages.append(message)
    return messages


async def send_lines(arguments: Arguments, events: Events, stop: trio.Event) -> None:
    group = arguments.get("group", "interop_producer")
    timeout_seconds = int(arguments.get("timeout-ms", "5000")) / 1000
    messages = messages_of(arguments)
    async with Producer(group, send_timeout_seconds=timeout_seconds, **client_options(arguments)) as producer:
        queues: list[Any] = [None]
        if "order-by-queue" in arguments:
            queues = (await producer.queues(arguments["topic"]))[: int(arguments["order-by-queue"])]
        mode = arguments.get("mode", "sync")
        if mode == "batch":
            size = int(arguments.get("batch-size", "32"))
            for begin in range(0, len(messages), size):
                [result] = await producer.send_batch(messages[begin : begin + size])
                events.sent(begin, result)
            return
        limit = trio.CapacityLimiter(ASYNC_AT_ONCE if mode == "async" else 1)

        async def send(number: int, message: Message) -> None:
            queue = queues[number % len(queues)]
            async with limit:
                if mode == "oneway":
                    await producer.send_oneway(message, queue=queue)
                    events.emit("sent", line=number)
                else:
                    events.sent(number, await producer.send(message, queue=queue))

        async with trio.open_nursery() as nursery:
            for number, message in enumerate(messages):
                if mode == "async":
                    nursery.start_soon(send, number, message)
                    continue
                await send(number, message)
                if stop.is_set():
                    return
                await trio.sleep(int(arguments.get("pause-ms", "0")) / 1000)


async def receive(arguments: Arguments, events: Events, stop: trio.Event) -> None:
    mode = arguments.get("mode", "push")
    expected = int(arguments.get("expect", "-1"))
    seen = 0

    async def listener(message: MessageExt) -> None:
        nonlocal seen
        seen += 1
        events.message(message)
        if seen == expected:
            stop.set()
        if "refuse" in arguments and arguments["refuse"].encode() in message.body:
            raise RetryLater(int(arguments.get("retry-delay-level", "0")))

    rules = ConsumeRules(
        concurrency=4,
        pull_batch_size=int(arguments.get("pull-batch", "32")),
        max_reconsume_times=int(arguments.get("max-reconsume", "-1")),
        suspend_seconds=0.5,
    )
    consumer = PushConsumer(
        arguments["group"],
        model=MessageModel.BROADCASTING if mode == "broadcast" else MessageModel.CLUSTERING,
        ordered=mode == "orderly",
        consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        rules=rules,
        **client_options(arguments),
    )
    async with consumer:
        consumer.subscribe(
            arguments["topic"], arguments.get("sql") or arguments.get("tags", "*"), sql="sql" in arguments
        )
        consumer.listen(listener)
        events.emit("started", client_id=consumer.client.client_id)
        await stop.wait()


async def pull(arguments: Arguments, events: Events, stop: trio.Event) -> None:
    async with PullConsumer(arguments["group"], **client_options(arguments)) as consumer:
        for queue in await consumer.queues(arguments["topic"]):
            given = arguments.get("offset")
            queue_offset = await consumer.min_offset(queue) if given is None else int(given)
            while True:
                size = int(arguments.get("pull-batch", "32"))
                result = await consumer.pull(queue, arguments.get("tags", "*"), queue_offset, max_count=size)
                end = {"next_offset": result.next_begin_offset, "max_offset": result.max_offset}
                events.emit("pulled", queue=queue.queue_id, status=result.status.name, **end)
                for message in result.messages:
                    events.message(message)
                queue_offset = result.next_begin_offset
                if queue_offset >= result.max_offset:
                    break


COMMANDS: dict[str, Callable[[Arguments, Events, trio.Event], Awaitable[None]]] = {
    "send-lines": send_lines,
    "receive": receive,
    "pull": pull,
}


async def run(command_id: str, words: list[str], stop: trio.Event) -> None:
    events = Events(command_id)
    try:
        arguments = {name.removeprefix("--"): value for name, value in zip(words[1::2], words[2::2], strict=True)}
        await COMMANDS[words[0]](arguments, events, stop)
        events.emit("done")
    except Exception as error:
        traceback.print_exc()
        events.emit("failed", error=f"{type(error).__name__}: {error}")


async def serve() -> None:
    Events("").emit("ready")
    stops: dict[str, trio.Event] = {}
    async with trio.open_nursery() as nursery:
        while line := await trio.to_thread.run_sync(sys.stdin.readline):
            command_id, *words = line.rstrip("\n").split("\t")
            if words == ["stop"]:
                stops[command_id].set()
            else:
                stops[command_id] = trio.Event()
                nursery.start_soon(run, command_id, words, stops[command_id])
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(serve)
