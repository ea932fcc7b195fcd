"""What clients of a group of our brokers do while its leaders fail, beside plain sends: transactions, delayed messages,
an ordered group of two consumers, and commits of offsets. `check` compares what they were promised with what came.

Messages may come twice: a send without an answer is repeated by nobody here, but a leader that is killed has delivered
what it could not note any more, and consumers read again what they had not committed.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio
from interop_group import GROUP, Group

from triomq import LitePullConsumer, Message, MessageExt, Producer, PullConsumer, PushConsumer, TransactionProducer
from triomq.client.core.errors import MQClientError
from triomq.client.core.results import ConsumeFromWhere, LocalTransactionState, SendStatus
from triomq.protocol.message_queue import MessageQueue

TRANSACTIONAL, DELAYED, ORDERED = "SoakTransactions", "SoakDelayed", "SoakOrdered"
SETTINGS = {"transactionTimeOut": "1000", "transactionCheckInterval": "3000"}
SHARE_UNKNOWN = 3
"""One in this number of local transactions says nothing, so that its producer is asked."""
PAUSE_SECONDS = 0.1
SETTLE_SECONDS = 90


class Workloads:
    """See the module's docstring. `problems` are promises that were broken while it ran."""

    def __init__(self, group: Group) -> None:
        self.problems: list[str] = []
        self._group = group
        self._numbers: Counter[str] = Counter()
        self._commits: dict[str, bool] = {}
        self._decided: set[str] = set()
        self._delayed: set[str] = set()
        self._ordered: dict[int, int] = defaultdict(int)
        """Queue id -> the next number of its messages."""
        self._consumed: dict[int, int] = defaultdict(int)
        """Queue id -> the next number that the ordered group has not had."""
        self._holders: dict[int, str] = {}
        self._committed = 0
        self.repeated = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Workloads]:
        name_server = self._group.name_server
        async with (
            TransactionProducer(
                "soak-transactions", self._execute, self._check_state, name_server=name_server
            ) as transactions,
            Producer("soak", name_server=name_server) as producer,
            PullConsumer("soak-commits", name_server=name_server) as committing,
            self._consumer("one"),
            self._consumer("two"),
            trio.open_nursery() as nursery,
        ):
            for act in (
                lambda: self._transact(transactions),
                lambda: self._delay(producer),
                lambda: self._send_in_order(producer),
                lambda: self._commit(committing),
            ):
                nursery.start_soon(self._repeat, act)
            yield self
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await self._settle()

    @asynccontextmanager
    async def _consumer(self, name: str) -> AsyncIterator[None]:
        consumer = PushConsumer(
            "soak-ordered",
            ordered=True,
            consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            name_server=self._group.name_server,
            instance_name=name,
        )
        async with consumer:
            consumer.subscribe(ORDERED)

            async def consume(message: MessageExt) -> None:
                await self._consume(name, message)

            consumer.listen(consume)
            yield

    async def _repeat(self, act: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                with trio.CancelScope(shield=True):  # what was begun is counted
                    await act()
            except MQClientError:
                pass  # nothing was promised
            await trio.sleep(PAUSE_SECONDS)

    # Transactions.

    async def _transact(self, producer: TransactionProducer[Any]) -> None:
        self._numbers[TRANSACTIONAL] += 1
        number = self._numbers[TRANSACTIONAL]
        key = f"transaction-{number}"
        self._commits[key] = number % 2 == 0
        result = await producer.send_in_transaction(Message(TRANSACTIONAL, key.encode(), keys=key), key)
        if result.send.status is SendStatus.SEND_OK:
            self._decided.add(key)

    async def _execute(self, message: Message, key: Any) -> LocalTransactionState:
        return LocalTransactionState.UNKNOW if self._numbers[TRANSACTIONAL] % SHARE_UNKNOWN == 0 else self._state(key)

    async def _check_state(self, message: MessageExt) -> LocalTransactionState:
        return self._state(message.keys or "")

    def _state(self, key: str) -> LocalTransactionState:
        if self._commits[key]:
            return LocalTransactionState.COMMIT_MESSAGE
        return LocalTransactionState.ROLLBACK_MESSAGE

    # Delayed messages.

    async def _delay(self, producer: Producer[Any]) -> None:
        self._numbers[DELAYED] += 1
        key = f"delayed-{self._numbers[DELAYED]}"
        message = Message(DELAYED, key.encode())
        message.delay_level = 1
        if (await producer.send(message)).status is SendStatus.SEND_OK:
            self._delayed.add(key)

    # An ordered group.

    async def _send_in_order(self, producer: Producer[Any]) -> None:
        """Send the next number of a queue, again until it is acknowledged: a number may be there twice in a row."""
        self._numbers[ORDERED] += 1
        queue_id = self._numbers[ORDERED] % 4
        number = self._ordered[queue_id]
        queue = MessageQueue(ORDERED, GROUP, queue_id)
        await producer.send(Message(ORDERED, b"%d" % number), queue=queue, timeout_seconds=10)
        self._ordered[queue_id] = number + 1

    async def _consume(self, name: str, message: MessageExt) -> None:
        queue_id, number = message.queue_id, int(message.body)
        other = self._holders.get(queue_id)
        if other is not None:
            self.problems.append(f"{name} and {other} consume queue {queue_id} at once")
        self._holders[queue_id] = name
        try:
            await trio.sleep(0.01)
            if number > self._consumed[queue_id]:
                self.problems.append(f"queue {queue_id}: {number} came before {self._consumed[queue_id]}")
            self.repeated += number < self._consumed[queue_id]
            self._consumed[queue_id] = max(self._consumed[queue_id], number + 1)
        finally:
            self._holders.pop(queue_id, None)

    # Committed offsets.

    async def _commit(self, consumer: PullConsumer) -> None:
        queue = MessageQueue(ORDERED, GROUP, 0)
        wanted = self._committed + 1
        found = await consumer.committed_offset(queue, from_store=True)
        if (found or 0) < self._committed:
            self.problems.append(f"offset {self._committed} was committed, and is {found} now")
        await consumer.commit(queue, wanted)
        self._committed = wanted

    # The end.

    async def _settle(self) -> None:
        """Wait until everything that was promised has come, while the consumers still run."""
        expected = {key for key in self._decided if self._commits[key]}
        transactions, delayed = await self._read(TRANSACTIONAL, expected), await self._read(DELAYED, self._delayed)
        self.problems += [f"{key} is committed and was not delivered" for key in sorted(expected - transactions.keys())]
        rolled_back = {key for key in transactions if not self._commits[key]}
        self.problems += [f"{key} is rolled back and was delivered" for key in sorted(rolled_back)]
        self.problems += [f"{key} was not delivered" for key in sorted(self._delayed - delayed.keys())]
        self.repeated += sum((transactions + delayed).values()) - len(transactions) - len(delayed)
        with trio.move_on_after(SETTLE_SECONDS):
            while any(self._consumed[queue_id] < end for queue_id, end in self._ordered.items()):  # noqa: ASYNC110
                await trio.sleep(0.1)
            return
        self.problems.append(f"the ordered group is at {dict(self._consumed)} of {dict(self._ordered)}")

    async def _read(self, topic: str, expected: set[str]) -> Counter[str]:
        """Return how often each message of a topic can be read, once all that is expected is there."""
        found: Counter[str] = Counter()
        async with LitePullConsumer("soak-reader", name_server=self._group.name_server, auto_commit=False) as consumer:
            queues = await consumer.queues(topic)
            await consumer.assign(queues)
            for queue in queues:
                await consumer.seek_to_begin(queue)
            with trio.move_on_after(SETTLE_SECONDS):
                while not expected <= found.keys():
                    found.update(message.body.decode() for message in await consumer.poll(timeout_seconds=1))
        return found

    def check(self) -> str:
        """Raise AssertionError for a broken promise. Return what was done."""
        assert not self.problems, f"{len(self.problems)} broken promises: {self.problems[:10]}"
        return (
            f"{len(self._decided)} transactions, {len(self._delayed)} delayed, {sum(self._ordered.values())} in order,"
            f" {self._committed} commits; {self.repeated} messages came again"
        )
