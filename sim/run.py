"""One seed, from start to verdict."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import structlog
import trio

from sim import checks, cluster_checks, delivery_checks, pop_checks
from sim.administration import ADMINISTRATORS, RESET_GROUP, Administration
from sim.checks import Verdict
from sim.cluster import Broker, NameServer, Node, in_words
from sim.determinism import VirtualClock, run_seeded
from sim.disk import Disk
from sim.faults import Faults
from sim.grpc_popping import GrpcPopping, GrpcSending
from sim.history import History, Permission
from sim.network import Host, Network
from sim.plan import BROADCAST, GRPC, GUEST, MEMBERS, PLAIN, POPPED, POPPED_IN_ORDER, TOPICS, WORK_SECONDS, Plan
from sim.popping import Popping
from sim.trace import Trace
from sim.workload import (
    APPLICATION,
    OPERATOR,
    STRANGER,
    ClientNode,
    Consuming,
    Guest,
    Sending,
    name_server_address,
)
from triomq.broker import controller as broker_controller
from triomq.client.administer.admin import Admin
from triomq.client.core.config import Credentials
from triomq.namesrv import controller as namesrv_controller
from triomq.remoting import memory, network

Kind = TypeVar("Kind", bound=ClientNode)
SETTLE_SECONDS = 150.0
IN_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class Outcome:
    """What a run showed. `failures` is empty when everything held. `counts` holds what happened how often."""

    plan: Plan
    failures: list[str]
    digest: str
    counts: Counter[str]
    lines: list[str] = field(repr=False)


def simulate(plan: Plan, echo: Callable[[str], object] | None = None) -> Outcome:
    """Run a plan. Each run of it is the same."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)  # the client's log
    where = IN_MEMORY if IN_MEMORY.is_dir() else None
    directory = Path(tempfile.mkdtemp(prefix="triomq-sim-", dir=where))
    run = _Run(plan, directory, echo)
    try:
        with run.watched_budgets():
            return run.outcome()
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
        self._nodes: dict[str, Node] = {}
        self._visitors: list[Consuming] = []
        self._name_servers: list[Host] = []
        self._budgets: dict[str, memory.MemoryBudget] = {}
        """By host: of the server that started there last."""
        self._happened: Counter[str] = Counter()

    def _random(self, what: str) -> Random:
        return Random(f"{what} {self.plan.seed}")

    @contextmanager
    def watched_budgets(self) -> Iterator[None]:
        """Know the memory budget of every server that is made inside."""
        original = memory.budget_of

        def made(*arguments: int) -> memory.MemoryBudget:
            budget = original(*arguments)
            host = network.simulated.get()
            self._budgets[host.name if isinstance(host, Host) else ""] = budget
            return budget

        makers: tuple[Any, ...] = broker_controller, namesrv_controller
        for module in makers:
            module.budget_of = made
        try:
            yield
        finally:
            for module in makers:
                module.budget_of = original

    def outcome(self) -> Outcome:
        try:
            run_seeded(self._main, self.plan.seed)
        except Exception as error:
            self.verdict.failures.append(f"the run ended with {in_words(error)}")
        history = self.history
        self._happened["acknowledged"] = len(history.acknowledged)
        self._happened["consumed"] = sum(map(len, history.consumed.values()))
        self._happened.update({f"stream {stream}": 1 for stream in self.plan.streams})
        return Outcome(self.plan, self.verdict.failures, self.trace.digest, self._happened, list(self.trace.lines))

    async def _main(self, clock: VirtualClock) -> None:
        self._network = Network(self._random("network"), clock)
        network.simulated.set(self._network.host("nowhere"))  # nothing reaches the real network
        tasks = trio.lowlevel.current_statistics().tasks_living
        async with trio.open_nursery() as nursery:
            self._build(nursery)
            await self._start()
            began = trio.current_time()
            await self._work(began)
            await self._heal()
            await checks.settle(self.history, self.brokers, SETTLE_SECONDS)
            await self._check(began)
            for node in [*self._visitors, *reversed(self._nodes.values())]:
                await node.stop()
            for node in [*self._nodes.values(), *self._visitors]:
                self.verdict.expect(node.failure is None, f"at the end, {node.name}: {node.failure}")
            self.verdict.none_of((task.name for task in nursery.child_tasks), "tasks that outlived their programs")
            nursery.cancel_scope.cancel()
        left = trio.lowlevel.current_statistics().tasks_living - tasks
        self.verdict.expect(left <= 0, f"{left} tasks outlived their programs")

    # The cluster.

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
        self._nursery = nursery
        for number in range(2):
            sending = self._client(Sending, f"producer-{number}")
            sending.streams = plan.streams
            self._add(sending)
        for stream in plan.streams:
            group = f"{stream}-readers"
            self.history.groups[stream] = [group] if MEMBERS[stream] else []
            for number in range(MEMBERS[stream]):
                self._add(self._member(f"{stream.lower()}-{number}", stream, group))
        if BROADCAST in plan.streams:
            self.history.groups[BROADCAST] = [f"{BROADCAST.lower()}-{number}" for number in range(MEMBERS[BROADCAST])]
        if PLAIN in plan.streams and any(step.kind == "reset" for step in plan.steps):
            self.history.groups[PLAIN].append(RESET_GROUP)
            self._add(self._consuming("reset-reader", PLAIN, RESET_GROUP))
        if GUEST in plan.streams:
            guest = self._client(Guest, "guest")
            guest.brokers = tuple(self.brokers)
            self._add(guest)
        if GRPC in plan.streams:
            grpc_sending = self._client(GrpcSending, "grpc-producer")
            grpc_sending.hosts = self._hosts
            self._add(grpc_sending)
        self._faults = Faults(self._network, self._nodes, self.history, self.trace)
        self._administration = Administration(
            [self._network.host(f"admin-{number}") for number in range(ADMINISTRATORS)],
            self._name_servers,
            self._nodes,
            self.history,
            self.trace,
            self._random("administration"),
            self._join,
        )
        self._administration.has_accounts = plan.has_accounts

    def _client(self, kind: type[Kind], name: str) -> Kind:
        node = kind(
            self._network.host(name), self.trace, self._nursery, self._random(name), self.history, self._addresses
        )
        node.has_account = self.plan.has_accounts
        return node

    def _member(self, name: str, topic: str, group: str) -> ClientNode:
        if topic not in (POPPED, POPPED_IN_ORDER, GRPC):
            return self._consuming(name, topic, group)
        popping: Popping
        if topic == GRPC and name == f"{GRPC.lower()}-0":
            popping = speaking = self._client(GrpcPopping, name)
            speaking.hosts = self._hosts
        else:
            popping = self._client(Popping, name)
        popping.topic, popping.group, popping.brokers = topic, group, tuple(self.brokers)
        return popping

    @property
    def _hosts(self) -> dict[str, Host]:
        return {name: broker.host for name, broker in self.brokers.items()}

    def _consuming(self, name: str, topic: str, group: str) -> Consuming:
        consuming = self._client(Consuming, name)
        consuming.topic, consuming.group, consuming.directory = topic, group, self._directory
        if self.plan.may_lose:
            consuming.share_failed = 0.0  # a lost copy in the retry topic is nothing that a check could know of
        return consuming

    async def _join(self, topic: str) -> Node:
        visitor = self._consuming(f"visitor-{len(self._visitors)}", topic, f"{topic}-readers")
        self._visitors.append(visitor)
        await visitor.start()
        return visitor

    def _add(self, node: Node) -> None:
        self._nodes[node.name] = node

    def _add_broker(self, name: str, broker_name: str, nursery: trio.Nursery, values: dict[str, str]) -> Broker:
        disk = Disk(self._directory / name, self._random(name))
        settings = {**self.plan.values, "brokerName": broker_name, "namesrvAddr": self._addresses, **values}
        broker = Broker(self._network.host(name), self.trace, nursery, disk, settings)
        if self.plan.has_accounts:
            _write_accounts(disk.directory / "home" / "conf")
            self.history.permissions.append(Permission(0.0, name, is_given=True))
        self._add(broker)
        return broker

    @property
    def _addresses(self) -> str:
        return ";".join(map(name_server_address, self._name_servers))

    # What happens.

    async def _start(self) -> None:
        clients = [node for node in self._nodes.values() if not isinstance(node, NameServer | Broker)]
        for node in self._nodes.values():
            if node not in clients:
                await node.start()
        async with self._administration.admin() as admin, trio.open_nursery() as nursery:
            for stream in self.plan.streams:
                queues = TOPICS[stream]
                nursery.start_soon(_make, admin, stream, queues)
        async with trio.open_nursery() as nursery:
            for node in clients:
                nursery.start_soon(node.start)

    async def _work(self, began: float) -> None:
        async with trio.open_nursery() as nursery:
            for fault in self.plan.faults:
                nursery.start_soon(self._faults.do, fault, began)
            for step in self.plan.steps:
                nursery.start_soon(self._administration.do, step, began)
            await trio.sleep_until(began + WORK_SECONDS)
            for node in self._nodes.values():
                if isinstance(node, ClientNode):
                    node.is_finished = True

    async def _heal(self) -> None:
        self.trace.add("the faults are over")
        self._network.heal_all()
        for node in self._nodes.values():
            await node.start()

    async def _check(self, began: float) -> None:
        history, brokers, verdict = self.history, self.brokers, self.verdict
        checks.check_messages(history, brokers, self._nodes.values(), verdict)
        delivery_checks.check_deliveries(history, brokers, began, verdict)
        pop_checks.check_receipts(history, brokers, began, verdict)
        for node in [*self._visitors, *self._nodes.values()]:
            if isinstance(node, ClientNode):
                await node.stop()
        await cluster_checks.check_routes(history, brokers, self._name_servers, self._administration, verdict)
        await cluster_checks.check_slaves(brokers, self._nodes.values(), verdict)
        servers = {node.name for node in self._nodes.values() if isinstance(node, NameServer | Broker)}
        verdict.expect(servers <= self._budgets.keys(), "the memory of some server is not looked at")
        await cluster_checks.check_left_behind(brokers, self._budgets, verdict)
        self._happened.update({f"fault {kind}": count for kind, count in self._faults.counts.items()})
        self._happened.update({f"step {kind}": count for kind, count in self._administration.counts.items()})


async def _make(admin: Admin, topic: str, queues: int) -> None:
    await admin.create_topic(topic, read_queues=queues, write_queues=queues)


def _write_accounts(directory: Path) -> None:
    """Write the accounts of a cluster that has them, and the one with which a slave asks its master."""
    directory.mkdir(parents=True)

    def account(one: Credentials, *more: str) -> list[str]:
        return [
            f"  - accessKey: {one.access_key}",
            f"    secretKey: {one.secret_key}",
            *(f"    {line}" for line in more),
        ]

    everything = ("defaultTopicPerm: PUB|SUB", "defaultGroupPerm: PUB|SUB")
    lines = ["accounts:", *account(OPERATOR, "admin: true"), *account(APPLICATION, *everything)]
    denied = ("defaultTopicPerm: DENY", "defaultGroupPerm: DENY", "topicPerms:", f"  - {GUEST}=PUB")
    lines += account(STRANGER, *denied)
    (directory / "plain_acl.yml").write_text("\n".join(lines) + "\n")
    (directory / "tools.yml").write_text(f"accessKey: {OPERATOR.access_key}\nsecretKey: {OPERATOR.secret_key}\n")
