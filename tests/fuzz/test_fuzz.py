"""The fuzzer finds planted faults, and every input of its corpus still passes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from built_speedups import built_speedups
from fuzz_codec_targets import codec_targets, header_fields, json_bodies, replication_stream
from fuzz_engine import MAX_INPUT_BYTES, Coverage, Mutator, fuzz, only_new
from fuzz_grpc_targets import grpc_targets
from fuzz_main import MAX_KEPT_BYTES, merge, share, totals
from fuzz_python_targets import LineCoverage, python_targets, sql92_expression
from fuzz_targets import targets
from fuzz_words import KINDS

from triomq.broker.filters import sql92
from triomq.broker.replication.frames import TransferDecoder
from triomq.protocol.bodies.base import Body
from triomq.protocol.errors import HeaderFieldError
from triomq.protocol.headers import base as header_base
from triomq.store.log.checkpoint import Checkpoint

Target = Callable[[bytes], None]
CORPUS = sorted((Path(__file__).parent / "corpus").glob("*/*"))


@pytest.fixture(scope="module")
def all_targets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Target]:
    python = python_targets(tmp_path_factory.mktemp("fuzz"))
    compiled = targets(built_speedups("protocol"), built_speedups("store"))
    return {
        **compiled,
        **{name: target for name, (target, _) in {**python, **codec_targets(), **grpc_targets()}.items()},
    }


@pytest.mark.parametrize("file", CORPUS, ids=lambda file: f"{file.parent.name}-{file.name}")
def test_an_input_of_the_corpus_passes(file: Path, all_targets: dict[str, Target]) -> None:
    all_targets[file.parent.name](file.read_bytes())


def test_every_target_has_a_small_corpus(all_targets: dict[str, Target]) -> None:
    assert {file.parent.name for file in CORPUS} == set(all_targets)
    assert max(file.stat().st_size for file in CORPUS) <= MAX_KEPT_BYTES
    assert sum(file.stat().st_size for file in CORPUS) < 300 * 1024


def test_every_target_belongs_to_one_kind_of_input(all_targets: dict[str, Target]) -> None:
    assert sorted(name for kind in KINDS.values() for name in kind) == sorted(all_targets)


def test_targets_share_the_time_of_their_kind_of_input() -> None:
    assert share(["frames", "acl_yaml"], None, 10) == {"frames": 5, "acl_yaml": 5}
    assert share(["record", "whole_record", "frames"], 30, 10) == {"record": 15, "whole_record": 15, "frames": 30}


def test_lines_of_the_chosen_modules_count_as_coverage() -> None:
    lines = LineCoverage((sql92,))
    run = lines.traced(sql92_expression)
    coverage = Coverage(lines.hits)
    run(b"only_here")
    assert coverage.grew()
    run(b"only_here")  # takes the compiled expression from the cache
    assert coverage.grew()
    run(b"only_here")
    assert not coverage.grew()
    run(b"only_here NOT BETWEEN 1 AND 2")
    assert coverage.grew()


def test_a_line_that_follows_another_line_than_before_counts_as_coverage(tmp_path: Path) -> None:
    file = tmp_path / "skipping.py"
    file.write_text("def skipping(data):\n    if data:\n        data = None\n    return data\n")
    module = ModuleType("skipping")
    module.__file__ = str(file)
    exec(compile(file.read_text(), str(file), "exec"), module.__dict__)
    lines = LineCoverage((module,))
    run = lines.traced(module.skipping)
    coverage = Coverage(lines.hits)
    run(b"every line")
    assert coverage.grew()
    run(b"")
    assert coverage.grew()
    run(b"every line")
    run(b"")
    assert not coverage.grew()


def test_a_header_that_another_codec_reads_differently_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = header_base.encode_header
    data = b"\x00\x01" + b'{"topic":"T","queueId":"1","consumerGroup":"G","offset":"5"}'
    for number in range(256):
        header_fields(bytes([number]) + data[1:])
    monkeypatch.setattr(header_base, "encode_header", lambda header: {**found(header), "topic": "other"})
    with pytest.raises((AssertionError, HeaderFieldError)):
        for number in range(256):
            header_fields(bytes([number]) + data[1:])


def test_a_body_that_does_not_survive_its_encoder_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    json_bodies(b'\x00{"a":1}')
    texts = iter([b"{}", b'{"b":2}', b"[]"])
    monkeypatch.setattr(Body, "encode", lambda body: next(texts))
    with pytest.raises(AssertionError):
        json_bodies(b'\x00{"a":1}')


def test_a_decoder_that_depends_on_how_the_bytes_arrive_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"\x05" + bytes(7) + b"\x10\x00\x00\x00\x04abcd"
    replication_stream(data)
    feed = TransferDecoder.feed
    monkeypatch.setattr(TransferDecoder, "feed", lambda decoder, part: feed(decoder, part)[: len(part) - 8])
    with pytest.raises(AssertionError):
        replication_stream(data)


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


def test_of_another_corpus_what_reaches_new_code_is_added_the_shortest_first(tmp_path: Path) -> None:
    """Each character is code of its own."""
    hits = bytearray(256)

    def target(data: bytes) -> None:
        for character in data:
            hits[character] = 1

    target(b"z")  # what ran before does not count
    assert only_new(target, [b"a", b"a", b"az", b"z"], Coverage(hits)) == [b"a", b"az"]
    mine, other = tmp_path / "mine", tmp_path / "other"
    for directory, inputs in ((mine, [b"abc", b"a", b"ab"]), (other, [b"dde", b"d", b"ba", b"dd"])):
        directory.mkdir()
        for number, data in enumerate(inputs):
            (directory / str(number)).write_bytes(data)
    merge("letters", target, memoryview(hits), mine, other)
    assert sorted(file.read_bytes() for file in mine.iterdir()) == [b"a", b"ab", b"abc", b"d", b"dde"]
    assert len(list(other.iterdir())) == 4


def test_the_lines_of_a_log_add_up() -> None:
    lines = ["frames 1.5 100 20 5", "record 2.0 10 7 3", "frames 2.5 50 30 4"]
    rows = [line.split() for line in totals(lines)]
    assert [(row[0], row[1], row[6]) for row in rows] == [
        ("frames", "4", "150"),
        ("record", "2", "10"),
        ("all", "6", "160"),
    ]
