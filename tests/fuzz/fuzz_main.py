"""The program of bin/dev/fuzz: it runs each target for an equal share of the time, with the sanitized extensions.

The targets in C count the basic blocks that an input reaches, those in Python the lines.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import logging
import mmap
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

import structlog
from built_speedups import ROOT, compile_speedups
from fuzz_engine import Coverage, Mutator, fuzz, only_new
from fuzz_words import KINDS, WORDS

CORPUS = ROOT / "tests" / "fuzz" / "corpus"
MAP_BYTES = 1 << 14  # of coverage.c
MAX_KEPT_BYTES = 400

Known = dict[str, tuple[Callable[[bytes], None], memoryview]]


def main() -> None:
    options = read_options()
    if options.totals:
        print("\n".join(totals(options.totals.read_text().splitlines())))
        return
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as directory:
        known = all_targets(Path(directory))
        chosen = {name: each for name, each in known.items() if options.only in (None, name)}
        if not chosen or (options.inputs and not options.only):
            sys.exit(f"bin/dev/fuzz: --only takes one of {', '.join(known)}")
        if options.inputs:
            for file in options.inputs:
                chosen[options.only][0](file.read_bytes())
        elif options.merge:
            for name, (target, hits) in chosen.items():
                merge(name, target, hits, options.corpus / name, options.merge / name)
        elif not fuzz_all(chosen, options):
            sys.exit(1)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bin/dev/fuzz", description="Fuzz the readers of untrusted bytes.")
    parser.add_argument("--seconds", type=float, default=30, help="for all targets together (default: %(default)s)")
    parser.add_argument("--each", type=float, metavar="SECONDS", help="for each kind of input, instead")
    parser.add_argument("--processes", type=int, default=1, help="targets at a time (default: %(default)s)")
    parser.add_argument("--seed", default="0", help="any text (default: %(default)s)")
    parser.add_argument("--only", metavar="TARGET", help="this target alone")
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="of all targets (default: the project's)")
    parser.add_argument("--grow", action="store_true", help="add short inputs that reach new code to the corpus")
    parser.add_argument("--merge", type=Path, metavar="CORPUS", help="add what reaches new code from this one")
    parser.add_argument("--log", type=Path, metavar="FILE", help="append processor seconds and inputs of each target")
    parser.add_argument("--totals", type=Path, metavar="FILE", help="print what such a file adds up to")
    parser.add_argument("inputs", nargs="*", type=Path, help="run these files once instead (with --only)")
    return parser.parse_args()


def all_targets(directory: Path) -> Known:
    """Build the extensions, and return name -> target and its map of hits."""
    modules = [build(package, directory) for package in ("protocol", "store")]
    maps = [coverage_map(module) for module in modules]
    # These import the decoders, which must find the sanitized extensions.
    from fuzz_codec_targets import codec_targets
    from fuzz_grpc_targets import grpc_targets
    from fuzz_python_targets import LineCoverage, python_targets
    from fuzz_targets import targets

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    known = {name: (target, maps[name in ("record", "due_record")]) for name, target in targets(*modules).items()}
    for name, (target, sources) in {**python_targets(directory), **codec_targets(), **grpc_targets()}.items():
        lines = LineCoverage(sources)
        known[name] = (lines.traced(target), memoryview(lines.hits))
    return known


def build(package: str, directory: Path) -> ModuleType:
    """Build the extension, instrumented, as the module that the rest of the project imports."""
    object_file = str(directory / "coverage.o")
    source = str(ROOT / "tests" / "fuzz" / "coverage.c")
    subprocess.run(["cc", "-c", "-fPIC", "-O1", source, "-o", object_file], check=True, timeout=60)
    module = compile_speedups(package, directory, "-fsanitize-coverage=trace-pc", object_file)
    sys.modules[f"triomq.{package}._speedups"] = module
    return module


def coverage_map(module: ModuleType) -> memoryview:
    file = module.__file__
    assert file is not None
    return memoryview((ctypes.c_ubyte * MAP_BYTES).in_dll(ctypes.CDLL(file), "coverage_map")).cast("B")


def fuzz_all(chosen: Known, options: argparse.Namespace) -> bool:
    """Run the targets, as many at a time as asked, each in a process of its own. Return whether all passed."""
    times = share(list(chosen), options.each, options.seconds * options.processes)
    running: set[int] = set()
    passed = True
    for name, (target, hits) in chosen.items():
        if len(running) >= options.processes:
            passed &= ended_well(running)
        child = os.fork()
        if not child:
            try:
                run(name, target, hits, times[name], options)
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            os._exit(0)
        running.add(child)
    while running:
        passed &= ended_well(running)
    return passed


def share(names: list[str], each: float | None, seconds: float) -> dict[str, float]:
    """Return the seconds of each target: an equal part of all, or of those that each kind of input has."""
    if each is None:
        return {name: seconds / len(names) for name in names}
    kinds = [[name for name in kind if name in names] for kind in KINDS.values()]
    return {name: each / len(kind) for kind in kinds for name in kind}


def ended_well(running: set[int]) -> bool:
    """Wait for one of these processes to end; return whether it exited with 0."""
    child, status = os.wait()
    running.discard(child)
    return status == 0


def run(
    name: str, target: Callable[[bytes], None], hits: memoryview, seconds: float, options: argparse.Namespace
) -> None:
    kept: Path = options.corpus / name
    corpus = inputs_of(kept)
    known = len(corpus)
    coverage = Coverage(hits)
    began = time.process_time()
    with tempfile.NamedTemporaryFile(prefix=f"fuzz-{name}-", delete=False) as file:
        last_input = LastInput(file.name)
        print(f"{name}: the input under test is in {file.name}", flush=True)
        mutator = Mutator(f"{options.seed} {name}", WORDS.get(name, ()))
        try:
            count = fuzz(target, corpus, mutator, coverage, time.monotonic() + seconds, last_input.remember)
        except BaseException:
            last_input.cut()
            raise
    Path(file.name).unlink()
    spent = time.process_time() - began
    print(f"{name}: {count} inputs, {coverage.blocks} blocks reached, corpus {known} -> {len(corpus)}", flush=True)
    if options.log:
        with options.log.open("a") as log:
            log.write(f"{name} {spent:.1f} {count} {coverage.blocks} {len(corpus)}\n")
    for data in corpus[known:] if options.grow else ():
        if len(data) <= MAX_KEPT_BYTES:
            keep(kept, data)


def inputs_of(directory: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted(directory.iterdir())] if directory.is_dir() else []


def keep(directory: Path, data: bytes) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / hashlib.sha256(data).hexdigest()[:12]).write_bytes(data)


def merge(name: str, target: Callable[[bytes], None], hits: memoryview, kept: Path, other: Path) -> None:
    """Add to `kept` the inputs of `other` that reach new code, the shortest first. What is in `kept` stays: it may be
    there for a fault that it once found.
    """
    coverage = Coverage(hits)
    before = inputs_of(kept)
    only_new(target, before, coverage)
    found = only_new(target, sorted(inputs_of(other), key=lambda data: (len(data), data)), coverage)
    for data in found:
        keep(kept, data)
    print(f"{name}: {len(before)} + {len(found)} inputs, {sum(map(len, before + found))} bytes", flush=True)


def totals(lines: Iterable[str]) -> list[str]:
    """Add the lines of a log up: for each target, and for all."""
    sums: dict[str, list[float]] = {}
    for line in lines:
        name, spent, count, blocks, inputs = line.split()
        row = sums.setdefault(name, [0, 0, 0, 0])
        row[0] += float(spent)
        row[1] += int(count)
        row[2:] = [max(row[2], int(blocks)), max(row[3], int(inputs))]
    rows = [(name, *row) for name, row in sorted(sums.items())]
    rows.append(("all", *(sum(row[at] for row in sums.values()) for at in range(4))))
    return [
        f"{name:20} {spent:8.0f} s of processor time {count:12.0f} inputs {blocks:6.0f} blocks {inputs:5.0f} kept"
        for name, spent, count, blocks, inputs in rows
    ]


class LastInput:
    """The input under test, in a file that survives a crash of this process (truncated to size after an exception)."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        with self._path.open("r+b") as file:
            file.truncate(1 << 16)
            self._memory = mmap.mmap(file.fileno(), 0)
        self._size = 0

    def remember(self, data: bytes) -> None:
        self._memory[: len(data)] = data
        self._size = len(data)

    def cut(self) -> None:
        with self._path.open("r+b") as file:
            file.truncate(self._size)


if __name__ == "__main__":
    main()
