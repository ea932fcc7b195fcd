"""The fuzzer finds planted faults, and every input of its corpus still passes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from built_speedups import built_speedups
from fuzz_engine import MAX_INPUT_BYTES, Coverage, Mutator, fuzz
from fuzz_python_targets import LineCoverage, python_targets, sql92_expression
from fuzz_targets import targets

from triomq.broker.filters import sql92
from triomq.store.log.checkpoint import Checkpoint

Target = Callable[[bytes], None]
CORPUS = sorted((Path(__file__).parent / "corpus").glob("*/*"))


@pytest.fixture(scope="module")
def all_targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    python = python_targets(tmp_path_factory.mktemp("fuzz"))
    compiled = targets(built_speedups("protocol"), built_speedups("store"))
    return {**compiled, **{name: target for name, (target, _) in python.items()}}


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: f"{file.parent.name}-{file.name}")
def test_an_input_of_the_corpus_passes(file: Path, all_targets: dict[str, Target]) -> None:
    all_targets[file.parent.name](file.read_bytes())


def test_every_target_has_a_small_corpus(all_targets: dict[str, Target]) -> None:
    assert {file.parent.name for file in CORPUS} == set(all_targets)
    assert sum(file.stat().st_size for file in CORPUS) < 64 * 1024


def test_lines_of_the_chosen_modules_count_as_coverage() -> None:
    lines = LineCoverage((sql92,))
    run = lines.traced(sql92_expression)
    coverage = Coverage(lines.hits)
    run(b"a")
    assert coverage.grew()
    run(b"a")
    assert not coverage.grew()
    run(b"a NOT BETWEEN 1 AND 2")
    assert coverage.grew()


def test_a_reader_that_raises_anything_undeclared_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> None:
        raise IndexError("planted")

    monkeypatch.setattr(sql92, "compile_expression", broken)
    with pytest.raises(IndexError, match="planted"):
        sql92_expression(b"a = 1")


def test_a_store_that_does_not_open_because_of_an_undeclared_error_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, _ = python_targets(tmp_path)["store_files"]

    def broken(self: Checkpoint) -> None:
        raise IndexError("planted")

    monkeypatch.setattr(Checkpoint, "load", broken)
    with pytest.raises(IndexError, match="planted"):
        target(b"\x00\x00\x00\x01")


def test_the_same_seed_makes_the_same_inputs() -> None:
    def inputs(seed: str) -> list[bytes]:
        mutator = Mutator(seed, [b"word"])
        return [mutator.mutate([b"some input", b"other"]) for _ in range(200)]

    assert inputs("a") == inputs("a")
    assert inputs("a") != inputs("b")
    assert any(b"word" in data for data in inputs("a"))


def test_inputs_do_not_grow_without_bound() -> None:
    corpus = [b"x" * MAX_INPUT_BYTES]
    mutator = Mutator("0")
    assert max(len(mutator.mutate(corpus)) for _ in range(300)) <= MAX_INPUT_BYTES


def test_code_that_is_reached_step_by_step_is_found() -> None:
    """Each correct character is a block of its own, so the fuzzer has to build on inputs that it kept."""
    hits = bytearray(8)
    seen: list[bytes] = []

    def target(data: bytes) -> None:
        for at, character in enumerate(b"magic"):
            if data[at : at + 1] != bytes([character]):
                return
            hits[at] = 1
        raise AssertionError("found")

    corpus = [b"#"]
    mutator = Mutator("0", [b"m", b"a", b"g", b"i", b"c"])
    with pytest.raises(AssertionError, match="found"):
        fuzz(target, corpus, mutator, Coverage(hits), time.monotonic() + 60, seen.append)
    assert seen[-1].startswith(b"magic")
    assert b"#" in corpus and len(corpus) >= 4


def test_a_run_ends_in_time_and_counts_its_inputs() -> None:
    calls: list[bytes] = []
    count = fuzz(calls.append, [b"a"], Mutator("0"), Coverage(bytearray(8)), time.monotonic() + 0.01, lambda _: None)
    assert count == len(calls) > 1
