"""Groups keep their promises under a seeded scheduler; bugs that are put in on purpose are found."""

from __future__ import annotations

from collections import Counter
from threading import Thread

import pytest
import trio

from sim.dledger.__main__ import BROKERS, RECEIVERS, RULES, WHOLE, explain, first_failure, run_one, totals
from sim.dledger.brokers import run_brokers
from sim.dledger.brokers_planted import BROKER_BUGS, RECEIVER_BUGS
from sim.dledger.planted import BUGS, Bug
from sim.dledger.whole import run_whole
from sim.dledger.whole_planted import WHOLE_BUGS
from sim.dledger.world import FAULTS, run_seed

SEEDS = 200
WHOLE_SEEDS = 20
BROKER_SEEDS = 5
RECEIVER_SEEDS = 3
JAVA_SEEDS = 60
PLANTED_SEEDS = 200
FOUND = {
    948: "a follower that the disk refused its first new entry had removed its old ones",
    3132: "a follower whose log had parted before the leader's first entry kept what is before that",
}
"""Seeds that found a fault once."""


def run_all_well(seeds: int, members: str = RULES, java: int = 0) -> Counter[str]:
    """Run the first seeds, none of which may find anything. Return what they counted."""
    counts: Counter[str] = Counter()
    for seed in range(seeds):
        _, problem, found = run_one(seed, members, java)
        assert problem is None, "\n".join(explain(seed, members, java))
        counts += found
    return counts


def found(bug: Bug, seeds: int, members: str = RULES) -> str | None:
    """Return what finds a bug: its own seed, or one of the first."""
    with bug.planted():
        own = first_failure([bug.seed], bug.faults, members)
        return own or first_failure(range(seeds), bug.faults, members)


@pytest.mark.slow
def test_groups_keep_their_promises_through_every_kind_of_fault() -> None:
    counts = run_all_well(SEEDS)
    assert min(counts[kind] for kind in (*FAULTS, "leaders", "kills", "power failures", "lost", "doubled", "late")) > 0
    assert f"{SEEDS} seeds, 0 failed" in totals(counts, SEEDS, 0, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("java", [1, 2])
def test_members_keep_their_promises_beside_members_by_the_rules_of_rocketmq(java: int) -> None:
    counts = run_all_well(JAVA_SEEDS, java=java)
    assert 0 < counts["Java leaders"] < counts["leaders"]
    assert min(counts[kind] for kind in ("kills", "power failures", "lost", "late", "settled 200")) > 0


@pytest.mark.parametrize("seed", FOUND)
def test_a_seed_that_found_a_fault_holds(seed: int) -> None:
    assert run_one(seed)[1] is None, FOUND[seed]


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_that_is_put_in_on_purpose_is_found(name: str) -> None:
    assert found(BUGS[name], PLANTED_SEEDS) is not None


def test_a_seed_does_the_same_each_time() -> None:
    first, second = run_seed(7)[1], run_seed(7)[1]
    assert first.counts == second.counts
    assert first.checks.truth == second.checks.truth
    assert run_seed(8)[1].checks.truth != first.checks.truth


def test_a_seed_that_fails_is_explained_by_its_last_events() -> None:
    with BUGS["wins_with_half"].planted():
        lines = list(explain(BUGS["wins_with_half"].seed))
    assert "Violation" in lines[0]
    assert 10 < len(lines) <= 41


# Whole members.


@pytest.mark.slow
def test_whole_members_keep_their_promises_through_every_kind_of_fault() -> None:
    counts = run_all_well(WHOLE_SEEDS, WHOLE)
    assert min(counts[kind] for kind in ("leaders", "kills", "power failures", "settled 200")) > 0


@pytest.mark.parametrize("name", WHOLE_BUGS)
def test_a_bug_that_is_put_into_whole_members_is_found(name: str) -> None:
    assert found(WHOLE_BUGS[name], WHOLE_SEEDS, WHOLE) is not None


def test_a_seed_with_whole_members_does_the_same_each_time() -> None:
    first, second = run_whole(7)[1], run_whole(7)[1]
    assert first.trace.digest == second.trace.digest
    assert first.counts == second.counts
    assert run_whole(8)[1].trace.digest != first.trace.digest


def test_an_event_loop_in_another_thread_changes_nothing() -> None:
    """As a client in threads has one. The seed chooses the order of ready tasks in its own thread only."""
    cancel_scope = trio.CancelScope()
    token: list[trio.lowlevel.TrioToken] = []

    async def busy() -> None:
        token.append(trio.lowlevel.current_trio_token())
        with cancel_scope:
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(yielding)

    async def yielding() -> None:
        while True:
            await trio.lowlevel.checkpoint()

    alone = run_whole(7)[1].trace.digest
    thread = Thread(target=trio.run, args=(busy,))
    thread.start()
    try:
        beside = run_whole(7)[1].trace.digest
    finally:
        token[0].run_sync_soon(cancel_scope.cancel)
        thread.join()
    assert beside == alone


def test_a_seed_with_whole_members_that_fails_is_explained_by_its_last_events() -> None:
    bug = WHOLE_BUGS["counts_what_a_sync_will_cover"]
    with bug.planted():
        problem, whole = run_whole(bug.seed, faults=bug.faults)
    assert problem is not None
    assert any(line.endswith(problem) for line in whole.trace.lines)


# Whole brokers.


@pytest.mark.slow
def test_whole_brokers_keep_what_they_acknowledged_while_leaders_change() -> None:
    counts = run_all_well(BROKER_SEEDS, BROKERS)
    assert min(counts[kind] for kind in ("acknowledged", "locks", "delayed", "kill", "stop", "cut off")) > 0
    assert counts["leaders"] > 2 * BROKER_SEEDS


@pytest.mark.parametrize("name", BROKER_BUGS)
def test_a_bug_that_is_put_into_whole_brokers_is_found(name: str) -> None:
    assert found(BROKER_BUGS[name], BROKER_SEEDS, BROKERS) is not None


def test_a_seed_with_whole_brokers_does_the_same_each_time() -> None:
    first, second = run_brokers(7)[1], run_brokers(7)[1]
    assert first.trace.digest == second.trace.digest
    assert first.counts == second.counts


def test_a_member_that_completes_a_deletion_while_it_is_stopped_ends() -> None:
    """The deletion, which cannot be cancelled, waits for a quorum that nobody is left to form."""
    assert run_brokers(13557)[0] is None


# Whole brokers, whose clients receive (POP).


@pytest.mark.slow
def test_receivers_lose_nothing_and_get_nothing_again_that_is_done_while_leaders_change() -> None:
    counts = run_all_well(RECEIVER_SEEDS, RECEIVERS)
    assert counts["received"] > counts["done"] > 0
    assert counts["leaders"] > 2 * RECEIVER_SEEDS


@pytest.mark.parametrize("name", RECEIVER_BUGS)
def test_a_bug_that_is_put_into_receives_is_found(name: str) -> None:
    assert found(RECEIVER_BUGS[name], RECEIVER_SEEDS, RECEIVERS) is not None
