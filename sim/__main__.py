"""Simulate whole clusters with faults, one seed after the other, in virtual time.

Each seed chooses a cluster, its settings, its work, its faults and every delay; the same seed does the same each time.
A seed that fails prints the shortest part of its faults, steps and streams that still fails, and the last events.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from sim import planted
from sim.plan import TOPICS, Shape, plan_of
from sim.run import Outcome, simulate
from sim.shrink import shortest

SHOWN_LINES = 60
TELL_SECONDS = 10.0
WITHOUT = "fails without the bug, too"
SEEDS_PER_PROCESS = 200
"""Then another process continues: what a run leaves in memory goes with it."""


def main() -> int:
    """Return 0 when every seed held, 1 if one failed."""
    parser = argparse.ArgumentParser(prog="bin/dev/simulate", description=__doc__)
    parser.add_argument(
        "seeds",
        nargs="?",
        type=_seeds,
        default=range(100),
        metavar="SEEDS",
        help="how many from 0 on, or FIRST..LAST (100)",
    )
    parser.add_argument("--trace", action="store_true", help="print every event")
    parser.add_argument("--plant", metavar="NAME", choices=sorted(planted.BUGS), help="put a known bug in first")
    parser.add_argument("--planted", action="store_true", help="find every known bug, and say how many seeds it took")
    parser.add_argument("--brief", action="store_true", help="do not look for the shortest plan that fails")
    parser.add_argument("--until-failure", action="store_true", help="stop at the first seed that fails")
    parser.add_argument(
        "--streams",
        type=_streams,
        default=(),
        metavar="NAMES",
        help="run these streams, separated by commas, not others",
    )
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="how many seeds at a time (1)")
    parser.add_argument(
        "--done",
        type=Path,
        metavar="FILE",
        help="note what is done in this file; a later run leaves that out and counts it",
    )
    given = parser.parse_args()
    if given.plant and given.streams:
        parser.error("a planted bug has its own streams")
    gc.collect()
    gc.freeze()
    if given.planted:
        return _find_all(given)
    with planted.BUGS[given.plant].planted() if given.plant else nullcontext():
        return _simulate(given)


def _seeds(text: str) -> range:
    first, dots, last = text.partition("..")
    return range(int(first), int(last) + 1) if dots else range(int(text))


def _streams(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not set(names) <= set(TOPICS):
        raise argparse.ArgumentTypeError(f"streams are {', '.join(TOPICS)}")
    return names


class Totals:
    """What all seeds together showed."""

    def __init__(self) -> None:
        self.seeds = 0
        self.failed: list[int] = []
        self.counts: Counter[str] = Counter()

    def add(self, seed: int, counts: Counter[str], *, has_failed: bool) -> None:
        self.seeds += 1
        self.counts += counts
        if has_failed:
            self.failed.append(seed)

    def lines(self) -> Iterator[str]:
        yield f"{self.seeds} seeds, {len(self.failed)} seeds failed{': ' if self.failed else ''}" + ", ".join(
            map(str, self.failed[:20])
        )
        yield f"  messages: {self.counts['acknowledged']} acknowledged, {self.counts['consumed']} consumed"
        for what in ("stream", "step", "fault"):
            found = sorted(
                (name.removeprefix(what + " "), count)
                for name, count in self.counts.items()
                if name.startswith(what + " ")
            )
            yield f"  {what}s: " + ", ".join(f"{name} {count}" for name, count in found)


def _simulate(given: argparse.Namespace) -> int:
    began = last_told = time.monotonic()
    totals = Totals()
    for seed, counts, has_failed in _done(given.done, given.seeds):
        totals.add(seed, counts, has_failed=has_failed)
    known = {seed for seed, _, _ in _done(given.done, given.seeds)}
    left = [seed for seed in given.seeds if seed not in known]
    try:
        for outcome in _outcomes(left, given):
            totals.add(outcome.plan.seed, outcome.counts, has_failed=bool(outcome.failures))
            _note(given.done, outcome)
            if outcome.failures:
                _tell(outcome, outcome if given.brief else shortest(outcome), given)
                if given.until_failure:
                    break
            if time.monotonic() - last_told > TELL_SECONDS:
                last_told = time.monotonic()
                sys.stderr.write(f"{totals.seeds} of {len(given.seeds)} seeds, {len(totals.failed)} failed\n")
    except KeyboardInterrupt:
        print("interrupted")
    print("\n".join(totals.lines()))
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if totals.failed else 0


def _done(file: Path | None, seeds: range) -> Iterator[tuple[int, Counter[str], bool]]:
    """Yield the seeds that are noted as done: seed, counts, whether it failed."""
    if file is None or not file.exists():
        return
    for line in file.read_text().splitlines():
        entry = json.loads(line)
        if entry["seed"] in seeds:
            yield entry["seed"], Counter(entry["counts"]), entry["failed"]


def _note(file: Path | None, outcome: Outcome) -> None:
    if file is not None:
        entry = {"seed": outcome.plan.seed, "failed": bool(outcome.failures), "counts": outcome.counts}
        with file.open("a") as notes:
            notes.write(json.dumps(entry) + "\n")


def _outcomes(seeds: Iterable[int], given: argparse.Namespace) -> Iterator[Outcome]:
    """Yield what the seeds showed, in their order."""
    shape = planted.BUGS[given.plant].shape if given.plant else Shape(given.streams)
    plans = (plan_of(seed, shape) for seed in seeds)
    if given.processes == 1:
        for plan in plans:
            yield simulate(plan, echo=print if given.trace else None)
            gc.collect()
        return
    # Forked, so that a planted bug is in every process.
    with get_context("fork").Pool(given.processes, maxtasksperchild=SEEDS_PER_PROCESS) as pool:
        yield from pool.imap(simulate, plans)


def _tell(outcome: Outcome, short: Outcome, given: argparse.Namespace) -> None:
    plan = outcome.plan
    shape = f" --plant {given.plant}" if given.plant else ""
    if given.streams:
        shape += f" --streams {','.join(given.streams)}"
    print(f"seed {plan.seed} FAILED: {plan.masters} masters, slave: {plan.has_slave}, {plan.values}")
    for failure in short.failures:
        print(f"    {failure}")
    for what in ("faults", "steps", "streams"):
        left, all_of = getattr(short.plan, what), getattr(plan, what)
        print(f"  with {len(left)} of its {len(all_of)} {what}:")
        for one in left:
            print(f"    {one}")
    again = f"bin/dev/simulate {plan.seed}..{plan.seed} --trace{shape}"
    print(f"  the last of its events (digest {short.digest}; all of the seed: {again}):")
    for line in short.lines[-SHOWN_LINES:]:
        print(f"    {line}")


# Planted bugs.


def _find_all(given: argparse.Namespace) -> int:
    """Look for each planted bug; print how many seeds that took. Return 1 if one is not found."""
    missed = 0
    with get_context("fork").Pool(given.processes, maxtasksperchild=8) as pool:
        for name, tried, failure in pool.imap(partial(_find, seeds=given.seeds), planted.BUGS):
            is_found = bool(failure) and not failure.startswith(WITHOUT)
            missed += not is_found
            verdict = f"found after {tried} seeds: {failure}" if is_found else failure or f"NOT FOUND by {tried} seeds"
            print(f"{name}: {verdict}", flush=True)
    print(f"{len(planted.BUGS) - missed} of {len(planted.BUGS)} planted bugs are found")
    return 1 if missed else 0


def _find(name: str, seeds: range) -> tuple[str, int, str]:
    """Return the name of a bug, how many seeds were tried, and what the last one said. The same plan must hold without
    the bug."""
    bug = planted.BUGS[name]
    for tried, seed in enumerate(dict.fromkeys([bug.seed, *seeds]), 1):
        plan = plan_of(seed, bug.shape)
        with bug.planted():
            outcome = simulate(plan)
        # A check has to find it; that the program breaks is not enough.
        found = [text for text in outcome.failures if "the run ended with" not in text]
        if found:
            without = simulate(plan).failures
            if without:
                return name, tried, f"{WITHOUT}: {without[0][:200]}"
            return name, tried, found[0][:200]
        gc.collect()
    return name, tried, ""


if __name__ == "__main__":
    sys.exit(main() if os.environ.get("PYTHONHASHSEED") == "0" else "start it as bin/dev/simulate")
