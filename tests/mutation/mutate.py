"""Mutation runs: does a test fail when a single line is wrong?

    bin/dev/mutate [AREA...] [--count 100] [--seed N] [--log FILE]      try COUNT mutants of these areas (default: all)
    bin/dev/mutate [AREA...] --each COUNT                               try COUNT mutants of each area
    bin/dev/mutate --replay FILE:LINE:KIND                              try one, with all tests of its area
    bin/dev/mutate --list [AREA...]                                     print how many mutants there are

A run works in a copy of the project. First it runs the tests of an area once, file by file, and notes which functions
each enters; `--notes` keeps that for the next run, and `--processes` runs several files at once. A mutant then meets
only tests that enter its function, up to a bound of time (`--seconds`): first those whose file is named after the
mutant's, then those that enter little else than its file. A mutant outside of functions meets the tests that enter any
function of its file, and those named after it. The verdict is

    killed       a test failed
    timeout      the tests did not end in time, as with an endless loop; counted as killed
    survived     all passed
    unreached    no test enters the function; counted as survived
    no verdict   the tests could not run

`--log` appends each verdict as a line of JSON and skips mutants that the file already has, so that an interrupted run
can continue."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from importlib.util import cache_from_source
from pathlib import Path

from areas import AREAS, Area
from mutants import Mutant, find_mutants, is_python
from trial import Trial, run_trial, trial_of

PROJECT = Path(__file__).resolve().parents[2]
BASELINE_SECONDS = 900.0
TESTS_SECONDS = 10.0  # for one mutant, by the durations of the undisturbed run
GRACE_SECONDS = 10.0
SLOWDOWN = 3.0  # times the undisturbed run, in CPU time; a longer run counts as a timeout
MARKS = "not slow and not interop and not spark"
KILLED, TIMEOUT, SURVIVED, UNREACHED, NO_VERDICT = "killed", "timeout", "survived", "unreached", "no verdict"


@dataclass(frozen=True, slots=True)
class Verdict:
    mutant: Mutant
    area: str
    verdict: str
    by: str
    """The test that failed, or what else is to be known."""
    seconds: float


def copy_project(target: Path) -> Path:
    """Copy the files that git tracks or would add, as they are now."""
    words = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(words, cwd=PROJECT, capture_output=True, check=True).stdout.decode().split("\0")
    for name in names:
        source = PROJECT / name
        if name and (source.is_symlink() or source.is_file()):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)
    (target / ".tmp").mkdir()
    return target


class Laboratory:
    """A copy of the project, and for each area the results of its tests without a mutant."""

    def __init__(self, copy: Path, notes: Path | None = None, *, processes: int = 1) -> None:
        """`notes`: a file with a line of JSON for each file of tests that an earlier laboratory ran; this one adds
        those that it runs, `processes` at a time. `seconds`: how long the tests of one mutant may take.
        """
        self.copy = copy
        self.notes = notes
        self.processes = processes
        self.seconds = TESTS_SECONDS
        self._baselines: dict[str, Trial] = {}  # by their file
        if notes is not None and notes.exists():
            for facts in map(json.loads, notes.read_text().splitlines()):
                self._baselines[facts["file"]] = trial_of(facts)

    def baseline(self, name: str) -> Trial:
        """Return what the area's tests do undisturbed. Each file of tests runs once for all areas."""
        files = AREAS[name].test_files(self.copy)
        if missing := [file for file in files if file not in self._baselines]:
            self._record(missing)
        whole = Trial()
        for trial in map(self._baselines.__getitem__, files):
            whole.passed |= trial.passed
            whole.failed += trial.failed
            whole.entered |= trial.entered
            whole.seconds += trial.seconds
        if not whole.passed:
            raise RuntimeError(f"{name}: no test passes undisturbed: {whole.failed[:3]}")
        if missing:
            failing = f", {len(whole.failed)} fail and are left out: {whole.failed[:3]}" if whole.failed else ""
            say(f"{name}: {len(whole.passed)} tests in {whole.seconds:.0f} s{failing}")
        return whole

    def _record(self, files: list[str]) -> None:
        """Run these files of tests, several at once, and note each as soon as it ends."""
        work = [(self.copy, file) for file in files]
        with multiprocessing.get_context("fork").Pool(min(self.processes, len(files))) as pool:
            for file, trial in pool.imap_unordered(recorded, work):
                self._baselines[file] = trial
                if self.notes is not None:
                    with self.notes.open("a") as notes:
                        notes.write(json.dumps({"file": file, **asdict(trial)}) + "\n")

    def output(self) -> str:
        return (self.copy / ".trial.out").read_text(errors="replace")

    def tests_for(self, area: str, mutant: Mutant) -> list[str]:
        """Those that enter the mutant's function, its own first, then those that are the most about its file, for at
        most `seconds` together. A line outside of functions also meets its own tests that enter none; the shortest
        of all tests if no test is about its file."""
        baseline = self.baseline(area)
        found: list[tuple[bool, float, float, str]] = []
        for test, functions in baseline.entered.items():
            of_file = [line for path, line in functions if path == mutant.path]
            is_own = is_own_test(test, mutant.path)
            enters = mutant.function_line in of_file if mutant.function_line else bool(of_file) or is_own
            if enters and test in baseline.passed:
                focus = len(of_file) / max(1, len(functions))
                found.append((not is_own, -focus, baseline.passed[test], test))
        if not found and not mutant.function_line:  # a table without functions
            found = [(True, 0.0, duration, test) for test, duration in baseline.passed.items()]
        chosen: list[str] = []
        seconds = 0.0
        for _, _, duration, test in sorted(found):
            seconds += duration
            if chosen and seconds > self.seconds:
                break
            chosen.append(test)
        return chosen

    def try_mutant(self, area: str, mutant: Mutant, *, tests: list[str] | None = None) -> Verdict:
        """Run the tests against one mutant. `tests` are arguments for pytest; the default are those that enter its
        function.
        """
        if tests is None:
            tests = self.tests_for(area, mutant)
            seconds = sum(self.baseline(area).passed[test] for test in tests)
        else:
            seconds = BASELINE_SECONDS
        if not tests:
            return Verdict(mutant, area, UNREACHED, "", 0.0)
        path = self.copy / mutant.path
        source = path.read_text("utf-8")
        try:
            self._write(path, mutant.applied(source))
            trial = run_trial(self.copy, ["-x", "-m", MARKS, *tests], GRACE_SECONDS + SLOWDOWN * seconds)
        finally:
            self._write(path, source)
            shutil.rmtree(self.copy / ".tmp", ignore_errors=True)
            (self.copy / ".tmp").mkdir()
        verdict, by = judge(trial)
        return Verdict(mutant, area, verdict, by or f"{len(tests)} tests", round(trial.seconds, 2))

    @staticmethod
    def _write(path: Path, text: str) -> None:
        """Write a source file so that stale bytecode is not used: Python finds bytecode by time and size, which may be
        equal.
        """
        path.write_text(text, "utf-8")
        Path(cache_from_source(str(path))).unlink(missing_ok=True)


def recorded(work: tuple[Path, str]) -> tuple[str, Trial]:
    """Run one file of tests undisturbed in a copy of the project. Return the file and its results."""
    copy, file = work
    words = [file, "-m", MARKS, "--continue-on-collection-errors"]
    return file, run_trial(copy, words, BASELINE_SECONDS, package="/triomq/", name=f".trial-{Path(file).stem}")


def is_own_test(test: str, path: str) -> bool:
    """Return whether the test's file is named after this source file: they share a word that is not the room's."""
    words = set(Path(test.partition("::")[0]).stem.split("_")[2:])
    return not words.isdisjoint(Path(path).stem.split("_"))


def judge(trial: Trial) -> tuple[str, str]:
    """Return the verdict, and the test that failed."""
    if trial.failed:
        return KILLED, trial.failed[0]
    if trial.is_timeout:
        return TIMEOUT, ""
    if trial.exit_code == 0:
        return SURVIVED, ""
    if trial.exit_code is not None and trial.exit_code < 0:
        return KILLED, f"the interpreter ended by signal {-trial.exit_code}"
    if trial.exit_code in (1, 2, 4):
        return KILLED, "collection"
    return NO_VERDICT, f"pytest ended with {trial.exit_code}"


def area_mutants(project: Path, area: Area) -> list[Mutant]:
    return [
        mutant
        for path in area.source_files(project)
        for mutant in find_mutants(path, (project / path).read_text("utf-8"))
    ]


def drawn(project: Path, areas: list[str], count: int, seed: int) -> list[tuple[str, Mutant]]:
    """Return `count` mutants, at most as many per area as it has. No area's choice depends on another's."""
    pools = {name: area_mutants(project, AREAS[name]) for name in areas}
    for name, pool in pools.items():
        random.Random(f"{seed} {name}").shuffle(pool)
    chosen: list[tuple[str, Mutant]] = []
    while len(chosen) < count and any(pools.values()):
        for name, pool in pools.items():
            while pool and len(chosen) < count:
                mutant = pool.pop()
                if is_python(mutant.applied((project / mutant.path).read_text("utf-8"))):
                    chosen.append((name, mutant))
                    break
    return sorted(chosen, key=lambda pair: areas.index(pair[0]))


def named(project: Path, name: str) -> tuple[str, Mutant]:
    """Return the mutant FILE:LINE:KIND with its area. Raises ValueError if there is none of that name."""
    for area_name, area in AREAS.items():
        if name.partition(":")[0] in area.source_files(project):
            for mutant in area_mutants(project, area):
                if mutant.name == name:
                    return area_name, mutant
    raise ValueError(f"no mutant {name}: is the file of an area, and is that line still the same?")


def say(text: str) -> None:
    print(text, flush=True)


def preload() -> None:
    """Import what every child needs and no mutant changes."""
    for module in (
        "hypothesis",
        "msgspec",
        "pytest_timeout",
        "pytest_trio",
        "structlog",
        "trio.testing",
        "yaml",
    ):
        __import__(module)


def told(verdict: Verdict) -> str:
    mutant = verdict.mutant
    line = f"{verdict.verdict:<10} {mutant.name:<60} {mutant.before.strip()} -> {mutant.after}"
    return f"{line}   [{verdict.by}, {verdict.seconds:.1f} s]"


def run(laboratory: Laboratory, chosen: list[tuple[str, Mutant]], log: Path | None) -> Counter[tuple[str, str]]:
    """Try all of them. Return how many there are of each (area, verdict)."""
    known = {}
    if log is not None and log.exists():
        known = {facts["mutant"]: facts for facts in map(json.loads, log.read_text().splitlines())}
    counts: Counter[tuple[str, str]] = Counter()
    for area, mutant in chosen:
        if mutant.name in known:
            counts[area, known[mutant.name]["verdict"]] += 1
            continue
        verdict = laboratory.try_mutant(area, mutant)
        counts[area, verdict.verdict] += 1
        say(told(verdict))
        if log is not None:
            facts = {
                "mutant": mutant.name,
                "area": area,
                "verdict": verdict.verdict,
                "before": mutant.before,
                "after": mutant.after,
                "by": verdict.by,
                "seconds": verdict.seconds,
            }
            with log.open("a") as file:
                file.write(json.dumps(facts) + "\n")
    return counts


def summary(counts: Counter[tuple[str, str]], seed: int, seconds: float) -> str:
    kinds = (KILLED, TIMEOUT, SURVIVED, UNREACHED, NO_VERDICT)
    lines = [f"{'area':<14}" + "".join(f"{kind:>12}" for kind in kinds)]
    for area in dict.fromkeys(area for area, _ in counts):
        lines.append(f"{area:<14}" + "".join(f"{counts[area, kind]:>12}" for kind in kinds))
    totals = {kind: sum(count for (_, each), count in counts.items() if each == kind) for kind in kinds}
    lines.append(f"{'all':<14}" + "".join(f"{totals[kind]:>12}" for kind in kinds))
    judged = sum(totals.values()) - totals[NO_VERDICT]
    share = (totals[KILLED] + totals[TIMEOUT]) / judged if judged else 0.0
    lines.append(f"seed {seed}: {share:.1%} of {judged} killed, {seconds:.0f} s")
    return "\n".join(lines)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bin/dev/mutate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("areas", nargs="*", metavar="AREA", help=", ".join(AREAS))
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--each", type=int, help="mutants of each area, in place of --count")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--log", type=Path)
    parser.add_argument(
        "--notes", type=Path, help="keep here what the first runs of the tests found; for one tree only"
    )
    parser.add_argument("--processes", type=int, default=1, help="files of tests that first run at the same time")
    parser.add_argument("--seconds", type=float, default=TESTS_SECONDS, help="of tests for one mutant")
    parser.add_argument("--replay", metavar="FILE:LINE:KIND")
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args(words)
    areas = given.areas or list(AREAS)
    if unknown := [area for area in areas if area not in AREAS]:
        parser.error(f"no such area: {', '.join(unknown)}; there are {', '.join(AREAS)}")
    if given.list:
        for area in areas:
            say(f"{area:<14}{len(area_mutants(PROJECT, AREAS[area])):>6}")
        return 0
    seed = random.randrange(1 << 30) if given.seed is None else given.seed
    preload()
    with tempfile.TemporaryDirectory(prefix="triomq-mutate-") as directory:
        laboratory = Laboratory(copy_project(Path(directory)), given.notes, processes=given.processes)
        laboratory.seconds = given.seconds
        began = time.monotonic()
        if given.replay:
            area, mutant = named(laboratory.copy, given.replay)
            tests = AREAS[area].test_files(laboratory.copy)
            verdict = laboratory.try_mutant(area, mutant, tests=tests)
            say(told(verdict))
            say(laboratory.output()[-4000:])
            return 0 if verdict.verdict in (KILLED, TIMEOUT) else 1
        count = given.count if given.each is None else given.each * len(areas)
        counts = run(laboratory, drawn(laboratory.copy, areas, count, seed), given.log)
        say(summary(counts, seed, time.monotonic() - began))
    return 0


if __name__ == "__main__":
    sys.exit(main())
