"""The offset table and its file."""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triomq.client.consume.first_offset import begin_offset
from triomq.client.consume.offset_store import BrokerOffsets, FileOffsets
from triomq.client.core.errors import LocalOffsetsUnreadable, MQClientError
from triomq.client.core.offsets import LocalOffsetFile, OffsetTable
from triomq.client.core.requests import Call
from triomq.client.core.results import ConsumeFromWhere
from triomq.client.instance.client import Client
from triomq.protocol.codes import RequestCode
from triomq.protocol.message_queue import MessageQueue

Q0, Q1 = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
QUEUES = st.builds(
    MessageQueue, st.text("T%|_-", min_size=1, max_size=5), st.text(min_size=1, max_size=5), st.integers(0, 9)
)


def test_increase_only_ignores_smaller_offsets() -> None:
    table = OffsetTable()
    table.update(Q0, 5)
    table.update(Q0, 3, increase_only=True)
    assert table.get(Q0) == 5
    table.update(Q0, 3)
    assert table.get(Q0) == 3


def test_it_knows_what_changed() -> None:
    table = OffsetTable()
    table.restore(Q1, 9)
    table.update(Q0, 5)
    assert table.changed() == [(Q0, 5)]
    table.update(Q0, 6)
    table.mark_stored(Q0, 5)
    assert table.changed() == [(Q0, 6)]
    table.mark_stored(Q0, 6)
    table.update(Q0, 6)
    assert table.changed() == []
    table.remove(Q0)
    assert table.snapshot() == {Q1: 9}


def test_the_file_keeps_offsets_in_the_form_of_java_whatever_the_address(tmp_path: Path) -> None:
    file = LocalOffsetFile(tmp_path, "10.0.0.1@me", "group")
    assert file.load() == {}
    file.save({Q1: 2, Q0: 1})
    assert file.path == tmp_path / "me" / "group" / "offsets.json"
    text = file.path.read_text()
    assert '"offsetTable"' in text
    assert '{"brokerName":"b","queueId":0,"topic":"T"}:1' in "".join(text.split())
    assert file.load() == {Q0: 1, Q1: 2}


TORN = [
    b"",
    b'{"offsetTable":{{"bro',
    b"[]",
    b"null",
    b'{"offsetTable":5}',
    b'{"offsetTable":{"T":5}}',
    b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:"5"}}',
    b"\x00" * 50,
]


def test_a_torn_file_is_replaced_by_the_one_before(tmp_path: Path) -> None:
    file = LocalOffsetFile(tmp_path, "c", "../../etc")
    assert tmp_path in file.path.resolve().parents
    file.save({Q0: 1})
    file.save({Q0: 2})
    for torn in TORN:
        file.path.write_bytes(torn)
        assert file.load() == {Q0: 1}
        assert file.damage is not None and file.damage.startswith(str(file.path))


async def test_a_consumer_warns_of_a_damaged_file_by_its_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = LocalOffsetFile(tmp_path, "10.0.0.1@me", "group")
    file.save({Q0: 1})
    file.save({Q0: 2})
    file.path.write_bytes(b"")
    offsets = FileOffsets(tmp_path, "10.0.0.1@me", "group")
    with caplog.at_level(logging.WARNING):
        await offsets.open()
    assert (await offsets.read(Q0), len(caplog.records)) == (1, 1)
    assert str(file.path) in caplog.text


@pytest.mark.parametrize("torn", TORN)
def test_a_torn_or_foreign_file_is_no_empty_one(tmp_path: Path, torn: bytes) -> None:
    file = LocalOffsetFile(tmp_path, "10.0.0.1@me", "group")
    file.save({Q0: 1})
    file.path.write_bytes(torn)
    with pytest.raises(LocalOffsetsUnreadable, match=r"offsets\.json cannot be read") as failed:
        file.load()
    assert (failed.value.path, isinstance(failed.value, MQClientError)) == (str(file.path), True)
    file.path.unlink()
    assert file.load() == {}


def test_a_file_that_may_not_be_read_is_no_empty_one(tmp_path: Path) -> None:
    file = LocalOffsetFile(tmp_path, "10.0.0.1@me", "group")
    file.path.mkdir(parents=True)  # like a file without permission, also for the superuser
    with pytest.raises(LocalOffsetsUnreadable, match="IsADirectoryError"):
        file.load()


def test_a_new_address_does_not_begin_anew(tmp_path: Path) -> None:
    """Earlier versions had the address in the path, and RocketMQ's clients have it."""
    for number, address in enumerate(["10.0.0.1", "10.0.0.2", "10.0.0.3"]):
        old = LocalOffsetFile(tmp_path, address, "group")  # no instance: the whole id is the folder
        path = tmp_path / f"{address}@me" / "group" / "offsets.json"
        old.path = path
        old.save({Q0: number})
        os.utime(path, (1000 + number, 1000 + number))
    os.utime(tmp_path / "10.0.0.1@me" / "group" / "offsets.json", (5000, 5000))
    assert LocalOffsetFile(tmp_path, "10.0.0.2@me", "group").load() == {Q0: 1}, "that of the present address"
    file = LocalOffsetFile(tmp_path, "10.0.0.9@me", "group")
    assert file.load() == {Q0: 0}, "else the newest"
    assert LocalOffsetFile(tmp_path, "10.0.0.9@you", "group").load() == {}
    file.save({Q0: 7})
    assert LocalOffsetFile(tmp_path, "10.0.0.2@me", "group").load() == {Q0: 7}
    assert LocalOffsetFile(tmp_path, "10.0.0.1@*", "group").load() == {}, "a name is no pattern"


@settings(max_examples=25)  # each one waits for the disk
@given(table=st.dictionaries(QUEUES, st.integers(0, 2**63 - 1), max_size=6))
def test_whatever_is_saved_is_loaded(table: dict[MessageQueue, int]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        file = LocalOffsetFile(Path(directory), "c", "g")
        file.save(table)
        assert file.load() == table


class Brokers:
    """The client, as far as offsets need one: every request, with the address that got it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, int, dict[str, Any]]] = []

    async def master_of(self, broker_name: str, topic: str) -> str:
        return f"{broker_name}:10911"

    async def readable_broker(self, broker_name: str, topic: str) -> SimpleNamespace:
        return SimpleNamespace(address=f"{broker_name}:10911")

    async def call(self, address: str, call: Call[Any]) -> int:
        self.calls.append((address, call.request.code, dict(call.request.ext_fields or {})))
        return 7


async def test_a_broker_that_is_back_gets_the_offsets_that_it_holds_and_no_others() -> None:
    client = Brokers()
    offsets = BrokerOffsets(cast(Client, client), "G")
    for broker_name in ("a", "b"):
        for number in (0, 1):
            offsets.table.restore(MessageQueue("T", broker_name, number), 5 + number)
    await offsets.store_again("b")
    stored = [(address, fields["queueId"], fields["commitOffset"]) for address, _, fields in client.calls]
    assert [tuple(map(str, each)) for each in stored] == [("b:10911", "0", "5"), ("b:10911", "1", "6")]


@pytest.mark.parametrize(
    ("topic", "start", "code"),
    [
        ("T", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, RequestCode.GET_MAX_OFFSET),
        ("T", ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP),
        ("T", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, None),
        ("%RETRY%G", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, None),
        ("%RETRY%G", ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, RequestCode.GET_MAX_OFFSET),
        ("%RETRY%G", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, None),
    ],
)
async def test_a_new_group_begins_where_it_says_and_in_its_retry_topic_where_rocketmqs_do(
    topic: str, start: ConsumeFromWhere, code: RequestCode | None
) -> None:
    client = Brokers()
    moment = datetime(2026, 5, 5, 12, tzinfo=UTC)
    found = await begin_offset(cast(Client, client), MessageQueue(topic, "a", 0), start, moment)
    assert (found, [asked for _, asked, _ in client.calls]) == ((0, []) if code is None else (7, [code]))
    if code is RequestCode.SEARCH_OFFSET_BY_TIMESTAMP:
        assert str(client.calls[0][2]["timestamp"]) == "1777982400000", "in milliseconds"
