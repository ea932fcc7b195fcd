"""A Java producer beside a group's load, and consumers of several kinds that read while members fail."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import interop_wire as wire
import trio
from interop_drivers import Driver, Event, Running
from interop_group import GROUP, TOPIC, Group, Load, Observer, Place
from interop_texts import lines_of, numbered

MOST_LINES = 200_000
PAUSE_MS = 20
SECONDS = 60

Receive = Callable[[], Running]
"""Starts a consumer."""


class _Told:
    """The events of a running command, each of them once."""

    def __init__(self, command: Running) -> None:
        self.command = command
        self._seen = 0

    def news(self) -> list[Event]:
        with self.command.driver.changed:
            found = self.command.events[self._seen :]
        self._seen += len(found)
        errors = [event for event in found if event["event"] == "failed"]
        assert not errors, f"{self.command.driver.name}: {self.command.text}: {errors}"
        return found


class OtherClients:
    """`read`: for each kind of consumer what it has read, (queue id, queue offset) -> body."""

    def __init__(self, load: Load, lines: list[bytes], producer: Running, receive: dict[str, Receive]) -> None:
        self.read: dict[str, dict[Place, bytes]] = {kind: {} for kind in receive}
        self._load = load
        self._lines = lines
        self._producer = _Told(producer)
        self._receive = receive
        self._consumers = {kind: _Told(begin()) for kind, begin in receive.items()}
        self.sent = 0

    async def send_on(self) -> None:
        """Wait until the producer gets its next acknowledgement."""
        self._hear()
        sent = self.sent
        await self._until(lambda: self.sent > sent, "Java's producer goes on by itself")

    async def read_on(self) -> None:
        """Wait until every consumer has read a message that is acknowledged from now on. After the end of a leader's
        process Java's may take 33 s: the end of a connection does not end a pull that waits there, only its timeout of
        30 s does (CONSUMER_TIMEOUT_MILLIS_WHEN_SUSPEND), and the next pull follows three seconds after an error."""
        self._hear()
        before = set(self._load.acknowledged)

        def _all_read_on() -> bool:
            new = self._load.acknowledged.keys() - before
            return all(read.keys() & new for read in self.read.values())

        await self._until(_all_read_on, "consumers go on by themselves")

    async def change_consumers(self) -> None:
        """Stop each consumer, and let another one of its group continue where it was. The new one waits for nothing
        that happened before, unlike `read_on`."""
        for kind, begin in self._receive.items():
            await trio.to_thread.run_sync(self._consumers[kind].command.stop)
            self._hear()
            self._consumers[kind] = _Told(await trio.to_thread.run_sync(begin))

    async def finish(self) -> None:
        """Stop the producer, wait until each consumer has read all that was acknowledged, and stop them."""
        await trio.to_thread.run_sync(self._producer.command.stop)
        self._hear()
        promised = self._load.acknowledged
        await self._until(
            lambda: all(read.keys() >= promised.keys() for read in self.read.values()), "consumers have read everything"
        )
        for kind, read in self.read.items():
            wrong = [place for place, body in promised.items() if read[place] != body]
            assert not wrong, f"{kind} has read other messages than were acknowledged at {wrong[:10]}"
        for consumer in self._consumers.values():
            await trio.to_thread.run_sync(consumer.command.stop)

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        with trio.move_on_after(SECONDS):
            while not holds():
                await trio.sleep(0.05)
                self._hear()
            return
        missing = {kind: len(self._load.acknowledged.keys() - read.keys()) for kind, read in self.read.items()}
        raise AssertionError(
            f"not within {SECONDS} s: {what}; {self.sent} sent by Java, acknowledged and not read: {missing}\n"
            + self._producer.command.driver.child.log_tail()
        )

    def _hear(self) -> None:
        for event in self._producer.news():
            if event["event"] == "sent":
                self.sent += 1
                self._load.acknowledge(_place(event), self._lines[event["line"]])
        for kind, consumer in self._consumers.items():
            for event in consumer.news():
                if event["event"] == "message":
                    earlier = self.read[kind].setdefault(_place(event), event["body"])
                    assert earlier == event["body"], f"{kind} has read two messages at {_place(event)}"


def _place(event: Event) -> Place:
    return event["queue"], event["queue_offset"]


@asynccontextmanager
async def other_clients(load: Load, directory: Path, java: Driver, *others: Driver) -> AsyncIterator[OtherClients]:
    """Let a Java producer send until the block ends, and consumers of Java and of `others` read everything. The topic
    exists."""
    path = numbered(directory, MOST_LINES, "java.txt", "from Java")
    at = {"namesrv": load.group.name_server, "topic": TOPIC}

    def _begin() -> OtherClients:
        names = [driver.name.partition("-")[0] for driver in (java, *others)]
        drivers = dict(zip(names, (java, *others), strict=True))
        receive = {kind: partial(driver.receive, group=f"group-{kind}", **at) for kind, driver in drivers.items()}
        options = {"file": path, "keep_going": True, "pause_ms": PAUSE_MS, "timeout_ms": 5000}
        return OtherClients(load, lines_of(path), java.begin("send-lines", **options, **at), receive)

    clients = await trio.to_thread.run_sync(_begin)
    yield clients
    await clients.finish()


async def check_route(group: Group, observer: Observer, seconds: float = 40) -> None:
    """Wait until the NameServer names the leader as the master, for clients that ask for the topic's route."""
    named = ""
    with trio.move_on_after(seconds):
        while named != (wanted := group.broker_address(await observer.leader())):
            await trio.sleep(0.05)
            named = await trio.to_thread.run_sync(_master_of_topic, group)
        return
    raise AssertionError(f"the NameServer names {named or 'nobody'} as the master and not {wanted}")


def _master_of_topic(group: Group) -> str:
    fields = {"topic": TOPIC, "acceptStandardJsonOnly": "true"}
    answer = wire.ask(group.name_server, wire.GET_ROUTEINFO_BY_TOPIC, fields)
    if answer.code != 0:
        return ""
    (brokers,) = [data for data in wire.lenient_json(answer.body)["brokerDatas"] if data["brokerName"] == GROUP]
    return str(brokers["brokerAddrs"].get("0", ""))
