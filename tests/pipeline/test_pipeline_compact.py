"""`mqpipeline compact`: the last message of each key."""

from __future__ import annotations

import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables_kept import create, keep, rows, said, send_bodies, started

from triomq.blocking import Message, MessageQueue, Producer, PullConsumer
from triomq.pipeline.tables.keyed import KeyedTarget, last_of_keys, without_earlier
from triomq.pipeline.tables.rows import RAW_SCHEMA
from triomq.spark.jobs import main as jobs
from triomq.testing import LocalCluster

formats = pytest.mark.parametrize("kind", ["delta", "iceberg"])


def words(cluster: LocalCluster, topic: str, *more: str) -> list[str]:
    return ["compact", "-n", cluster.name_server, "--topic", topic, "--once", "--quiet", *more]


def compact(cluster: LocalCluster, topic: str, *more: str) -> int:
    return jobs.main(words(cluster, topic, *more))


def send_keys(cluster: LocalCluster, topic: str, messages: list[tuple[str, bytes]]) -> None:
    """Send messages, in turn to each of three queues."""
    broker = next(iter(cluster.brokers))
    with Producer("writers", name_server=cluster.name_server) as producer:
        for number, (key, body) in enumerate(messages):
            message = Message(topic, body, keys=key) if key else Message(topic, body)
            producer.send(message, queue=MessageQueue(topic, broker, number % 3))


def last(folder: Path, topic: str, kind: str) -> dict[str, bytes]:
    """Return the table as key -> body; each key is there once."""
    table = rows(folder, topic, kind)
    keys = table["keys"].to_pylist()
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, table["body"].to_pylist(), strict=True))


# -- which message is the last ----------------------------------------------------------------------------------------


def made(messages: list[tuple[str | None, int, int]]) -> Any:
    """Return an Arrow table of (key, queue id, second of the store), with the number of each as its offset. As a source
    returns them, those of one queue are together and in order."""
    numbered = sorted(enumerate(messages), key=lambda item: item[1][1])
    columns = {
        "keys": pa.array([key for _, (key, _, _) in numbered], pa.string()),
        "brokerName": ["b"] * len(numbered),
        "queueId": pa.array([queue for _, (_, queue, _) in numbered], pa.int32()),
        "queueOffset": pa.array([number for number, _ in numbered], pa.int64()),
        "storeTimestamp": pa.array(
            [datetime.fromtimestamp(second, UTC) for _, (_, _, second) in numbered], pa.timestamp("us", "UTC")
        ),
    }
    return pa.table(columns)


def offsets(table: Any) -> dict[str, int]:
    return dict(zip(table["keys"].to_pylist(), table["queueOffset"].to_pylist(), strict=True))


places = st.tuples(st.sampled_from(["a", "b", "c", "", None]), st.integers(0, 2), st.integers(0, 5))


@given(st.lists(places))
def test_of_one_queue_the_later_counts_and_of_several_the_one_stored_later(
    messages: list[tuple[str | None, int, int]],
) -> None:
    found = offsets(last_of_keys(made(messages), "keys"))
    assert set(found) == {key for key, _, _ in messages if key}
    for key, offset in found.items():
        newest = {queue: (second, number) for number, (one, queue, second) in enumerate(messages) if one == key}
        assert newest[messages[offset][1]] == (messages[offset][2], offset), "the last one of its queue"
        assert messages[offset][2] == max(second for second, _ in newest.values())


@pytest.mark.parametrize(
    ("row", "present", "replaces"),
    [
        (("a", 0, 5), ("a", 1, 4), True),
        (("a", 0, 4), ("a", 1, 4), True),
        (("a", 0, 3), ("a", 1, 4), False),
        (("a", 0, 3), ("a", 0, 4), True),
        (("a", 0, 3), ("b", 1, 4), True),
    ],
)
def test_a_row_of_another_queue_that_was_stored_later_stays(
    row: tuple[str, int, int], present: tuple[str, int, int], replaces: bool
) -> None:
    before = made([present]).select(["keys", "brokerName", "queueId", "storeTimestamp"])
    before = before.set_column(0, "keys", before["keys"].cast(pa.large_string()))  # as PyIceberg returns it
    assert len(without_earlier(made([row]), before, "keys")) == replaces


# -- tables ------------------------------------------------------------------------------------------------------------


@formats
def test_a_table_has_the_last_message_of_each_key(shop: LocalCluster, tmp_path: Path, kind: str, capsys: Any) -> None:
    topic = f"Last{kind}"
    create(shop, topic)
    to = ["--to", str(tmp_path / "t"), "--format", kind, "--commit-rows", "9"]
    send_keys(shop, topic, [(f"k{number % 7}", b"%d" % number) for number in range(40)] + [("", b"no key")])
    assert compact(shop, topic, *to) == 0
    assert said(capsys) == (f"41 messages compacted into {tmp_path}/t, 1 had no key\n", "")
    assert last(tmp_path / "t", topic, kind) == {f"k{number % 7}": b"%d" % number for number in range(33, 40)}
    send_keys(shop, topic, [(f"k{number}", b"new") for number in range(5, 9)])
    assert compact(shop, topic, *to, "--compact") == 0
    found = last(tmp_path / "t", topic, kind)
    assert found == {f"k{number % 7}": b"%d" % number for number in (35, 36, 37, 38, 39)} | {
        f"k{number}": b"new" for number in range(5, 9)
    }
    assert compact(shop, topic, *to) == 0
    assert said(capsys)[0].endswith(f"\n0 messages compacted into {tmp_path}/t\n")
    assert keep(shop, topic, tmp_path / "t", kind) == 2
    assert said(capsys)[1].endswith("--to: it is a table of the last message of each 'keys'\n")
    assert keep(shop, topic, tmp_path / "all", kind) == 0
    assert compact(shop, topic, "--to", str(tmp_path / "all"), "--format", kind) == 2
    assert said(capsys)[1] == "mqpipeline compact: --to: it is a table of all messages\n"


def test_a_field_of_the_body_can_be_the_key(shop: LocalCluster, tmp_path: Path, capsys: Any) -> None:
    create(shop, "Values")
    send_bodies(shop, "Values", [b'{"id": %d, "n": %d}' % (number % 3, number) for number in range(10)])
    to = ["--to", str(tmp_path / "t"), "--format", "delta", "--value", "json"]
    assert compact(shop, "Values", *to, "--key", "id") == 0
    table = rows(tmp_path / "t", "Values", "delta").sort_by("id")
    assert (table["id"].to_pylist(), table["n"].to_pylist()) == ([0, 1, 2], [9, 7, 8])
    capsys.readouterr()
    for key, why in (("nothing", "there is no such column"), ("body", "it is binary, not bigint or int or string")):
        more = ["--to", str(tmp_path / key), "--format", "delta", "--key", key]
        assert compact(shop, "Values", *more) == 2
        assert said(capsys)[1] == f"mqpipeline compact: --key {key}: {why}\n"


@formats
def test_a_run_that_is_killed_changes_nothing(shop: LocalCluster, tmp_path: Path, kind: str) -> None:
    topic = f"KilledLast{kind}"
    create(shop, topic)
    send_keys(shop, topic, [(f"k{number % 20}", b"%d" % number) for number in range(300)])
    to = ["--to", str(tmp_path / "t"), "--format", kind, "--commit-rows", "20"]
    for seconds in (0.05, 0.2):
        job = started(words(shop, topic, *to))
        deadline = time.monotonic() + 60
        while not (tmp_path / "t").exists() and time.monotonic() < deadline:  # the libraries are loaded
            try:
                job.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
        try:
            job.wait(seconds)
        except subprocess.TimeoutExpired:
            job.kill()
        job.communicate()
    assert compact(shop, topic, *to) == 0
    assert last(tmp_path / "t", topic, kind) == {f"k{number % 20}": b"%d" % number for number in range(280, 300)}


# -- topics ------------------------------------------------------------------------------------------------------------


def stored(cluster: LocalCluster, topic: str) -> list[Any]:
    with PullConsumer("readers", name_server=cluster.name_server) as consumer:
        found = []
        for queue in consumer.queues(topic):
            begin, end = consumer.min_offset(queue), consumer.max_offset(queue)
            while begin < end:
                pulled = consumer.pull(queue, "*", begin)
                found += pulled.messages
                begin = pulled.next_begin_offset
        return found


def test_a_topic_gets_the_last_message_of_each_key(shop: LocalCluster, capsys: Any) -> None:
    create(shop, "Before")
    create(shop, "After")
    send_keys(shop, "Before", [(f"k{number % 5}", b"%d" % number) for number in range(20)] + [("", b"no key")])
    assert compact(shop, "Before", "--to-topic", "After") == 0
    assert said(capsys)[0] == "21 messages compacted into After, 1 had no key\n"
    assert {message.keys: message.body for message in stored(shop, "After")} == {
        f"k{number % 5}": b"%d" % number for number in range(15, 20)
    }
    assert compact(shop, "Before", "--to-topic", "After") == 0
    send_keys(shop, "Before", [("k1", b"new"), ("k1", b"newer")])
    assert compact(shop, "Before", "--to-topic", "After", "--to-name-server", shop.name_server) == 0
    found = stored(shop, "After")
    assert len(found) == 6
    ofs = sorted((message.queue_id, message.body) for message in found if message.keys == "k1")
    assert len({queue for queue, _ in ofs}) == 1, "one key, one queue"
    assert [body for _, body in ofs] == [b"16", b"newer"]
    capsys.readouterr()
    assert compact(shop, "Before", "--to-topic", "After", "--dry-run") == 0
    assert said(capsys)[0].endswith("\n0 rows would be read\n")


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ([], "give either --to or --to-topic"),
        (["--to", "x", "--to-topic", "y"], "give either --to or --to-topic"),
        (["--to", "x"], "--to and --format need each other"),
        (["--to-topic", "Before"], "--to-topic: a topic cannot be compacted into itself"),
        (["--to-topic", "y", "--key", "id"], "--to-topic: messages are sent as they are, by their KEYS: --key and"),
        (["--to-topic", "y", "--store", "z"], "--to-topic needs --name-server: "),
        (["--to-topic", "y", "--compact"], "--compact and --retention-days are for --to"),
        (["--to", "x", "--format", "delta", "--key", ""], "--key: no column is given"),
        (["--to-topic", "bad topic"], "sink: topic 'bad topic': "),
    ],
)
def test_what_is_wrong_is_one_line(more: list[str], what: str, shop: LocalCluster, capsys: Any) -> None:
    create(shop, "Before")
    send_keys(shop, "Before", [("k", b"1")])
    assert compact(shop, "Before", *more) == 2
    err = said(capsys)[1]
    assert err.startswith(f"mqpipeline compact: {what}")
    assert err.count("\n") == 1


def test_a_commit_of_messages_without_a_key_moves_on() -> None:
    class Kept:
        committed: tuple[Any, Any] | None = None

        def kinds(self) -> dict[str, str]:
            return {"keys": "string"}

        def commit(self, table: Any, positions: Any) -> None:
            self.committed = (len(table), positions)

    kept: Any = Kept()
    target = KeyedTarget(kept, "keys")
    empty = RAW_SCHEMA.empty_table()
    target.commit(empty, {MessageQueue("T", "b", 0): 7})
    assert kept.committed == (0, {MessageQueue("T", "b", 0): 7})
    assert target.unkeyed == 0
