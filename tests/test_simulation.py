"""Whole clusters with faults hold their promises; bugs that are put in on purpose are found."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from sim.delivery_checks import _repeated
from sim.history import Consumed, History
from sim.plan import DRAWN, KINDS, PLAIN, STEPS, Shape, plan_of
from sim.planted import BUGS

ROOT = Path(__file__).parents[1]
SEEDS = "285..300"  # in their plans every kind of fault and step occurs
TRIES = 20
SECONDS = 1500.0
NEEDS_NO_FAULT = "a_commit_without_its_message"


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: the order of sets depends on how Python was started."""
    command = [str(ROOT / "bin" / "dev" / "simulate"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


@pytest.mark.slow
def test_clusters_keep_their_promises_through_every_kind_of_fault_and_work() -> None:
    ended = simulate(SEEDS, "--processes", "2")
    assert ended.returncode == 0, ended.stdout
    assert "16 seeds, 0 seeds failed" in ended.stdout
    counts = {name: int(count) for name, count in re.findall(r"(\w+) (\d+)(?:,|$)", ended.stdout, re.MULTILINE)}
    assert set(KINDS) | set(STEPS) | set(DRAWN) <= counts.keys()
    assert min(counts[name] for name in (*KINDS, *STEPS, *DRAWN)) > 0


@pytest.mark.slow
def test_grpc_clients_keep_their_promises_in_a_group_with_clients_of_remoting() -> None:
    ended = simulate("0..7", "--streams", "Grpc", "--processes", "2")
    assert ended.returncode == 0, ended.stdout
    assert "8 seeds, 0 seeds failed" in ended.stdout


@pytest.mark.parametrize(("until", "is_wrong"), [(0.0, False), (5.0, True)])
def test_a_message_comes_again_only_if_an_earlier_one_was_not_done(until: float, is_wrong: bool) -> None:
    """A member that leaves has stored the offset of its lowest message that is not done, also if another member had
    that one before."""

    def got(member: str, offset: int, at: float, until: float) -> Consumed:
        return Consumed(f"key-{offset}", f"{PLAIN}-readers", member, PLAIN, "broker-a", 0, offset, at, until)

    history = History(left=[("visitor", 7.0)])
    history.deliveries += [got("stays", 0, 1.0, 1.1), got("visitor", 0, 4.0, until), got("visitor", 1, 5.0, 5.1)]
    history.deliveries += [got("stays", 0, 7.1, 7.2), got("stays", 1, 7.1, 7.2)]
    assert ("key-1 at 7.10 s" in _repeated(history)) is is_wrong


@pytest.fixture(scope="module")
def verdicts() -> dict[str, str]:
    """Bug -> what the search for it said. One process looks for all of them."""
    ended = simulate(str(TRIES), "--planted", "--processes", "2")
    return dict(line.split(": ", 1) for line in ended.stdout.splitlines() if ": " in line)


@pytest.mark.slow
@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_found(name: str, verdicts: dict[str, str]) -> None:
    """Some bugs show only in a part of the seeds, and which these are depends on every detail of the program."""
    assert verdicts[name].startswith("found after "), verdicts[name]


def test_a_seed_does_the_same_each_time() -> None:
    first, second = (simulate("7..7", "--trace").stdout.splitlines()[:-1] for _ in range(2))
    assert len(first) > 300
    assert first == second


def test_a_failing_seed_names_the_parts_of_its_plan_that_it_needs_and_replays() -> None:
    """Transactions lose their messages without any fault and any other work."""
    assert plan_of(0, BUGS[NEEDS_NO_FAULT].shape).faults
    first, second = (simulate("1", "--plant", NEEDS_NO_FAULT).stdout.splitlines() for _ in range(2))
    assert [line for line in first if line.startswith("  with ")] == [
        line for line in first if re.match(r"  with (0 of its \d+ (faults|steps)|1 of its 1 streams):", line)
    ]
    assert sum(line.startswith("  with ") for line in first) == 3
    assert "    Transactional" in first
    assert [line for line in first if "digest" in line] == [line for line in second if "digest" in line]


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    notes = tmp_path / "done"
    first = simulate("0..0", "--done", str(notes)).stdout
    lines = notes.read_text().splitlines()
    assert len(lines) == 1
    again = simulate("0..1", "--done", str(notes)).stdout
    assert notes.read_text().splitlines()[:1] == lines
    assert first.startswith("1 seeds, 0 seeds failed")
    assert again.startswith("2 seeds, 0 seeds failed")


def test_plans_differ_by_seed_and_stay_the_same() -> None:
    plans = [plan_of(seed) for seed in range(300)]
    assert plans == [plan_of(seed) for seed in range(300)]
    assert len({str(plan) for plan in plans}) == 300
    assert {fault.kind for plan in plans for fault in plan.faults} == set(KINDS)
    assert {step.kind for plan in plans for step in plan.steps} == set(STEPS)
    assert {stream for plan in plans for stream in plan.streams} == set(DRAWN)


def test_a_shape_decides_what_the_plans_of_a_bug_have_in_common() -> None:
    shape = Shape(("Plain",), ("leave",), ("kill",), (("flushDiskType", "SYNC_FLUSH"),), masters=2, only_brokers=True)
    for seed in range(20):
        plan = plan_of(seed, shape)
        assert (plan.masters, plan.streams, [step.kind for step in plan.steps]) == (2, ("Plain",), ["leave"])
        assert [fault.kind for fault in plan.faults] == ["kill"]
        assert plan.faults[0].targets[0].startswith("broker-")
        assert plan.values["flushDiskType"] == "SYNC_FLUSH"
