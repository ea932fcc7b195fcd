"""What one seed does: the cluster, its settings, and the faults with their moments."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

WORK_SECONDS = 45.0
"""How long producers send and faults happen."""
FIRST_FAULT_SECONDS = 4.0


@dataclass(frozen=True)
class Fault:
    """`kind` of Plan.faults at `at` seconds of the work; `targets` are names of nodes; it lasts for `seconds`."""

    at: float
    kind: str
    targets: tuple[str, ...]
    seconds: float
    number: int = 0

    def __str__(self) -> str:
        return f"{self.at:6.2f} s  {self.kind} {' - '.join(self.targets)} for {self.seconds:.1f} s"


KINDS = {"kill": 4, "power": 4, "stop": 2, "write": 4, "partition": 3, "slow": 2, "full": 1}
"""Kind of fault -> how often it is chosen: process killed; power failure; stopped in order; process or power ends in
the middle of a write; two hosts that do not reach each other; a slow disk; a full disk."""


@dataclass(frozen=True)
class Plan:
    """The choices of one seed. A run of the same plan is the same."""

    seed: int
    masters: int
    has_slave: bool
    name_servers: int
    settings: tuple[tuple[str, str], ...]
    faults: tuple[Fault, ...]

    @property
    def may_lose(self) -> bool:
        """Return whether a fault may take acknowledged messages."""
        is_sync = self.values["flushDiskType"] == "SYNC_FLUSH"
        return not is_sync and any(fault.kind in ("power", "write", "kill") for fault in self.faults)

    @property
    def values(self) -> dict[str, str]:
        return dict(self.settings)


def plan_of(seed: int) -> Plan:
    choose = Random(f"plan {seed}")
    masters = choose.choice((1, 1, 2))
    is_sync = choose.random() < 0.6
    has_slave = is_sync and choose.random() < 0.3
    name_servers = choose.choice((1, 2))
    settings = {
        "flushDiskType": "SYNC_FLUSH" if is_sync else "ASYNC_FLUSH",
        "transactionTimeOut": "3000",
        "transactionCheckInterval": "4000",
        "transactionCheckMax": "100",
        "waitTimeMillsInSendQueue": "30000",
        "transientStorePoolEnable": "true" if not is_sync and choose.random() < 0.3 else "false",
    }
    if has_slave:
        settings["brokerRole"] = choose.choice(("ASYNC_MASTER", "SYNC_MASTER"))
    brokers = [f"broker-{letter}" for letter in "ab"[:masters]] + (["broker-a-slave"] if has_slave else [])
    servers = [f"namesrv-{number}" for number in range(name_servers)]
    clients = ["producer-0", "producer-1", *(f"consumer-{number}" for number in range(6))]
    nodes = brokers * 4 + servers + clients
    faults = []
    for number in range(choose.randint(1, 5)):
        kind = choose.choices(list(KINDS), list(KINDS.values()))[0]
        target = choose.choice(brokers if kind in ("write", "slow", "full") else nodes)
        targets: tuple[str, ...] = (target,)
        if kind == "partition":
            targets = (target, choose.choice([name for name in dict.fromkeys(nodes) if name != target]))
        at = FIRST_FAULT_SECONDS + choose.random() * (WORK_SECONDS - FIRST_FAULT_SECONDS)
        faults.append(Fault(at, kind, targets, choose.random() ** 2 * 20, number))
    return Plan(
        seed, masters, has_slave, name_servers, tuple(settings.items()), tuple(sorted(faults, key=lambda one: one.at))
    )
