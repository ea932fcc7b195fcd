"""What happens beside the traffic: each kind of step of a plan. Several administrators work at the same moment.

What a change that was answered promises is noted in `History`; one that was not answered leaves its topic or group in
doubt.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from math import inf
from random import Random

import trio

from sim.cluster import BROKER_PORT, Broker, Node, now_ms
from sim.history import Acknowledged, History, Permission, Reset
from sim.network import Host
from sim.plan import GUEST, ORDERED, PLAIN, Step
from sim.trace import Trace
from sim.workload import APPLICATION, OPERATOR, STRANGER, name_server_address
from triomq import Message
from triomq.client.administer.admin import Admin
from triomq.client.core.config import ClientOptions
from triomq.client.core.errors import MQClientError
from triomq.client.core.results import SendStatus
from triomq.client.produce.producer import Producer
from triomq.protocol import permission
from triomq.protocol.bodies.acl import PlainAccessConfig
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig

ADMINISTRATORS = 3
TOPICS_EACH = 2
AGAIN = "Again"
GARBAGE_SECONDS = 3.0
RESET_GROUP = "Reset-readers"


class Administration:
    """Does the steps of a plan. `join(topic)` starts another member of the group of a topic and returns it."""

    def __init__(
        self,
        hosts: list[Host],
        name_servers: list[Host],
        nodes: Mapping[str, Node],
        history: History,
        trace: Trace,
        choose: Random,
        join: Callable[[str], Awaitable[Node]],
    ) -> None:
        self._hosts = hosts
        self._name_servers = name_servers
        self._nodes = nodes
        self._history = history
        self._trace = trace
        self._choose = choose
        self._join = join
        self.has_accounts = False
        self.counts: Counter[str] = Counter()
        self._lives = 0

    @property
    def _masters(self) -> dict[str, Broker]:
        return {
            node.name: node
            for node in self._nodes.values()
            if isinstance(node, Broker) and node.name == node.broker_name
        }

    @asynccontextmanager
    async def admin(self, number: int = 0, name_server: Host | None = None) -> AsyncIterator[Admin]:
        """Open a client of an administrator."""
        with self._hosts[number].entered():
            async with Admin(timeout_seconds=4.0, **self._options(name_server)) as admin:
                yield admin

    def _options(self, name_server: Host | None = None) -> ClientOptions:
        self._lives += 1
        servers = [name_server] if name_server is not None else self._name_servers
        options: ClientOptions = {
            "name_server": ";".join(map(name_server_address, servers)),
            "instance_name": f"admin-{self._lives}",
            "client_ip": "10.0.1.1",
            "now_ms": now_ms,
        }
        if self.has_accounts:
            options["credentials"] = OPERATOR
        return options

    async def do(self, step: Step, began: float) -> None:
        """Wait for the moment of a step, and do it."""
        await trio.sleep_until(began + step.at)
        self._trace.add(f"step {step}")
        acts: dict[str, Callable[[Step], Awaitable[None]]] = {
            "topics": self._topics_at_once,
            "again": self._again,
            "groups": self._groups_at_once,
            "reset": self._reset,
            "garbage": self._garbage,
            "visit": self._visit,
            "leave": self._leave,
            "revoke": self._revoke,
        }
        try:
            await acts[step.kind](step)
        except MQClientError as error:
            self._trace.add(f"step {step.kind} ends with {type(error).__name__}")
        self.counts[step.kind] += 1

    # Topics and groups.

    async def _topics_at_once(self, step: Step) -> None:
        """Several administrators make topics; a moment later they change and delete them, while others are made, and
        some come into being by use."""
        names = [f"Made-{step.number}-{number}" for number in range(ADMINISTRATORS * TOPICS_EACH)]
        async with trio.open_nursery() as nursery:
            for number in range(ADMINISTRATORS):
                nursery.start_soon(self._one_administrator, number, names)
            nursery.start_soon(self._use, f"Used-{step.number}")

    async def _one_administrator(self, number: int, names: list[str]) -> None:
        async with self.admin(number) as admin:
            mine = names[number::ADMINISTRATORS]
            async with trio.open_nursery() as nursery:
                for name in mine:
                    nursery.start_soon(self._change, admin, name, 2, permission.READ_WRITE)
            first = mine[0]
            async with trio.open_nursery() as nursery:
                if number == 0:
                    nursery.start_soon(self._delete, admin, first)
                else:
                    nursery.start_soon(self._change, admin, first, 3, permission.READ)
                nursery.start_soon(self._change, admin, f"{first}-more", 1, permission.READ_WRITE)

    async def _change(self, admin: Admin, topic: str, queues: int, perm: int) -> None:
        began = trio.current_time()
        try:
            await admin.create_topic(topic, read_queues=queues, write_queues=queues, perm=perm)
        except MQClientError as error:
            self._history.doubtful.add(topic)
            self._trace.add(f"{topic} is not made: {type(error).__name__}")
        else:
            self._told(topic, (queues, perm), began)
            self._trace.add(f"{topic} has {queues} queues and permission {perm}")

    def _told(self, topic: str, state: tuple[int, int] | None, began: float) -> None:
        """Note a change that was answered. Brokers that the NameServers do not know at the time miss it."""
        self._history.topics[topic] = state
        if self._history.is_disturbed(began, trio.current_time()):
            self._history.doubtful.add(topic)

    async def _delete(self, admin: Admin, topic: str) -> None:
        began = trio.current_time()
        try:
            await admin.delete_topic(topic)
        except MQClientError as error:
            self._history.doubtful.add(topic)
            self._trace.add(f"{topic} is not deleted: {type(error).__name__}")
        else:
            self._told(topic, None, began)
            self._trace.add(f"{topic} is deleted")

    async def _use(self, topic: str) -> None:
        with self._hosts[0].entered():
            async with Producer(f"users-of-{topic}", **self._application()) as producer:
                self._history.doubtful.add(topic)  # which broker makes it is up to the producer
                await self._send(producer, topic, f"{topic}.0")

    def _application(self) -> ClientOptions:
        options = self._options()
        if self.has_accounts:
            options["credentials"] = APPLICATION
        return options

    async def _send(self, producer: Producer, topic: str, key: str) -> None:
        body = f"{key} of {topic}".encode()
        self._history.sent[key] = (topic, body, trio.current_time())
        with suppress(MQClientError):
            result = await producer.send(Message(topic, body, keys=key))
            if result.status is SendStatus.SEND_OK:
                place = Acknowledged(
                    topic, result.queue.broker_name, result.queue.queue_id, result.queue_offset, trio.current_time()
                )
                self._history.acknowledged[key] = place

    async def _again(self, step: Step) -> None:
        """Make a topic, use it, delete it, make it again, use it: what was in it before stays deleted."""
        topic = f"{AGAIN}-{step.number}"
        async with self.admin() as admin:
            await self._change(admin, topic, 1, permission.READ_WRITE)
            await self._fill(topic, "old", 4)
            await self._delete(admin, topic)
            old = [key for key, (of_topic, _, _) in self._history.sent.items() if of_topic == topic]
            for key in old:
                self._history.acknowledged.pop(key, None)
            if topic in self._history.doubtful:
                return
            self._history.deleted.update(dict.fromkeys(old, trio.current_time()))
            await self._change(admin, topic, 1, permission.READ_WRITE)
            await self._fill(topic, "new", 3)

    async def _fill(self, topic: str, what: str, count: int) -> None:
        with self._hosts[0].entered():
            async with Producer(f"{what}-of-{topic}", **self._application()) as producer:
                for number in range(count):
                    await self._send(producer, topic, f"{topic}.{what}.{number}")

    async def _groups_at_once(self, step: Step) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(ADMINISTRATORS):
                nursery.start_soon(self._groups, number, f"made-{step.number}-{number}")

    async def _groups(self, number: int, name: str) -> None:
        history, began = self._history, trio.current_time()
        async with self.admin(number) as admin:
            try:
                await admin.create_group(SubscriptionGroupConfig(group_name=name, retry_max_times=3))
                await admin.create_group(SubscriptionGroupConfig(group_name=name, retry_max_times=4 + number))
                if number == 0:
                    await admin.delete_group(name)
            except MQClientError:
                history.doubtful.add(name)
            else:
                history.made_groups[name] = 4 + number if number else None
                if history.is_disturbed(began, trio.current_time()):
                    history.doubtful.add(name)

    # Offsets and members.

    async def _reset(self, step: Step) -> None:
        """Move a group back to a moment; its member is online."""
        moment = now_ms() - 1000 * self._choose.randint(2, 8)
        began = trio.current_time()
        async with self.admin() as admin:
            moved = await admin.reset_offset(RESET_GROUP, PLAIN, moment)
        offsets = {(queue.broker_name, queue.topic, queue.queue_id): at for queue, at in moved.items()}
        self._history.resets.append(Reset(RESET_GROUP, offsets, began, trio.current_time()))
        self._trace.add(f"{RESET_GROUP} is moved to {sorted(offsets.items())}")

    def _shared_topic(self) -> str:
        present = [topic for topic in (PLAIN, ORDERED) if f"{topic.lower()}-1" in self._nodes]
        return self._choose.choice(present)

    async def _visit(self, step: Step) -> None:
        """Another member joins for a while."""
        member = await self._join(self._shared_topic())
        await trio.sleep(step.seconds)
        await member.stop()

    async def _leave(self, step: Step) -> None:
        """A member leaves for a while."""
        member = self._nodes[f"{self._shared_topic().lower()}-{self._choose.randint(0, 1)}"]
        await member.stop()
        await trio.sleep(step.seconds)
        await member.start()

    # Strangers.

    async def _garbage(self, step: Step) -> None:
        """Connect to every server and send bytes that are not a frame, or half of one."""
        choose = self._choose
        shapes = [
            choose.randbytes(200),
            (1 << 30).to_bytes(4, "big") + b"\0\0\0\x10" + b"x" * 100,
            (300_000).to_bytes(4, "big") + (100).to_bytes(4, "big") + b"{" * 5000,
            b"\0\0\0\x08\0\0\0\x04{{{{",
            b"\xff" * 64,
        ]
        places = [(host, port) for host in self._name_servers for port in host.listeners]
        places += [(broker.host, port) for broker in self._masters.values() for port in broker.host.listeners]
        streams = []
        for host, port in places:
            with suppress(OSError, trio.BrokenResourceError):
                stream = await self._hosts[1].connect(host.ip, port)
                streams.append(stream)
                await stream.send_all(choose.choice(shapes))
        await trio.sleep(GARBAGE_SECONDS)
        for stream in streams:
            stream.close()

    async def _revoke(self, step: Step) -> None:
        """Take the guest's permission, and give it back."""
        await self._permit("DENY", is_given=False)
        await trio.sleep(step.seconds / 2)
        await self._permit("PUB", is_given=True)

    async def _permit(self, perm: str, *, is_given: bool) -> None:
        account = PlainAccessConfig(
            access_key=STRANGER.access_key,
            secret_key=STRANGER.secret_key,
            default_topic_perm="DENY",
            default_group_perm="DENY",
            topic_perms=[f"{GUEST}={perm}"],
        )
        number = len(self._history.changing)
        began = trio.current_time()
        self._history.changing.append((began, inf, is_given))
        for broker in self._masters.values():
            try:
                async with self.admin() as admin:
                    await admin.put_acl_account(f"{broker.host.ip}:{BROKER_PORT}", account)
            except MQClientError:
                self._history.doubtful.add(f"guest at {broker.name}")
                continue
            self._history.permissions.append(Permission(trio.current_time(), broker.name, is_given))
            self._trace.add(f"the guest's permission at {broker.name}: {perm}")
        self._history.changing[number] = (began, trio.current_time(), is_given)
