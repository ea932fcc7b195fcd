"""The fuzzer finds planted faults, and every input of its corpus still passes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from built_speedups import built_speedups
from fuzz_engine import MAX_INPUT_BYTES, Coverage, Mutator, fuzz
from fuzz_targets import targets

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*/*"))


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: f"{file.parent.name}-{file.name}")
def test_an_input_of_the_corpus_passes(file: Path) -> None:
    targets(built_speedups("protocol"), built_speedups("store"))[file.parent.name](file.read_bytes())


def test_every_target_has_a_small_corpus() -> None:
    names = set(targets(built_speedups("protocol"), built_speedups("store")))
    assert {file.parent.name for file in CORPUS} == names
    assert sum(file.stat().st_size for file in CORPUS) < 64 * 1024


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
