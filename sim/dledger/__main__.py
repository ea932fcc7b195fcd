"""Run seeds of the simulation of DLedger groups: bin/simulate-dledger.

    bin/simulate-dledger --seeds 0..1999                  two processes, totals at the end
    bin/simulate-dledger --seeds 17..17 --trace           one seed with its last events
    bin/simulate-dledger --planted                        look for each planted bug

A seed that fails is run again with its events recorded: the last of them are printed. The exit code is 1 if a seed
failed, or a planted bug was not found.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing import get_context

from sim.dledger.planted import BUGS
from sim.dledger.world import FAULTS, World, run_seed
from triomq.dledger.wire.bodies import Entry, PushRequest

TOTALS = ("steps", "leaders", "cut off", "lost", "doubled", "late", "kills", "power failures", *FAULTS)
PLANTED_SEEDS = 300
EVENTS_SHOWN = 40


def seeds_of(text: str) -> range:
    """Parse `A..B`, both included, or one number."""
    first, _, last = text.partition("..")
    return range(int(first), int(last or first) + 1)


def run_one(seed: int) -> tuple[int, str | None, Counter[str]]:
    problem, world = run_seed(seed)
    return seed, problem, world.counts


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


def explain(seed: int) -> Iterator[str]:
    """Run a seed again, and describe its last events."""
    problem, world = run_seed(seed, is_traced=True)
    yield f"seed {seed} at {world.now:.0f} ms: {problem or 'nothing is wrong'}"
    for at, who, event in list(world.trace or ())[-EVENTS_SHOWN:]:
        yield f"  {at:9.1f} {who:5} {short(event)}"


def totals(counts: Counter[str], seeds: int, failed: int, seconds: float) -> str:
    settled = sum(count for name, count in counts.items() if name.startswith("settled"))
    found = ", ".join(f"{name} {counts[name]}" for name in dict.fromkeys(TOTALS))
    return (
        f"{found}, appends {settled}, acknowledged {counts['settled 200']}\n"
        f"{seeds} seeds, {failed} failed, {seconds:.0f} s"
    )


def run_all(seeds: Iterable[int], processes: int) -> tuple[int, int, Counter[str]]:
    counts: Counter[str] = Counter()
    done = failed = 0
    with get_context("fork").Pool(processes) as pool:
        for seed, problem, found in pool.imap_unordered(run_one, seeds, chunksize=8):
            counts += found
            done += 1
            if problem is not None:
                failed += 1
                print(*explain(seed), sep="\n", flush=True)
    return done, failed, counts


def find_planted() -> int:
    """Look for each planted bug in the first seeds. Return the number not found."""
    missing = 0
    for name, bug in BUGS.items():
        with bug.planted():
            found = first_failure(range(PLANTED_SEEDS), bug.faults)
        missing += found is None
        print(f"{name}: {found or 'NOT FOUND'}", flush=True)
    return missing


def first_failure(seeds: Iterable[int], faults: tuple[str, ...]) -> str | None:
    for seed in seeds:
        problem: str | None
        world: World
        problem, world = run_seed(seed, faults=faults)
        if problem is not None:
            return f"seed {seed} at {world.now:.0f} ms: {problem}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=seeds_of, default=range(2000), metavar="A..B")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--trace", action="store_true", help="print the last events of each seed")
    parser.add_argument("--planted", action="store_true", help="look for the bugs that are put in on purpose")
    given = parser.parse_args()
    if given.planted:
        return 1 if find_planted() else 0
    if given.trace:
        for seed in given.seeds:
            print(*explain(seed), sep="\n")
        return 0
    began = time.monotonic()
    done, failed, counts = run_all(given.seeds, given.processes)
    print(totals(counts, done, failed, time.monotonic() - began))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
