"""The client survives its broker: the cluster is killed and restarted while a producer and a consumer keep running."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import trio
from free_ports import free_port

from triomq.broker.embedded import ProcessCluster
from triomq.client.api import ConsumeFromWhere, Message, MessageExt, MQClientError, Producer, PushConsumer

LIMIT_SECONDS = 90
COUNT = 60


async def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(tmp_path: Path) -> None:
    make = partial(
        ProcessCluster,
        store=tmp_path,
        name_server_port=free_port(),
        broker_port=free_port(),
        settings={"flushDiskType": "SYNC_FLUSH"},
    )
    cluster = await trio.to_thread.run_sync(make().start)
    name_server = cluster.name_server
    acknowledged: set[bytes] = set()
    seen: set[bytes] = set()
    all_seen = trio.Event()
    sent_half, restarted = trio.Event(), trio.Event()

    async def send(producer: Producer) -> None:
        for number in range(COUNT):
            body = b"%d" % number
            while body not in acknowledged:
                try:
                    await producer.send(Message("Restarts", body))
                    acknowledged.add(body)
                except MQClientError:
                    await trio.sleep(0.2)
            if number == COUNT // 2:
                sent_half.set()
                await restarted.wait()

    async def handle(message: MessageExt) -> None:
        seen.add(message.body)
        if len(seen) == COUNT:
            all_seen.set()

    with trio.fail_after(LIMIT_SECONDS):
        async with (
            Producer("P", name_server=name_server, send_timeout_seconds=2) as producer,
            PushConsumer(
                "G", name_server=name_server, consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            ) as consumer,
            trio.open_nursery() as nursery,
        ):
            consumer.subscribe("Restarts")
            consumer.listen(handle)
            nursery.start_soon(send, producer)
            await sent_half.wait()
            await trio.to_thread.run_sync(cluster.kill)
            cluster = await trio.to_thread.run_sync(make().start)
            restarted.set()
            await all_seen.wait()
    await trio.to_thread.run_sync(cluster.close)
    assert acknowledged == seen
