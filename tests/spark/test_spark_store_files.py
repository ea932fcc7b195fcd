"""Store directories read without Spark, compared with what the real broker recovered from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triomq.spark.errors import StoreDamaged
from triomq.spark.jobs.rebuild import write_index
from triomq.spark.jobs.store_tables import StoreFacts
from triomq.spark.jobs.store_walk import Finding, SegmentWalk, index_entries, queue_entries
from triomq.spark.store_files import no_log, queue_directories, recovered_end, segments, used_segments
from triomq.store.delay import DelayLevels

SOUND = ["1a_clean", "1b_killed", "1d_sql92_ext", "1e_retention"]
DAMAGED = [
    "c01_tail_zeroed",
    "c03_flip_body_last_file",
    "c04_flip_body_first_file",
    "c05_flip_magic_second_last_file",
    "c10_last_commitlog_file_missing",
    "c11_first_commitlog_file_missing",
    "c12_middle_commitlog_file_missing",
    "c15_next_file_zeros",
    "c23_flip_totalsize_last_file",
    "k00_killed",
    "k01_tail_zeroed",
    "k02_flip_body_last_file",
    "k03_flip_body_third_last_file",
    "k07_no_checkpoint",
    "k11_abort_removed",
]


@pytest.mark.parametrize("name", [*SOUND, *DAMAGED])
def test_the_log_ends_where_the_real_broker_ends_it(
    name: str, unpacked: Callable[[str], Path], expected: Callable[[str], Any]
) -> None:
    root = unpacked(name)
    log = used_segments(segments((str(root / "commitlog"),)))
    assert recovered_end(str(root), log) == expected(name)["commitlog"]["max_offset"]


@pytest.mark.parametrize("name", ["c02_file_cut_short", "k10_cut_file"])
def test_what_a_broker_refuses_is_refused(name: str, unpacked: Callable[[str], Path]) -> None:
    root = unpacked(name)
    with pytest.raises(StoreDamaged, match="a broker refuses to start"):
        recovered_end(str(root), segments((str(root / "commitlog"),)))


@pytest.mark.parametrize("name", SOUND)
def test_walks_see_every_record_entry_and_key(
    name: str, unpacked: Callable[[str], Path], expected: Callable[[str], Any]
) -> None:
    root, want = unpacked(name), expected(name)
    facts = StoreFacts.of(str(root))
    found: list[Finding] = []
    records = []
    log = facts.segments
    for segment in log:
        walk = SegmentWalk(segment, DelayLevels(facts.delay_levels), is_last=segment is log[-1])
        records += walk.records()
        found += walk.findings
    assert [(record.physical_offset, record.size_bytes, record.topic) for record in records] == [
        (message["phys"], message["size"], message["topic"]) for message in want["messages"]
    ]
    entries = {
        (topic, queue_id): list(queue_entries(topic, queue_id, directory, found))
        for topic, queue_id, directory in queue_directories(str(root))
    }
    min_offset = want["commitlog"]["min_offset"]
    for topic, queues in want["queues"].items():
        for queue_id, queue in queues.items():
            wanted = [tuple(entry) for entry in queue["entries"] if entry[1] >= min_offset and entry[2] != 0x7FFFFFFF]
            ours = [entry[2:] for entry in entries.get((topic, int(queue_id)), []) if entry[3] >= min_offset]
            assert ours == wanted, (topic, queue_id)
    keys = sum(len(list(index_entries(path, facts.hash_slots, found))) for path in facts.index_files)
    # After a kill, RocketMQ's recovery indexes its first message a second time
    twice = 2 if name == "1b_killed" else 0
    assert keys + twice == sum(file["indexCount"] - 1 for file in want["index"]["files"])
    assert found == []


def test_the_index_is_made_anew_byte_by_byte(unpacked: Callable[[str], Path], tmp_path: Path) -> None:
    root = unpacked("1a_clean")
    facts = StoreFacts.of(str(root))
    assert list(write_index((facts, str(tmp_path)))) == [(3867,)]
    made = [path.read_bytes() for path in sorted((tmp_path / "index").iterdir())]
    assert made == [Path(path).read_bytes() for path in facts.index_files]


@pytest.mark.parametrize("is_inner", [False, True])
def test_a_directory_that_holds_the_store_of_a_development_cluster_is_named(tmp_path: Path, is_inner: bool) -> None:
    if is_inner:
        (tmp_path / "store" / "commitlog").mkdir(parents=True)
    hint = f"; did you mean {tmp_path}/store?" if is_inner else ""
    said = no_log(str(tmp_path), (f"{tmp_path}/commitlog",))
    assert said == f"option path: no commit log files in {tmp_path}/commitlog{hint}"
