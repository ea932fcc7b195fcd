"""Simulate whole clusters with faults, one seed after the other, in virtual time.

Each seed chooses a cluster, its settings, its faults and every delay; the same seed does the same each time. A seed
that fails prints the shortest part of its faults that still fails, and the last events.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext
from multiprocessing import get_context

from sim import planted
from sim.plan import plan_of
from sim.run import Outcome, simulate
from sim.shrink import shortest

SHOWN_LINES = 60
TELL_SECONDS = 10.0


def main() -> int:
    """Return 0 when every seed held, 1 if one failed."""
    parser = argparse.ArgumentParser(prog="bin/simulate", description=__doc__)
    parser.add_argument("seeds", nargs="?", type=int, default=100, help="how many (100)")
    parser.add_argument("--from", dest="first", type=int, default=0, metavar="N", help="the first seed (0)")
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument("--plant", metavar="NAME", choices=sorted(planted.BUGS), help="put a known bug in first")
    parser.add_argument("--brief", action="store_true", help="do not look for the shortest part of the faults")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first seed that fails")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="how many seeds at a time (1)")
    given = parser.parse_args()
    with planted.BUGS[given.plant].planted() if given.plant else nullcontext():
        return _simulate(range(given.first, given.first + given.seeds), given)


def _simulate(seeds: range, given: argparse.Namespace) -> int:
    began = last_told = time.monotonic()
    faults = acknowledged = consumed = failed = 0
    done = 0
    for done, outcome in enumerate(_outcomes(seeds, given), 1):
        faults += len(outcome.plan.faults)
        acknowledged += outcome.acknowledged
        consumed += outcome.consumed
        if outcome.failures:
            failed += 1
            _tell(outcome, outcome if given.brief else shortest(outcome))
            if given.until_failure:
                break
        if time.monotonic() - last_told > TELL_SECONDS:
            last_told = time.monotonic()
            sys.stderr.write(f"{done} of {len(seeds)} seeds, {failed} failed\n")
    seconds = time.monotonic() - began
    print(
        f"{done} seeds from {seeds.start}: {faults} faults, {acknowledged} messages acknowledged, "
        f"{consumed} consumed, {failed} seeds failed; {seconds:.0f} s"
    )
    return 1 if failed else 0


def _outcomes(seeds: range, given: argparse.Namespace) -> Iterator[Outcome]:
    """Yield what the seeds showed, in their order."""
    if given.processes == 1:
        for seed in seeds:
            yield simulate(plan_of(seed), echo=print if given.trace else None)
        return
    # Forked, so that a planted bug is in every process.
    with get_context("fork").Pool(given.processes) as pool:
        yield from pool.imap(simulate, map(plan_of, seeds))


def _tell(outcome: Outcome, short: Outcome) -> None:
    plan = outcome.plan
    print(f"seed {plan.seed} FAILED: {plan.masters} masters, slave: {plan.has_slave}, {plan.values}")
    for failure in short.failures:
        print(f"    {failure}")
    print(f"  with {len(short.plan.faults)} of its {len(plan.faults)} faults:")
    for fault in short.plan.faults:
        print(f"    {fault}")
    print(f"  the last of its events (digest {short.digest}; all of them: bin/simulate 1 --from {plan.seed} --trace):")
    for line in short.lines[-SHOWN_LINES:]:
        print(f"    {line}")


if __name__ == "__main__":
    sys.exit(main())
