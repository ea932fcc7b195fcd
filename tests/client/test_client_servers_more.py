"""Transactions, request and reply, polling: the client against TrioMQ and Apache RocketMQ 4.9.7."""

from __future__ import annotations

import pytest
import trio
from client_cluster import LIMIT_SECONDS, Cluster, fresh, make_topic, send_all, trace_lines, until

from triomq.client.api import (
    ConfigurationError,
    LitePullConsumer,
    LocalTransactionState,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    RequestTimedOut,
    TransactionProducer,
    reply_to,
)
from triomq.client.core.hooks import EndTransactionContext, SendContext
from triomq.client.produce.trace import end_transaction_line


def context_of(body: bytes, state: str, from_check: bool) -> EndTransactionContext:
    return EndTransactionContext("P", Message("T", body, keys="k"), "id", "transaction", "a:1", state, from_check, 1)


class Outcomes:
    """Records sent messages and their outcomes."""

    def __init__(self) -> None:
        self.told: list[tuple[bytes, str, bool]] = []

    def before_send(self, context: SendContext) -> None:
        assert context.result is None

    def after_send(self, context: SendContext) -> None:
        assert context.result is not None

    def after_end_transaction(self, context: EndTransactionContext) -> None:
        self.told.append((context.message.body, context.state, context.from_check))


async def test_only_committed_transactions_are_seen(cluster: Cluster) -> None:
    topic = await make_topic(cluster)
    checked: list[MessageExt] = []

    async def execute(message: Message, argument: str) -> LocalTransactionState:
        assert message.transaction_id
        if argument == "raise":
            raise RuntimeError("the database is away")
        return LocalTransactionState[argument]

    def check(message: MessageExt) -> LocalTransactionState:
        checked.append(message)
        if message.body in (b"raise", b"COMMIT_MESSAGE"):
            return LocalTransactionState.COMMIT_MESSAGE
        return LocalTransactionState.ROLLBACK_MESSAGE

    outcomes = Outcomes()
    with trio.fail_after(LIMIT_SECONDS):
        async with (
            TransactionProducer(
                fresh("P"), execute, check, name_server=cluster.name_server, send_hooks=[outcomes]
            ) as producer,
            PushConsumer(fresh("G"), name_server=cluster.name_server) as consumer,
        ):
            consumer.subscribe(topic)
            await consumer.wait_assigned(topic)
            states = {}
            for argument in ("ROLLBACK_MESSAGE", "UNKNOW", "raise", "COMMIT_MESSAGE"):
                result = await producer.send_in_transaction(Message(topic, argument.encode()), argument)
                states[argument] = result.state.name
            assert states == {
                "ROLLBACK_MESSAGE": "ROLLBACK_MESSAGE",
                "UNKNOW": "UNKNOW",
                "raise": "UNKNOW",
                "COMMIT_MESSAGE": "COMMIT_MESSAGE",
            }
            # 5.x records outcomes with a delay. With these short timeouts it may therefore check the other messages as
            # well, and a message that is committed twice is delivered twice.
            seen: set[bytes] = set()
            while len(seen) < 2:
                seen.add((await consumer.__anext__()).body)
            assert seen == {b"COMMIT_MESSAGE", b"raise"}
            await until(lambda: {message.body for message in checked} >= {b"UNKNOW", b"raise"})
            await until(lambda: (b"raise", "COMMIT_MESSAGE", True) in outcomes.told)
    assert {message.topic for message in checked} == {topic}
    assert (b"COMMIT_MESSAGE", "COMMIT_MESSAGE", False) in outcomes.told
    for outcome in outcomes.told:
        (line,) = trace_lines(end_transaction_line(context_of(*outcome)).text)
        assert line[0] == "EndTransaction"
        assert len(line) == 13


async def test_requests_get_their_replies(cluster: Cluster) -> None:
    topic = fresh()
    await send_all(cluster, topic, [b"make the topic"])
    with trio.fail_after(LIMIT_SECONDS):
        async with (
            Producer(fresh("P"), name_server=cluster.name_server) as asking,
            Producer(fresh("P"), name_server=cluster.name_server) as answering,
            PushConsumer(fresh("G"), name_server=cluster.name_server) as consumer,
        ):
            consumer.subscribe(topic, "rpc")

            async def answer(message: MessageExt) -> None:
                if message.body != b"silence":
                    await answering.send(reply_to(message, message.body[::-1] * 1000))

            consumer.listen(answer)
            await consumer.wait_assigned(topic)
            replies: dict[int, bytes] = {}

            async def ask(number: int) -> None:
                asked = Message(topic, b"%d!" % number, tags="rpc")
                replies[number] = (await asking.request(asked, timeout_seconds=LIMIT_SECONDS)).body

            async with trio.open_nursery() as nursery:
                for number in range(5):
                    nursery.start_soon(ask, number)
            assert replies == {number: b"!%d" % number * 1000 for number in range(5)}
            with pytest.raises(RequestTimedOut, match=topic):
                await asking.request(Message(topic, b"silence", tags="rpc"), timeout_seconds=1.5)


async def test_polling_commits_what_was_polled_before(cluster: Cluster) -> None:
    topic, group = fresh(), fresh("G")
    await send_all(cluster, topic, [b"%d" % number for number in range(8)])
    with trio.fail_after(LIMIT_SECONDS):
        seen: list[bytes] = []
        with pytest.raises(ZeroDivisionError):
            async with LitePullConsumer(group, name_server=cluster.name_server) as consumer:
                consumer.subscribe(topic)
                while len(seen) < 8:
                    last = await consumer.poll()
                    seen += [message.body for message in last]
                raise ZeroDivisionError
        assert sorted(seen) == [b"%d" % number for number in range(8)]
        async with LitePullConsumer(group, name_server=cluster.name_server) as consumer:
            consumer.subscribe(topic)
            again = await consumer.poll(LIMIT_SECONDS)
            assert [message.body for message in again] == [message.body for message in last]
        async with LitePullConsumer(group, name_server=cluster.name_server) as consumer:
            consumer.subscribe(topic)
            await send_all(cluster, topic, [b"new"])
            assert [message.body for message in await consumer.poll(LIMIT_SECONDS)] == [b"new"]


async def test_assigning_seeking_pausing(cluster: Cluster) -> None:
    topic, group = fresh(), fresh("G")
    queue = (await send_all(cluster, topic, [b"0"]))[0]
    async with Producer(fresh("P"), name_server=cluster.name_server) as producer:
        for number in range(1, 5):
            await producer.send(Message(topic, b"%d" % number), queue=queue)
    with trio.fail_after(LIMIT_SECONDS):
        async with LitePullConsumer(group, name_server=cluster.name_server, auto_commit=False) as consumer:
            other = next(one for one in await consumer.queues(topic) if one != queue)
            with pytest.raises(ConfigurationError, match="not assigned"):
                await consumer.seek(queue, 0)
            await consumer.assign([queue])
            assert consumer.assignment == [queue]
            with pytest.raises(ConfigurationError, match="do not go together"):
                consumer.subscribe(topic)

            async def bodies(count: int) -> list[bytes]:
                got: list[bytes] = []
                while len(got) < count:
                    got += [message.body for message in await consumer.poll()]
                return got

            assert await bodies(5) == [b"0", b"1", b"2", b"3", b"4"]
            await consumer.seek(queue, 3)
            assert await consumer.position(queue) == 3
            assert await bodies(2) == [b"3", b"4"]
            await consumer.seek_to_begin(queue)
            consumer.pause([queue])
            assert await consumer.poll(0.3) == []
            consumer.resume([queue])
            assert (await bodies(5))[0] == b"0"
            with pytest.raises(ConfigurationError, match="0 to 5"):
                await consumer.seek(queue, 6)
            await consumer.commit({queue: 2})
            assert await consumer.committed(queue) == 2
            await consumer.seek_to_end(queue)
            assert await consumer.poll(0.3) == []
            await consumer.assign([queue, other])
            assert consumer.assignment == sorted([queue, other])
        async with LitePullConsumer(group, name_server=cluster.name_server) as consumer:
            await consumer.assign([queue])
            assert next(message.body for message in await consumer.poll(LIMIT_SECONDS)) == b"2"
