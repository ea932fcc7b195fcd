"""What one seed does: the cluster, its settings, what clients do, and the faults with their moments."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

WORK_SECONDS = 25.0
"""How long producers send and faults happen."""
FIRST_FAULT_SECONDS = 4.0
GRPC_PORT = 8081

PLAIN, ORDERED, DELAYED, TRANSACTIONAL = "Plain", "Ordered", "Delayed", "Transactional"
BROADCAST, FILTERED, GUEST = "Broadcast", "Filtered", "Guest"
POPPED, POPPED_IN_ORDER, GRPC = "Popped", "PoppedInOrder", "Grpc"
TOPICS = {
    PLAIN: 4,
    ORDERED: 3,
    DELAYED: 2,
    TRANSACTIONAL: 2,
    BROADCAST: 2,
    FILTERED: 2,
    GUEST: 2,
    POPPED: 3,
    POPPED_IN_ORDER: 2,
    GRPC: 2,
}
"""Stream -> queues of its topic. A stream is a topic with its producers and consumers; see workload.py."""
MEMBERS = {
    PLAIN: 2,
    ORDERED: 2,
    DELAYED: 1,
    TRANSACTIONAL: 1,
    BROADCAST: 2,
    FILTERED: 1,
    GUEST: 0,
    POPPED: 2,
    POPPED_IN_ORDER: 2,
    GRPC: 2,
}
"""Stream -> its consumers; of GRPC the first one speaks gRPC."""
DRAWN = [stream for stream in TOPICS if stream != GRPC]
"""The streams that a seed chooses from. GRPC is chosen by name."""

STEPS = {
    "topics": 3,
    "again": 2,
    "groups": 1,
    "reset": 2,
    "garbage": 1,
    "visit": 2,
    "leave": 2,
    "revoke": 3,
}
"""Kind of step -> how often it is chosen: several administrators make, change and delete topics at once; a topic is
deleted and made again; groups are made, changed and deleted; a group's offsets are reset; a stranger sends garbage;
a member joins a group for a while; a member leaves it for a while; the guest's permissions are taken and given back."""

KINDS = {
    "kill": 5,
    "power": 5,
    "stop": 2,
    "write": 5,
    "rebuild": 1,
    "error": 2,
    "restore": 2,
    "partition": 3,
    "oneway": 2,
    "reset": 2,
    "lag": 1,
    "slow": 2,
    "full": 1,
    "failing": 2,
    "unlinked": 1,
}
"""Kind of fault -> how often it is chosen. Processes: killed; power failure; stopped in order; process or power ends in
the middle of a write; killed, and the consume queues are lost; an unexpected error in the middle of a commit; the disk
is that of a while ago. Network, between two hosts: nothing arrives; nothing arrives in one direction; connections are
cut; everything takes long. Disks: slow; full; failing; the newest log file loses its name."""
OF_DISKS = ("write", "rebuild", "error", "restore", "slow", "full", "failing", "unlinked")
OF_NETWORK = ("partition", "oneway", "reset")


@dataclass(frozen=True)
class Fault:
    """`kind` of KINDS at `at` seconds of the work; `targets` are names of nodes; it lasts for `seconds`."""

    at: float
    kind: str
    targets: tuple[str, ...]
    seconds: float
    number: int = 0

    def __str__(self) -> str:
        return f"{self.at:6.2f} s  {self.kind} {' - '.join(self.targets)} for {self.seconds:.1f} s"


@dataclass(frozen=True)
class Step:
    """`kind` of STEPS at `at` seconds of the work, for `seconds`."""

    at: float
    kind: str
    seconds: float
    number: int = 0

    def __str__(self) -> str:
        return f"{self.at:6.2f} s  {self.kind} for {self.seconds:.1f} s"


@dataclass(frozen=True)
class Shape:
    """What the plans of some seeds have in common. Empty parts are left to the seed."""

    streams: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    masters: int = 0
    has_slave: bool = False
    only_brokers: bool = False
    """Faults meet brokers."""


ANY = Shape()


@dataclass(frozen=True)
class Plan:
    """The choices of one seed. A run of the same plan is the same."""

    seed: int
    masters: int
    has_slave: bool
    name_servers: int
    settings: tuple[tuple[str, str], ...]
    streams: tuple[str, ...]
    steps: tuple[Step, ...]
    faults: tuple[Fault, ...]

    @property
    def may_lose(self) -> bool:
        """Return whether a fault may take acknowledged messages, or the copies of those that listeners failed with: a
        broker does not sync such a copy before it responds, as with RocketMQ."""
        is_sync = self.values["flushDiskType"] == "SYNC_FLUSH"
        kinds = {fault.kind for fault in self.faults}
        lossy = {"power", "write", "failing", "unlinked", "restore"}
        return not kinds.isdisjoint(lossy if is_sync else lossy | {"kill", "error", "rebuild"})

    @property
    def values(self) -> dict[str, str]:
        return dict(self.settings)

    @property
    def brokers(self) -> list[str]:
        """Return the names of masters and slave."""
        return brokers_of(self.masters, self.has_slave)

    @property
    def name_server_names(self) -> list[str]:
        return [f"namesrv-{number}" for number in range(self.name_servers)]

    @property
    def has_accounts(self) -> bool:
        return GUEST in self.streams


def plan_of(seed: int, shape: Shape = ANY) -> Plan:
    choose = Random(f"plan {seed}")
    masters = shape.masters or choose.choice((1, 1, 2))
    is_sync = choose.random() < 0.6
    settings = {
        "flushDiskType": "SYNC_FLUSH" if is_sync else "ASYNC_FLUSH",
        "flushCommitLogThoroughInterval": "1000",  # else a trickle of messages waits 10 s for its sync
        "transactionTimeOut": "3000",
        "transactionCheckInterval": "4000",
        "transactionCheckMax": "100",
        "waitTimeMillsInSendQueue": "30000",
        "transientStorePoolEnable": "true" if not is_sync and choose.random() < 0.3 else "false",
        **dict(shape.settings),
    }
    is_sync = settings["flushDiskType"] == "SYNC_FLUSH"
    has_slave = shape.has_slave or (is_sync and choose.random() < 0.3)
    name_servers = choose.choice((1, 2))
    if has_slave:
        settings.setdefault("brokerRole", choose.choice(("ASYNC_MASTER", "SYNC_MASTER")))
    streams = shape.streams or tuple(sorted(choose.sample(DRAWN, choose.randint(2, 3))))
    if GUEST in streams:
        settings["aclEnable"] = "true"
    if GRPC in streams:
        settings["grpcServerPort"] = str(GRPC_PORT)
    if FILTERED in streams and choose.random() < 0.6:
        settings["enableConsumeQueueExt"] = "true"
    steps = _steps(choose, shape, streams)
    brokers = brokers_of(masters, has_slave)
    others = [f"namesrv-{number}" for number in range(name_servers)] + clients_of(streams)
    faults = _faults(choose, shape, brokers, others)
    return Plan(seed, masters, has_slave, name_servers, tuple(settings.items()), streams, steps, faults)


def brokers_of(masters: int, has_slave: bool) -> list[str]:
    return [f"broker-{letter}" for letter in "ab"[:masters]] + (["broker-a-slave"] if has_slave else [])


def clients_of(streams: tuple[str, ...]) -> list[str]:
    """Return the names of the clients that run all the time."""
    consumers = [f"{stream.lower()}-{number}" for stream in streams for number in range(MEMBERS[stream])]
    further = [name for name, stream in (("guest", GUEST), ("grpc-producer", GRPC)) if stream in streams]
    return ["producer-0", "producer-1", *consumers, *further]


def _steps(choose: Random, shape: Shape, streams: tuple[str, ...]) -> tuple[Step, ...]:
    possible = {kind: often for kind, often in STEPS.items() if kind != "revoke" or GUEST in streams}
    if PLAIN not in streams:
        del possible["reset"]
        if ORDERED not in streams:
            del possible["visit"], possible["leave"]
    kinds = shape.steps or choose.choices(list(possible), list(possible.values()), k=choose.randint(1, 3))
    steps = [
        Step(1.0 + choose.random() * (WORK_SECONDS - 8), kind, 1.0 + choose.random() * 5, number)
        for number, kind in enumerate(kinds)
    ]
    return tuple(sorted(steps, key=lambda one: one.at))


def _faults(choose: Random, shape: Shape, brokers: list[str], others: list[str]) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    kinds: tuple[str, ...] | list[str] = shape.faults
    if not kinds:
        kinds = choose.choices(list(KINDS), list(KINDS.values()), k=choose.randint(1, 4))
    for number, kind in enumerate(kinds):
        of_brokers = kind in OF_DISKS or shape.only_brokers
        target = choose.choice(brokers if of_brokers else brokers * 4 + others)
        if kind == "restore":
            if "broker-a-slave" not in brokers or "restore" in (fault.kind for fault in faults):
                kind = "kill"
            else:
                target = "broker-a"
        targets: tuple[str, ...] = (target,)
        if kind in OF_NETWORK:
            targets = (target, choose.choice([name for name in brokers + others if name != target]))
        at = FIRST_FAULT_SECONDS + choose.random() * (WORK_SECONDS - FIRST_FAULT_SECONDS)
        faults.append(Fault(at, kind, targets, choose.random() ** 2 * 12, number))
    return tuple(sorted(faults, key=lambda one: one.at))
