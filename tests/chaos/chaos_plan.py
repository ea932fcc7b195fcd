"""Which faults happen when: drawn from a seed before the run, so that a seed means the same faults each time."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

KINDS = ("kill", "stop", "partition", "disk", "clock")
"""SIGKILL and a new start; SIGSTOP and SIGCONT; packets that go nowhere; a full disk; a step of the wall clock."""
WAYS = ("both", "in", "out")
"""Which packets a partition drops: all, those to the member, those from it. Or the name of one other member."""
SECONDS = {"kill": (0.0, 6.0), "stop": (0.5, 15.0), "partition": (1.0, 15.0), "disk": (2.0, 15.0), "clock": (2.0, 20.0)}
GAP_SECONDS = (0.5, 5.0)
MAX_AT_ONCE = 2
REST_SECONDS = 1.0
MAX_STEP_SECONDS = 3600


@dataclass(frozen=True)
class Fault:
    """A fault of one member, from `at` for some `seconds`. `way` is of a partition, `step_seconds` of a clock."""

    at: float
    seconds: float
    kind: str
    member: str
    way: str = ""
    step_seconds: int = 0

    @property
    def end(self) -> float:
        return self.at + self.seconds

    def __str__(self) -> str:
        detail = f" ({self.way})" if self.way else f" ({self.step_seconds:+} s)" if self.step_seconds else ""
        return f"{self.kind} {self.member}{detail} for {self.seconds:.1f} s"


def draw(
    seed: int, brokers: Sequence[str], name_servers: Sequence[str], seconds: float, kinds: Sequence[str] = KINDS
) -> list[Fault]:
    """Return the faults of a run, in the order of their beginnings. Each kind comes once before any comes again by
    chance. A member has one fault at a time; at most two members have one.
    """
    choose = random.Random(seed)
    first = list(kinds)
    choose.shuffle(first)
    faults: list[Fault] = []
    at = 1.0
    while True:
        at += choose.uniform(*GAP_SECONDS)
        kind = first[0] if first else choose.choice(kinds)
        fault = _fault(choose, kind, at, brokers, name_servers)
        if fault.end > seconds:
            return faults
        busy = {each.member for each in faults if each.end + REST_SECONDS > at}
        if fault.member not in busy and len(busy) < MAX_AT_ONCE:
            faults.append(fault)
            del first[:1]


def _fault(choose: random.Random, kind: str, at: float, brokers: Sequence[str], name_servers: Sequence[str]) -> Fault:
    members = [*brokers, *(() if kind == "disk" else name_servers)]
    member = choose.choice(members)
    seconds = choose.uniform(*SECONDS[kind])
    way = choose.choice([*WAYS, *(other for other in members if other != member)]) if kind == "partition" else ""
    step = choose.choice((-1, 1)) * choose.randint(1, MAX_STEP_SECONDS) if kind == "clock" else 0
    return Fault(at, seconds, kind, member, way, step)
