"""One seed, from start to verdict."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import structlog
import trio

from sim import checks
from sim.checks import Verdict
from sim.cluster import Broker, NameServer, Node, in_words, now_ms
from sim.determinism import run_seeded
from sim.disk import Disk
from sim.network import Host, Network
from sim.plan import WORK_SECONDS, Fault, Plan
from sim.trace import Trace
from sim.workload import (
    DELAYED,
    ORDERED,
    PLAIN,
    TOPICS,
    TRANSACTIONAL,
    Consuming,
    History,
    Sending,
    name_server_address,
)
from triomq.client.administer.admin import Admin
from triomq.client.core.errors import MQClientError
from triomq.remoting import network

SETTLE_SECONDS = 120.0
REGISTRATION_SECONDS = 30.0
ROUNDS_OF_TOPICS = 3
TOPICS_AT_ONCE = 3
IN_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Outcome:
    """What a run showed. `failures` is empty when everything held."""

    plan: Plan
    failures: list[str]
    digest: str
    acknowledged: int
    consumed: int
    lines: list[str]


def simulate(plan: Plan, echo: Callable[[str], object] | None = None) -> Outcome:
    """Run a plan. Each run of it is the same."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)  # the client's log
    where = IN_MEMORY if IN_MEMORY.is_dir() else None
    directory = Path(tempfile.mkdtemp(prefix="triomq-sim-", dir=where))
    try:
        return _Run(plan, directory, echo).outcome()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class _Run:
    def __init__(self, plan: Plan, directory: Path, echo: Callable[[str], object] | None) -> None:
        self.plan = plan
        self.history = History()
        self.trace = Trace(echo)
        self.verdict = Verdict()
        self.brokers: dict[str, Broker] = {}
        """The masters, by broker name."""
        self._directory = directory
        self._network = Network(self._random("network"))
        self._nodes: dict[str, Node] = {}
        self._sending: list[Sending] = []
        self._made: dict[str, set[str]] = {}
        """Topics that were made meanwhile -> the masters that existed then."""
        self._name_servers: list[Host] = []

    def _random(self, what: str) -> Random:
        return Random(f"{what} {self.plan.seed}")

    def outcome(self) -> Outcome:
        try:
            run_seeded(self._main, self.plan.seed)
        except Exception as error:
            self.verdict.failures.append(f"the run ended with {in_words(error)}")
        history = self.history
        consumed = sum(map(len, history.consumed.values()))
        return Outcome(
            self.plan,
            self.verdict.failures,
            self.trace.digest,
            len(history.acknowledged),
            consumed,
            list(self.trace.lines),
        )

    async def _main(self) -> None:
        network.simulated.set(self._network.host("nowhere"))  # nothing reaches the real network
        async with trio.open_nursery() as nursery:
            self._build(nursery)
            await self._start()
            await self._work()
            await self._heal()
            await checks.settle(self.history, self.brokers, SETTLE_SECONDS)
            checks.check(self.history, self.brokers, self._nodes.values(), self.verdict)
            await trio.sleep(REGISTRATION_SECONDS)
            await self._check_routes()
            checks.check_slaves(self.brokers, self._nodes.values(), self.verdict)
            for node in reversed(self._nodes.values()):
                await node.stop()
            for node in self._nodes.values():
                self.verdict.expect(node.failure is None, f"at the end, {node.name}: {node.failure}")
            nursery.cancel_scope.cancel()

    def _build(self, nursery: trio.Nursery) -> None:
        plan = self.plan
        for number in range(plan.name_servers):
            host = self._network.host(f"namesrv-{number}")
            self._name_servers.append(host)
            self._add(NameServer(host, self.trace, nursery))
        for letter in "ab"[: plan.masters]:
            name = f"broker-{letter}"
            self.brokers[name] = self._add_broker(name, name, nursery, {})
        if plan.has_slave:
            self._add_broker("broker-a-slave", "broker-a", nursery, {"brokerId": "1", "brokerRole": "SLAVE"})
        clients = (self.trace, nursery)
        for number in range(2):
            host = self._network.host(f"producer-{number}")
            sending = Sending(host, *clients, self._random(host.name), self.history, self._addresses)
            self._sending.append(sending)
            self._add(sending)
        for number, topic in enumerate((PLAIN, PLAIN, ORDERED, ORDERED, DELAYED, TRANSACTIONAL)):
            host = self._network.host(f"consumer-{number}")
            consuming = Consuming(host, *clients, self._random(host.name), self.history, self._addresses)
            consuming.topic = topic
            if self.plan.may_lose:
                consuming.share_failed = 0.0  # a lost copy in the retry topic is nothing that a check could know of
            self._add(consuming)

    def _add(self, node: Node) -> None:
        self._nodes[node.name] = node

    def _add_broker(self, name: str, broker_name: str, nursery: trio.Nursery, values: dict[str, str]) -> Broker:
        choose = self._random(name)
        disk = Disk(self._directory / name, choose)
        settings = {**self.plan.values, "brokerName": broker_name, "namesrvAddr": self._addresses, **values}
        broker = Broker(self._network.host(name), self.trace, nursery, disk, settings)
        self._add(broker)
        return broker

    @property
    def _addresses(self) -> str:
        return ";".join(map(name_server_address, self._name_servers))

    async def _start(self) -> None:
        clients = [node for node in self._nodes.values() if not isinstance(node, NameServer | Broker)]
        for node in self._nodes.values():
            if node not in clients:
                await node.start()
        with self._network.host("admin").entered():
            async with Admin(name_server=self._addresses, instance_name="admin", now_ms=now_ms) as admin:
                for topic, queues in TOPICS.items():
                    await admin.create_topic(topic, read_queues=queues, write_queues=queues)
        for node in clients:
            await node.start()

    async def _work(self) -> None:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for fault in self.plan.faults:
                nursery.start_soon(self._do, fault, began)
            nursery.start_soon(self._administer)
            await trio.sleep_until(began + WORK_SECONDS)
            for sending in self._sending:
                sending.is_finished = True

    async def _do(self, fault: Fault, began: float) -> None:
        await trio.sleep_until(began + fault.at)
        node = self._nodes[fault.targets[0]]
        self.trace.add(f"fault {fault}")
        if fault.kind == "partition":
            one, other = node.host, self._nodes[fault.targets[1]].host
            self._network.cut(one, other)
            await trio.sleep(fault.seconds)
            self._network.heal(one, other)
            return
        if fault.kind in ("slow", "full"):
            assert isinstance(node, Broker)
            attribute = f"is_{fault.kind}"
            setattr(node.disk, attribute, True)
            await trio.sleep(fault.seconds)
            setattr(node.disk, attribute, False)
            return
        ends = {"kill": node.kill, "power": node.lose_power, "stop": node.stop}
        if fault.kind == "write":
            assert isinstance(node, Broker)
            ends["write"] = partial(node.crash_within_a_write, fault.number * 7 % 20, power=fault.number % 2 == 0)
        await ends[fault.kind]()
        await trio.sleep(fault.seconds)
        await node.start()

    async def _heal(self) -> None:
        self.trace.add("the faults are over")
        self._network.heal_all()
        for node in self._nodes.values():
            await node.start()

    async def _administer(self) -> None:
        """Make topics, several at once, as administrators and scripts do."""
        choose = self._random("administration")
        with self._network.host("admin").entered():
            async with Admin(name_server=self._addresses, instance_name="admin-2", now_ms=now_ms) as admin:
                for round_number in range(ROUNDS_OF_TOPICS):
                    await trio.sleep(choose.random() * WORK_SECONDS / ROUNDS_OF_TOPICS)
                    async with trio.open_nursery() as nursery:
                        for number in range(TOPICS_AT_ONCE):
                            nursery.start_soon(self._make_topic, admin, f"Made-{round_number}-{number}")

    async def _make_topic(self, admin: Admin, topic: str) -> None:
        try:
            addresses = await admin.create_topic(topic, read_queues=2, write_queues=2)
        except MQClientError as error:
            self.trace.add(f"{topic} is not made: {type(error).__name__}")
        else:
            self.trace.add(f"{topic} is made")
            self._made[topic] = {self._network.hosts[address.partition(":")[0]].name for address in addresses}

    async def _check_routes(self) -> None:
        """Every NameServer knows every topic at every master that answered for it."""
        masters = set(self.brokers)
        for host in self._name_servers:
            with self._network.host("admin").entered():
                admin = Admin(name_server=name_server_address(host), instance_name=f"look-{host.ip}", now_ms=now_ms)
                async with admin:
                    for topic, names in {**dict.fromkeys(TOPICS, masters), **self._made}.items():
                        try:
                            route = await admin.route(topic)
                        except MQClientError as error:
                            self.verdict.failures.append(f"{host.name}: {error}")
                            continue
                        known = {data.broker_name for data in route.queue_datas}
                        self.verdict.expect(
                            names <= known <= masters, f"{host.name} has the route {sorted(known)} for {topic}"
                        )
