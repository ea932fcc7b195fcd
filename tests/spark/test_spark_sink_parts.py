"""The sink's parts without Spark and broker: columns, rows, markers, and where a batch begins."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from triomq.protocol import properties
from triomq.protocol.message_queue import MessageQueue
from triomq.spark import markers
from triomq.spark.errors import OptionError
from triomq.spark.outgoing import RowReader, sink_columns


def schema(**kinds: str) -> Any:
    def field(name: str, kind: str) -> Any:
        return SimpleNamespace(name=name, dataType=SimpleNamespace(simpleString=lambda: kind))

    return SimpleNamespace(fields=[field(name, kind) for name, kind in kinds.items()])


def test_columns_of_the_sink() -> None:
    assert sink_columns(schema(queueOffset="bigint", value="string", key="string"), "T") == {"body": 1, "keys": 2}
    with pytest.raises(OptionError, match="sink: column 'boddy' is not one of body,"):
        sink_columns(schema(boddy="binary"), "T")
    with pytest.raises(OptionError, match="sink: column 'body' is int, not binary or string"):
        sink_columns(schema(body="int"), "T")
    with pytest.raises(OptionError, match="neither a column topic nor the option topic"):
        sink_columns(schema(body="binary"), None)
    with pytest.raises(OptionError, match="body is given twice"):
        sink_columns(schema(body="binary", value="binary"), "T")


class Table:
    """The part of a RecordBatch that the reader uses."""

    def __init__(self, **columns: list[Any]) -> None:
        self.columns = list(columns.values())
        self.num_rows = len(self.columns[0])

    def column(self, at: int) -> Any:
        return SimpleNamespace(to_pylist=lambda: self.columns[at])


def test_a_row_becomes_a_message() -> None:
    names = ("body", "tags", "keys", "delayLevel", "properties")
    rows = RowReader({name: at for at, name in enumerate(names)}, "T", "k:7:0:", lambda: "ID")
    table = Table(
        body=["text", b"b"],
        tags=["a", None],
        keys=["k1 k2", None],
        delayLevel=[None, 3],
        properties=[[("color", "red"), ("CLUSTER", "c"), ("SPARK_BATCH", "old"), ("UNIQ_KEY", "U")], None],
    )
    first, second = rows.messages(table)
    stored = properties.parse_bytes(first.properties)
    assert stored.pop("SPARK_BATCH") == "k:7:0:" + first.digest
    assert stored == {"color": "red", "TAGS": "a", "KEYS": "k1 k2", "UNIQ_KEY": "U"}
    assert (first.body, second.delay_level, properties.parse_bytes(second.properties)["DELAY"]) == (b"text", 3, "3")


def test_equal_rows_have_equal_digests_and_others_do_not() -> None:
    def digests(*bodies: bytes) -> list[str]:
        rows = RowReader({"body": 0, "tags": 1}, "T", "p:", iter(map(str, range(9))).__next__)
        return [message.digest for message in rows.messages(Table(body=list(bodies), tags=["x"] * len(bodies)))]

    a, b, c = digests(b"a", b"b", b"a")
    assert a == c != b
    assert digests(b"a") == [a]


@pytest.mark.parametrize(
    ("topic", "message"), [("SCHEDULE_TOPIC_XXXX", "is forbidden"), ("a b", "illegal characters"), (None, "no topic")]
)
def test_topics_that_cannot_be_written(topic: str | None, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        RowReader({"body": 0, "topic": 1}, None, None, lambda: "ID").messages(Table(body=[b"x"], topic=[topic]))


def test_a_row_without_body_is_named_by_its_keys() -> None:
    rows = Table(body=[b"x", None], keys=["k1", "k2"])
    with pytest.raises(OptionError, match="a row with keys 'k2' has no body"):
        RowReader({"body": 0, "keys": 1}, "T", None, lambda: "ID").messages(rows)


def test_markers_are_counted_in_raw_records() -> None:
    found: Counter[str] = Counter()
    digest = markers.digest([b"row"])
    data = b"..SPARK_BATCH\x01k:1:0:" + digest.encode() + b"\x02.." * 2
    markers.count(data + data + b"SPARK_BATCH\x01k:1:1:" + digest.encode(), b"SPARK_BATCH\x01k:1:0:", found)
    assert found == {digest: 2}
    assert markers.digest([b"a", b"bc"]) != markers.digest([b"ab", b"c"])


class FakeGroups:
    """Offsets of groups at brokers of which only `registered` have a route; every queue ends at 7."""

    def __init__(self, registered: str) -> None:
        self.registered = registered
        self.stored: dict[str, dict[MessageQueue, int]] = {}

    def has_route(self, queue: MessageQueue) -> bool:
        return queue.broker_name in self.registered

    def max_offsets(self, queues: list[MessageQueue]) -> dict[MessageQueue, int]:
        assert all(self.has_route(queue) for queue in queues), "a broker without a route is never found"
        return dict.fromkeys(queues, 7)

    def group_offsets(self, group: str, queues: list[MessageQueue]) -> dict[MessageQueue, int]:
        return {queue: offset for queue, offset in self.stored.get(group, {}).items() if queue in queues}

    def store_group_offsets(self, group: str, offsets: dict[MessageQueue, int]) -> None:
        self.stored.setdefault(group, {}).update(offsets)


def test_a_commit_notes_the_ends_of_those_queues_whose_route_is_known() -> None:
    here, elsewhere = MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)
    groups: Any = FakeGroups("a")
    markers.Beginnings(groups, "key", 4).commit([here, elsewhere])
    assert groups.stored == {"SPARK_SINK_key_1": {here: 8}}
    groups = FakeGroups("")
    markers.Beginnings(groups, "key", 4).commit([here, elsewhere])
    assert groups.stored == {}


def test_a_batch_begins_at_the_commit_before_it_or_at_the_end_that_its_first_attempt_found() -> None:
    old, new = MessageQueue("T", "a", 0), MessageQueue("T", "a", 1)
    groups: Any = FakeGroups("a")
    groups.stored["SPARK_SINK_key_1"] = {old: 4}
    groups.stored["SPARK_SINK_key_0"] = {new: 2}
    groups.stored["SPARK_SINK_key_1"][new] = 0  # what brokers return for offsets that they do not have
    for _ in range(2):
        assert markers.Beginnings(groups, "key", 5).find([old, new], 9) == {old: 3, new: 7}
    assert groups.stored["SPARK_SINK_key_1_9"] == {new: 8}
    groups.stored["SPARK_SINK_key_1_9"] = {new: 6}
    assert markers.Beginnings(groups, "key", 7).find([old, new], 9) == {old: 3, new: 5}


class FakeQueues:
    """Queues of records with one marker each; `records` grows as a test stores rows."""

    def __init__(self, *queues: MessageQueue) -> None:
        self.records: dict[MessageQueue, list[bytes]] = {queue: [] for queue in queues}

    def store(self, queue: MessageQueue, *texts: str) -> None:
        self.records[queue] += [b"SPARK_BATCH\x01k:1:0:" + markers.digest([text.encode()]).encode() for text in texts]

    def max_offsets(self, queues: list[MessageQueue]) -> dict[MessageQueue, int]:
        return {queue: len(self.records[queue]) for queue in queues}


class FakeRange:
    """A QueueRange over FakeQueues: one run with all records of the range."""

    def __init__(self, cluster: FakeQueues, queue: MessageQueue, begin: int, end: int, pull: Any) -> None:
        self.run = b"".join(cluster.records[queue][begin:end])

    def bodies(self) -> list[tuple[bytes, int, int]]:
        return [(self.run, 0, 0)]


HERE = MessageQueue("T", "b", 0)


def stored_rows(queues: Any, begins: dict[MessageQueue, int] | None, patch: pytest.MonkeyPatch) -> markers.StoredRows:
    patch.setattr(markers, "QueueRange", FakeRange)
    found = markers.StoredRows(queues, "k:1:0:", "g", lambda asked: begins)
    found.look_into([HERE])
    return found


def digest_of(text: str) -> str:
    return markers.digest([text.encode()])


def test_each_stored_row_is_taken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    queues = FakeQueues(HERE)
    queues.store(HERE, "before", "a", "b", "a")
    found = stored_rows(queues, {HERE: 1}, monkeypatch)
    assert [found.take(digest_of(text)) for text in ("a", "a", "a", "b", "before")] == [True, True, False, True, False]
    assert not stored_rows(queues, None, monkeypatch).take(digest_of("a")), "there was no earlier attempt"


def test_a_lost_response_is_looked_for_behind_what_is_accounted_for(monkeypatch: pytest.MonkeyPatch) -> None:
    queues = FakeQueues(HERE)
    queues.store(HERE, "old")
    found = stored_rows(queues, None, monkeypatch)
    assert found.of_lost_response([HERE]) == {}, "what was there before the task is accounted for"
    found = stored_rows(queues, None, monkeypatch)
    queues.store(HERE, "a")
    found.confirm(HERE, 2)
    queues.store(HERE, "b")
    assert found.of_lost_response([HERE]) == {digest_of("b"): 1}
    assert found.of_lost_response([HERE]) == {}, "what was found once is accounted for"
    queues.store(HERE, "c")
    found.confirm(HERE, 1)  # from an earlier request: the offset never moves back
    assert found.of_lost_response([HERE]) == {digest_of("c"): 1}
