"""One seed with whole brokers: three of them form a group, and clients change their tables while leaders change.

The clients make topics by request and by use, commit offsets, lock queues and send delayed messages, to the leader or
to a broker that no longer leads. What was acknowledged is noted, and holds for every later leader:

    topics     exist
    offsets    are none older than the last one acknowledged, and none that nobody committed
    locks      are given to nobody else as long as their holder may consume
    delays     are delivered, at most once more for each change of the leader
    receives   (POP, if the run has them) lose nothing and repeat nothing that is done: see receives.py

After `TROUBLE_SECONDS` everything is mended. Then one leads, and all tables become equal.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import structlog
import trio

from sim.cluster import BROKER_PORT, Broker, NameServer, in_words, now_ms
from sim.determinism import VirtualClock, run_seeded
from sim.disk import Disk
from sim.dledger.receives import TOPIC, Office, ReceiveChecks, acknowledgement, receipts_of, receive_request
from sim.dledger.whole import IN_MEMORY, _drop
from sim.network import Network
from sim.trace import Trace
from sim.workload import name_server_address
from triomq.broker.assembly.serving import Serving
from triomq.broker.tables.logged import LoggedTable
from triomq.protocol import permission
from triomq.protocol import properties as property_text
from triomq.protocol.bodies.queue_lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.headers.offset import UpdateConsumerOffsetRequestHeader
from triomq.protocol.headers.send import SendMessageRequestHeaderV2
from triomq.protocol.headers.topic import CreateTopicRequestHeader, DeleteTopicRequestHeader
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.record import decode_record
from triomq.protocol.system_topics import AUTO_CREATE_TOPIC
from triomq.remoting import network
from triomq.remoting.client import RemotingClient, open_client
from triomq.remoting.errors import RemotingError

MEMBERS = 3
CLIENTS = 3
LEDGER_PORT = 20_000
GROUP = "sim"
TROUBLE_SECONDS = 25.0
CALM_SECONDS = 60.0
DELIVERY_SECONDS = 15.0
HELD_SECONDS = 30.0
"""A client consumes that long without a renewal (RebalanceLockManager of Java's clients)."""
BROKER_FAULTS = ("kill", "power", "stop", "write", "cut off", "cut off", "mend", "mend", "hand over")
DELAYED, LOCKED = "Delayed", "Locked"
QUEUE = MessageQueue(LOCKED, GROUP, 0)


class Promises:
    """What clients have received as acknowledged, and what they tried."""

    def __init__(self) -> None:
        self.topics: set[str] = set()
        self.deleted: set[str] = set()
        self.acknowledged: dict[tuple[str, str], int] = {}
        self.attempted: dict[tuple[str, str], int] = {}
        self.delayed: set[str] = set()
        self.holds: dict[str, float] = {}
        """Client -> since when it knows that it holds the lock."""

    def broken_by(self, serving: Serving) -> list[str]:
        """Return what the tables of a leader lack."""
        metadata = serving.tables.metadata
        found = [f"topic {topic} is gone" for topic in sorted(self.topics) if metadata.topics.get(topic) is None]
        found += [f"topic {topic} is back" for topic in sorted(self.deleted) if metadata.topics.get(topic) is not None]
        for (group, topic), attempted in self.attempted.items():
            offset, least = metadata.offsets.query(group, topic, 0), self.acknowledged.get((group, topic), -1)
            if not least <= offset <= attempted:
                found.append(f"offset of {group} is {offset}, acknowledged {least}, attempted {attempted}")
        return found


class Brokers:
    """The brokers of one group, and their clients."""

    def __init__(
        self,
        seed: int,
        clock: VirtualClock,
        nursery: trio.Nursery,
        directory: Path,
        kinds: tuple[str, ...],
        *,
        receives: bool = False,
    ) -> None:
        self.choose = choose = Random(seed)
        self.nursery = nursery
        self.counts: Counter[str] = Counter()
        self.promises = Promises()
        self._receives = ReceiveChecks(self.violated) if receives else None
        self.problem: str | None = None
        self.trace = Trace()
        self.seconds = 0.0
        self.network = Network(choose, clock)
        self._is_over = False
        self._numbers = 0
        self._led: set[tuple[str, int]] = set()
        is_sync = choose.random() < 0.5
        able = [kind for kind in kinds if is_sync or kind != "power"]
        self._kinds = choose.sample(able, min(len(able), choose.randint(3, 6)))
        self._pause_seconds = choose.choice((0.5, 1.5, 4.0))
        self.name_server = NameServer(self.network.host("namesrv"), self.trace, nursery)
        hosts = {f"n{at}": self.network.host(f"n{at}") for at in range(MEMBERS)}
        self.clients = [self.network.host(f"client-{at}") for at in range(CLIENTS)]
        values = {
            "brokerName": GROUP,
            "namesrvAddr": name_server_address(self.name_server.host),
            "enableDLegerCommitLog": "true",
            "dLegerGroup": GROUP,
            "dLegerPeers": ";".join(f"{name}-{host.ip}:{LEDGER_PORT}" for name, host in hosts.items()),
            "dLegerFastElection": "true",
            "flushDiskType": "SYNC_FLUSH" if is_sync else "ASYNC_FLUSH",
            "mappedFileSizeCommitLog": str(choose.choice((16, 64)) * 1024),
        }
        self.brokers = {
            name: Broker(
                host,
                self.trace,
                nursery,
                Disk(directory / name, Random(f"{name} {seed}")),
                values | {"dLegerSelfId": name},
            )
            for name, host in hosts.items()
        }

    # Verdicts.

    def violated(self, text: str) -> None:
        if self.problem is None:
            self.trace.add(text)
            self.problem = text

    def leaders(self) -> list[tuple[str, Serving]]:
        """Return those that execute requests, as far as they know."""
        found = []
        for name, broker in self.brokers.items():
            serving = broker.controller.serving if broker.controller is not None and broker.is_running else None
            if serving is not None and serving.group is not None and serving.group.table_log.leads:
                found.append((name, serving))
        return found

    def _check(self, name: str, serving: Serving) -> None:
        """Check what a new leader has, once it has taken office."""
        assert serving.group is not None and serving.group.member is not None
        term = serving.group.member.term
        if (name, term) not in self._led and serving.group.member.is_leader:
            self._led.add((name, term))
            self.counts["leaders"] += 1
            self.trace.add(f"{name} leads in term {term}")
            # What was acknowledged up to now was so in an earlier term: this one has only just begun.
            for text in self.promises.broken_by(serving):
                self.violated(f"{name} in term {term}: {text}")

    # Clients.

    async def _client(self, number: int) -> None:
        with self.clients[number].entered():
            async with open_client() as client:
                acts: tuple[Callable[[RemotingClient, int], Awaitable[None]], ...]
                acts = (
                    self._make_topic,
                    self._delete_topic,
                    self._send_to_new_topic,
                    self._commit,
                    self._commit,
                    self._lock,
                    self._delay,
                )
                pause_seconds = 0.4
                if self._receives is not None:
                    acts += (self._send_some, self._receive, self._receive) * 5
                    pause_seconds = 0.1
                while not self._is_over:
                    await trio.sleep(self.choose.random() * pause_seconds)
                    with suppress(RemotingError, OSError):
                        await self.choose.choice(acts)(client, number)

    async def _ask(self, client: RemotingClient, request: RemotingCommand) -> RemotingCommand | None:
        """Send a request to the leader, or now and then to any broker. Return its response if it is a success."""
        names = [name for name, _ in self.leaders()] if self.choose.random() < 0.9 else []
        return await self._ask_broker(client, self.choose.choice(names or list(self.brokers)), request)

    async def _ask_broker(self, client: RemotingClient, name: str, request: RemotingCommand) -> RemotingCommand | None:
        response = await client.invoke(f"{self.brokers[name].host.ip}:{BROKER_PORT}", request, 4.0)
        self.counts["requests"] += 1
        if response.code != 0:
            return None
        self.counts["acknowledged"] += 1
        self.trace.add(f"{name} acknowledges {request.code}")
        return response

    def _name(self, kind: str) -> str:
        self._numbers += 1
        return f"{kind}{self._numbers}"

    async def _make_topic(self, client: RemotingClient, number: int) -> None:
        topic = self._name("Made")
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=2,
            write_queue_nums=2,
            perm=permission.READ_WRITE,
            topic_filter_type="SINGLE_TAG",
        )
        if await self._ask(client, new_request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)):
            self.promises.topics.add(topic)

    async def _delete_topic(self, client: RemotingClient, number: int) -> None:
        topic = self.choose.choice(sorted(self.promises.topics) or [""])
        if not topic.startswith("Made"):
            return
        self.promises.topics.discard(topic)
        header = DeleteTopicRequestHeader(topic=topic)
        if await self._ask(client, new_request(RequestCode.DELETE_TOPIC_IN_BROKER, header)):
            self.promises.deleted.add(topic)

    async def _send_to_new_topic(self, client: RemotingClient, number: int) -> None:
        topic = self._name("Used")
        if await self._ask(client, _send(topic, b"first", {})):
            self.promises.topics.add(topic)

    async def _commit(self, client: RemotingClient, number: int) -> None:
        key = (f"group-{number}", DELAYED)
        offset = self.promises.attempted.get(key, 0) + self.choose.randint(1, 5)
        self.promises.attempted[key] = offset
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=key[0], topic=key[1], queue_id=0, commit_offset=offset
        )
        if await self._ask(client, new_request(RequestCode.UPDATE_CONSUMER_OFFSET, header)):
            self.promises.acknowledged[key] = offset
            self.trace.add(f"{key[0]} has {offset}")

    async def _lock(self, client: RemotingClient, number: int) -> None:
        """Lock the queue, or release it. A client that has it consumes until HELD_SECONDS after it last asked."""
        name, holds = f"client-{number}", self.promises.holds
        asked_at = trio.current_time()
        if name in holds and self.choose.random() < 0.3:
            del holds[name]
            body = UnlockBatchRequestBody(client_id=name, consumer_group="orderly", mq_set=frozenset([QUEUE]))
            await self._ask(client, new_request(RequestCode.UNLOCK_BATCH_MQ, body=body.encode()))
            return
        lock = LockBatchRequestBody(client_id=name, consumer_group="orderly", mq_set=frozenset([QUEUE]))
        response = await self._ask(client, new_request(RequestCode.LOCK_BATCH_MQ, body=lock.encode()))
        if response is None or QUEUE not in LockBatchResponseBody.decode(response.body).lock_ok_mq_set:
            return
        others = [each for each, since in holds.items() if each != name and since > asked_at - HELD_SECONDS]
        if others:
            self.violated(f"{name} has a lock that {others[0]} holds")
        holds[name] = asked_at
        self.counts["locks"] += 1

    async def _delay(self, client: RemotingClient, number: int) -> None:
        key = self._name("delayed-")
        if await self._ask(client, _send(DELAYED, key.encode(), {"DELAY": "1"})):
            self.promises.delayed.add(key)

    # Clients that receive (POP).

    def _office(self, name: str) -> Office | None:
        """Return the term of a broker that leads."""
        leading = dict(self.leaders()).get(name)
        group = leading.group if leading is not None else None
        return (name, group.member.term) if group is not None and group.member is not None else None

    async def _ask_leader(
        self, client: RemotingClient, request: RemotingCommand
    ) -> tuple[RemotingCommand, Office] | None:
        """Return the response of a leader that has led all the time, if it is a success, and its term."""
        leaders = self.leaders()
        if not leaders:
            return None
        name, _ = self.choose.choice(leaders)
        office = self._office(name)
        response = await self._ask_broker(client, name, request)
        if response is None or office is None or self._office(name) != office:
            return None
        return response, office

    async def _send_some(self, client: RemotingClient, number: int) -> None:
        assert self._receives is not None
        for _ in range(self.choose.randint(1, 4)):
            body = self._name("popped-")
            if await self._ask(client, _send(TOPIC, body.encode(), {}, queue_id=self.choose.randrange(2))):
                self._receives.sent.add(body)

    async def _receive(self, client: RemotingClient, number: int) -> None:
        """Receive some messages, and acknowledge most of them in any order."""
        assert self._receives is not None
        most, invisible_ms = self.choose.choice((1, 3, 32)), self.choose.choice((1000, 3000, 8000))
        if (found := await self._ask_leader(client, receive_request(most, invisible_ms, now_ms()))) is None:
            return
        receipts = receipts_of(found[0], GROUP)
        self._receives.receive(found[1], receipts)
        self.counts["received"] += len(receipts)
        self.choose.shuffle(receipts)
        count = len(receipts) if self._is_over else self.choose.randint(0, len(receipts))
        for receipt in receipts[:count]:
            self._receives.attempted.add(receipt.body)
            if (answered := await self._ask_leader(client, acknowledgement(receipt))) is not None:
                self.counts["done"] += 1
                self._receives.acknowledge(answered[1], receipt)

    async def _receive_rest(self) -> None:
        """Receive until everything is done."""
        if self._receives is None or self.problem is not None:
            return
        with self.clients[0].entered(), trio.move_on_after(CALM_SECONDS):
            async with open_client() as client:
                while self._receives.left():
                    with suppress(RemotingError, OSError):
                        await self._receive(client, 0)
                    await trio.sleep(0.2)
        if left := self._receives.left():
            self.violated(f"{len(left)} messages do not come (again): {sorted(left)[:3]}")

    # Trouble.

    async def _trouble(self) -> None:
        async with trio.open_nursery() as nursery:
            while not self._is_over:
                await trio.sleep(self.choose.random() * 2 * self._pause_seconds)
                kind, name = self.choose.choice(self._kinds), self.choose.choice(list(self.brokers))
                broker = self.brokers[name]
                if broker.is_running and self.problem is None:
                    self.counts[kind] += 1
                    self.trace.add(f"{kind} at {name}")
                    nursery.start_soon(self._act, kind, broker)

    async def _act(self, kind: str, broker: Broker) -> None:
        everybody = [self.name_server, *self.brokers.values()]
        if kind == "mend":
            self.network.heal_all()
        elif kind == "cut off":
            for other in everybody:
                if other is not broker:
                    self.network.cut(broker.host, other.host)
                    self.network.cut(other.host, broker.host)
        elif kind == "hand over":
            serving = broker.controller.serving if broker.controller is not None else None
            if serving is not None and serving.group is not None:
                with broker.host.entered():
                    await serving.group.hand_over()
        else:
            ends: dict[str, Callable[[], Awaitable[None]]] = {
                "kill": broker.kill,
                "power": broker.lose_power,
                "stop": broker.stop,
                "write": lambda: broker.crash_within_a_write(self.choose.randrange(20), power=False),
            }
            await ends[kind]()
            await trio.sleep(self.choose.choice((0.1, 2, 6)))
            if not broker.is_running:
                await broker.start()

    # The run.

    async def run(self) -> None:
        for node in (self.name_server, *self.brokers.values()):
            self.nursery.start_soon(node.start)
        self.nursery.start_soon(self._watch)
        async with trio.open_nursery() as nursery:
            for number in range(CLIENTS):
                nursery.start_soon(self._client, number)
            nursery.start_soon(self._trouble)
            with trio.move_on_after(TROUBLE_SECONDS):
                while self.problem is None:
                    await trio.sleep(0.5)
            self._is_over = True
        self.network.heal_all()
        for broker in self.brokers.values():
            await broker.start()
        with trio.move_on_after(CALM_SECONDS):
            while self.problem is None and self._difference() is not None:
                await trio.sleep(0.2)
        if (difference := self._difference()) is not None:
            self.violated(f"the brokers agree in the end: {difference}")
        await trio.sleep(DELIVERY_SECONDS)
        self._check_delivered()
        await self._receive_rest()
        self.seconds = trio.current_time()
        for node in (*self.brokers.values(), self.name_server):
            await node.stop()
            if node.failure is not None:
                self.violated(f"no program ends by itself: {node.name} {node.failure}")

    async def _watch(self) -> None:
        while True:
            for name, serving in self.leaders():
                self._check(name, serving)
            await trio.sleep(0.01)

    def _difference(self) -> str | None:
        """Return what the brokers do not agree on, None if one leads and all tables are equal to its own."""
        leaders = self.leaders()
        if len(leaders) != 1:
            return f"{len(leaders)} brokers lead"
        _, leading = leaders[0]
        broken = self.promises.broken_by(leading)
        if broken:
            return broken[0]
        expected = _shown(leading)
        for name, broker in self.brokers.items():
            serving = broker.controller.serving if broker.controller is not None and broker.is_running else None
            if serving is None:
                return f"{name} does not run"
            shown = _shown(serving)
            for table, entries in expected.items():
                if shown[table] != entries:
                    return f"{table} of {name} have {sorted(set(shown[table].items()) ^ set(entries.items()))[:3]}"
        return None

    def _check_delivered(self) -> None:
        leaders = self.leaders()
        if self.problem is not None or not leaders:
            return
        reading = leaders[0][1].store.reading
        copies: Counter[str] = Counter()
        for queue_id in range(reading.queue_count):
            offset = reading.min_offset(DELAYED, queue_id)  # a new leader begins behind what groups have committed
            while records := reading.get_messages(DELAYED, queue_id, offset, 32).records:
                copies.update(decode_record(bytes(data)).body.decode() for data in records)
                offset += len(records)
        for key in sorted(self.promises.delayed):
            if not 1 <= copies[key] <= 1 + self.counts["leaders"]:
                self.violated(f"{key} was delivered {copies[key]} times")
        self.counts["delivered again"] += sum(copies.values()) - len(copies)
        self.counts["delayed"] += len(self.promises.delayed)


def _send(topic: str, body: bytes, properties: dict[str, str], queue_id: int = 0) -> RemotingCommand:
    header = SendMessageRequestHeaderV2(
        producer_group="P",
        topic=topic,
        default_topic=AUTO_CREATE_TOPIC,
        default_topic_queue_nums=2,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=now_ms(),
        flag=0,
        properties=property_text.encode(properties).decode(),
    )
    return new_request(RequestCode.SEND_MESSAGE_V2, header, body)


def _shown(serving: Serving) -> dict[str, dict[str, bytes | None]]:
    """Return the tables of a broker that are equal in the whole group."""
    tables = serving.tables
    logged: dict[str, LoggedTable] = {
        "topics": tables.metadata.topics,
        "offsets": tables.metadata.offsets,
        "locks": tables.queue_locks,
    }
    own = tables.metadata.topics.system_topics
    return {
        name: {each: table.logged_entry(each) for each in table.logged_names() if each not in own}
        for name, table in logged.items()
    }


def run_brokers(
    seed: int, *, faults: tuple[str, ...] = BROKER_FAULTS, receives: bool = False
) -> tuple[str | None, Brokers]:
    """Run one seed. Return what is wrong, None if nothing is, and the group as it was then."""
    directory = Path(tempfile.mkdtemp(prefix="triomq-sim-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
    groups: list[Brokers] = []

    async def main(clock: VirtualClock) -> None:
        async with trio.open_nursery() as nursery:
            group = Brokers(seed, clock, nursery, directory, faults, receives=receives)
            groups.append(group)
            network.simulated.set(group.network.host("nowhere"))  # nothing reaches the real network
            await group.run()
            nursery.cancel_scope.cancel()

    before = structlog.get_config()
    structlog.configure(processors=[_drop])
    try:
        run_seeded(main, seed)
    except Exception as error:
        groups[0].violated(f"the run ended with {in_words(error)}")
    finally:
        structlog.configure(**before)
        shutil.rmtree(directory, ignore_errors=True)
    return groups[0].problem, groups[0]
