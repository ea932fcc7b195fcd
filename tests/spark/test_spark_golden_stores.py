"""The source `rocketmq-store` on every recorded directory, sound and damaged: its rows equal the content of the real
broker's store after it recovered that directory.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plain_rows import store_rows

pytestmark = pytest.mark.spark

SETS = (
    "1a_clean",
    "1b_killed",
    "1d_sql92_ext",
    "1e_retention",
    "c01_tail_zeroed",
    "c03_flip_body_last_file",
    "c04_flip_body_first_file",
    "c05_flip_magic_second_last_file",
    "c06_no_consumequeue",
    "c07_no_consumequeue_of_one_queue",
    "c08_no_index",
    "c09_no_checkpoint",
    "c10_last_commitlog_file_missing",
    "c11_first_commitlog_file_missing",
    "c12_middle_commitlog_file_missing",
    "c15_next_file_zeros",
    "c16_cq_ahead",
    "c17_cq_short",
    "c18_cq_all_short",
    "c19_topics_json_empty",
    "c20_topics_json_torn",
    "c21_offsets_torn_no_bak",
    "c22_flip_property_last_file",
    "c23_flip_totalsize_last_file",
    "k00_killed",
    "k01_tail_zeroed",
    "k02_flip_body_last_file",
    "k03_flip_body_third_last_file",
    "k04_no_consumequeue",
    "k05_no_consumequeue_of_one_queue",
    "k06_no_index",
    "k07_no_checkpoint",
    "k08_no_consumequeue_no_checkpoint",
    "k09_cq_all_short",
    "k11_abort_removed",
)
REMADE = ("c06", "c18", "k04", "k05", "k08", "k09")
"""Where a broker that starts rebuilds lost consume queues: until then the files have less."""
REFUSED = ("c02_file_cut_short", "k10_cut_file")


def of_row(row: dict[str, Any]) -> tuple[Any, ...]:
    return (
        row["physicalOffset"],
        row["topic"],
        row["queueId"],
        row["queueOffset"],
        row["tags"],
        row["keys"],
        row["properties"],
        round(row["storeTimestamp"].timestamp() * 1000),
        round(row["bornTimestamp"].timestamp() * 1000),
        row["msgId"],
        hashlib.sha256(row["body"]).hexdigest(),
    )


def of_message(message: dict[str, Any]) -> tuple[Any, ...]:
    return (
        message["phys"],
        message["topic"],
        message["queueId"],
        message["queueOffset"],
        message["tags"],
        message["keys"],
        message["properties"],
        message["storeTimestamp"],
        message["bornTimestamp"],
        message["msgId"] or message["offsetMsgId"],
        message["bodySha256"],
    )


@pytest.mark.parametrize("name", SETS)
def test_rows_are_what_the_real_broker_recovered(
    name: str, unpacked: Callable[[str], Path], expected: Callable[[str], Any]
) -> None:
    want = expected(name)
    rows = store_rows(unpacked(name), logEnd="recovered", failOnDataLoss="false")
    assert [of_row(row) for row in rows] == [of_message(message) for message in want["messages"]]
    queued = store_rows(
        unpacked(name), {"topic": "string", "queueId": "int"}, split="queue", logEnd="recovered", failOnDataLoss="false"
    )
    found = Counter((row["topic"], row["queueId"]) for row in queued)
    counts = {
        (topic, int(queue_id)): queue["get_message"]["count"]
        for topic, queues in want["queues"].items()
        for queue_id, queue in queues.items()
        if queue["get_message"]["count"]
    }
    if name.rpartition("/")[2].startswith(REMADE):
        assert found.total() < sum(counts.values()) and set(found) <= set(counts)
    else:
        assert found == counts


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_broker_refuses_can_be_read_all_the_same(
    name: str, unpacked: Callable[[str], Path], expected: Callable[[str], Any]
) -> None:
    assert not expected(name)["load_ok"]
    rows = store_rows(unpacked(name))
    offsets = [row["physicalOffset"] for row in rows]
    assert len(offsets) > 100 and offsets == sorted(set(offsets))
    with pytest.raises(Exception, match="a broker refuses to start on this directory; read it with logEnd=readable"):
        store_rows(unpacked(name), logEnd="recovered")


def test_no_log_is_said_in_one_line(unpacked: Callable[[str], Path]) -> None:
    with pytest.raises(Exception, match=r"option path: no commit log files in .*/store/commitlog$"):
        store_rows(unpacked("c13_all_commitlog_files_missing"))


def test_reading_changes_nothing(unpacked: Callable[[str], Path]) -> None:
    root = unpacked("1b_killed")

    def state() -> dict[str, tuple[int, int]]:
        found = {path: path.stat() for path in root.rglob("*")}
        return {str(path): (stat.st_mtime_ns, stat.st_size) for path, stat in found.items()}

    before = state()
    store_rows(root)
    store_rows(root, split="queue", logEnd="recovered")
    assert state() == before
