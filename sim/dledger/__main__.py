"""Run seeds of the simulation of DLedger groups: bin/dev/simulate-dledger.

    bin/dev/simulate-dledger --seeds 0..1999                  two processes, totals at the end
    bin/dev/simulate-dledger --seeds 17..17 --trace           one seed with its last events
    bin/dev/simulate-dledger --members whole --seeds 0..99    whole members: ledger, disk, remoting, network
    bin/dev/simulate-dledger --members brokers ...            whole brokers, whose clients change their tables
    bin/dev/simulate-dledger --members receivers ...          and most of them send, receive (POP) and acknowledge
    bin/dev/simulate-dledger --java 1                         groups of three, one of them by RocketMQ's rules
    bin/dev/simulate-dledger --planted                        look for each planted bug

A seed that fails is run again with its events recorded: the last of them are printed. The exit code is 1 if a seed
failed, or a planted bug was not found.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing import get_context
from typing import Any

from sim.dledger.brokers import BROKER_FAULTS, Brokers, run_brokers
from sim.dledger.brokers_planted import BROKER_BUGS, RECEIVER_BUGS
from sim.dledger.planted import BUGS
from sim.dledger.whole import Whole, run_whole
from sim.dledger.whole_planted import WHOLE_BUGS
from sim.dledger.whole_trouble import WHOLE_FAULTS
from sim.dledger.world import FAULTS, World, run_seed, with_java
from triomq.dledger.wire.bodies import Entry, PushRequest

TOTALS = (
    "steps",
    "leaders",
    "Java leaders",
    "left out",
    "cut off",
    "lost",
    "doubled",
    "late",
    "kills",
    "power failures",
    *FAULTS,
    *WHOLE_FAULTS,
    *BROKER_FAULTS,
    "requests",
    "received",
    "done",
    "locks",
    "delayed",
    "delivered again",
)
RULES, WHOLE, BROKERS, RECEIVERS = "rules", "whole", "brokers", "receivers"
RUNS: dict[str, Callable[..., tuple[str | None, Whole | Brokers]]] = {
    WHOLE: run_whole,
    BROKERS: run_brokers,
    RECEIVERS: partial(run_brokers, receives=True),
}
"""Of all but the rules alone."""
PLANTED_SEEDS = 300
EVENTS_SHOWN = 40


def seeds_of(text: str) -> range:
    """Parse `A..B`, both included, or one number."""
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


def run_one(seed: int, members: str = RULES, java: int = 0) -> tuple[int, str | None, Counter[str]]:
    found: tuple[str | None, World | Whole | Brokers]
    if members == RULES:
        found = run_seed(seed, **_group(seed, java))
    else:
        found = RUNS[members](seed)
    gc.collect()  # a run of whole members collects nothing
    return seed, found[0], found[1].counts


def _group(seed: int, java: int) -> dict[str, Any]:
    return {"makers": with_java(seed, java)} if java else {}


def short(event: object) -> str:
    """Describe one event in a line."""
    request = getattr(event, "request", event)
    if isinstance(request, PushRequest):
        entries = [_entry(entry) for entry in request.entries]
        shown = f"{entries[0]} to {entries[-1]}" if len(entries) > 1 else "".join(entries)
        to = f"-> {request.remote_id}" if event is not request else "arrives"
        return f"{request.type} {to} in term {request.term}, committed {request.commit_index}: {shown}"
    return str(event)


def _entry(entry: Entry) -> str:
    return f"{entry.index} of term {entry.term} {entry.body.decode()}"


def explain(seed: int, members: str = RULES, java: int = 0) -> Iterator[str]:
    """Run a seed again, and describe its last events."""
    if members != RULES:
        problem, whole = RUNS[members](seed)
        yield f"seed {seed} at {whole.seconds:.1f} s: {problem or 'nothing is wrong'}, digest {whole.trace.digest}"
        yield from list(whole.trace.lines)[-EVENTS_SHOWN:]
        return
    problem, world = run_seed(seed, is_traced=True, **_group(seed, java))
    yield f"seed {seed} at {world.now:.0f} ms: {problem or 'nothing is wrong'}"
    for at, who, event in list(world.trace or ())[-EVENTS_SHOWN:]:
        yield f"  {at:9.1f} {who:5} {short(event)}"


def totals(counts: Counter[str], seeds: int, failed: int, seconds: float) -> str:
    settled = sum(count for name, count in counts.items() if name.startswith("settled"))
    found = ", ".join(f"{name} {counts[name]}" for name in dict.fromkeys(TOTALS) if counts[name])
    return (
        f"{found}, appends {settled}, acknowledged {counts['settled 200'] + counts['acknowledged']}\n"
        f"{seeds} seeds, {failed} failed, {seconds:.0f} s"
    )


def run_all(seeds: Iterable[int], processes: int, members: str, java: int = 0) -> tuple[int, int, Counter[str]]:
    counts: Counter[str] = Counter()
    done = failed = 0
    with get_context("fork").Pool(processes) as pool:
        for seed, problem, found in pool.imap_unordered(
            partial(run_one, members=members, java=java), seeds, chunksize=8
        ):
            counts += found
            done += 1
            if problem is not None:
                failed += 1
                print(*explain(seed, members, java), sep="\n", flush=True)
    return done, failed, counts


def find_planted() -> int:
    """Look for each planted bug in the first seeds. Return the number not found."""
    missing = 0
    for members, bugs in ((RULES, BUGS), (WHOLE, WHOLE_BUGS), (BROKERS, BROKER_BUGS), (RECEIVERS, RECEIVER_BUGS)):
        for name, bug in bugs.items():
            with bug.planted():
                found = first_failure(range(PLANTED_SEEDS), bug.faults, members)
            missing += found is None
            print(f"{name}: {found or 'NOT FOUND'}", flush=True)
    return missing


def first_failure(seeds: Iterable[int], faults: tuple[str, ...], members: str = RULES) -> str | None:
    for seed in seeds:
        problem: str | None
        if members != RULES:
            problem, whole = RUNS[members](seed, faults=faults)
            at = whole.seconds * 1000
        else:
            problem, world = run_seed(seed, faults=faults)
            at = world.now
        if problem is not None:
            return f"seed {seed} at {at:.0f} ms: {problem}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=seeds_of, default=range(2000), metavar="A..B")
    parser.add_argument("--members", choices=(RULES, *RUNS), default=RULES, help="what is simulated (rules)")
    parser.add_argument("--java", type=int, choices=(0, 1, 2), default=0, help="members by RocketMQ's rules (0)")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--trace", action="store_true", help="print the last events of each seed")
    parser.add_argument("--planted", action="store_true", help="look for the bugs that are put in on purpose")
    given = parser.parse_args()
    if given.planted:
        return 1 if find_planted() else 0
    if given.trace:
        for seed in given.seeds:
            print(*explain(seed, given.members, given.java), sep="\n")
        return 0
    began = time.monotonic()
    done, failed, counts = run_all(given.seeds, given.processes, given.members, given.java)
    print(totals(counts, done, failed, time.monotonic() - began))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
