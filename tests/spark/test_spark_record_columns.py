"""Records as Arrow columns, compared with the same records decoded one by one."""

from __future__ import annotations

import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from plain_rows import schema_of
from pyspark.sql.pandas.types import to_arrow_schema
from stored_records import encoded

from triomq.protocol import properties, record, sys_flag
from triomq.spark import record_columns
from triomq.spark.columns import KAFKA_COLUMNS, KAFKA_HEADERS, MORE_COLUMNS, STORE_COLUMNS
from triomq.spark.record_columns import RecordColumns, why_not

COLUMNS = {**STORE_COLUMNS, **MORE_COLUMNS}
KAFKA = {**KAFKA_COLUMNS, "headers": KAFKA_HEADERS}
HOSTS = [bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F]), bytes(range(16)) + bytes([0, 0, 0x2A, 0x9F])]
INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
TIMES = st.integers(0, 2**41)
WORDS = st.text("aé\x01日 ", max_size=3).map(str.encode)
NAMES = st.sampled_from([b"TAGS", b"KEYS", b"UNIQ_KEY", b"a", "日".encode(), b"", b"\xff"])
PAIRS = st.tuples(NAMES, WORDS).map(b"\x01".join)
WELL_FORMED = st.dictionaries(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "日"]), st.text("aé\x01", min_size=1))
STORED = WELL_FORMED.map(properties.encode) | st.lists(PAIRS, max_size=4).map(b"\x02".join) | st.binary(max_size=9)
BODIES = st.binary(max_size=20).map(lambda body: (body, 0)) | st.binary(max_size=20).map(
    lambda body: (zlib.compress(body), sys_flag.COMPRESSED)
)


@st.composite
def records(draw: st.DrawFn) -> bytes:
    body, flags = draw(BODIES)
    trailing = draw(st.sampled_from([b"", b"\x02"]))
    tail = encoded(
        draw(st.sampled_from([b"T", "日本".encode(), b"\xfe"])),
        body,
        draw(STORED) + trailing,
        queue_id=draw(INT32),
        flag=draw(INT32),
        queue_offset=draw(st.integers(0, 9)),
        physical_offset=draw(INT64),
        sys_flag=flags,
        born_timestamp=draw(TIMES),
        born_host=draw(st.sampled_from(HOSTS)),
        store_timestamp=draw(TIMES),
        store_host=draw(st.sampled_from(HOSTS)),
        reconsume_times=draw(INT32),
        prepared_transaction_offset=draw(INT64),
    )
    return bytes(tail)


def collected(columns: dict[str, str] = COLUMNS) -> RecordColumns:
    return RecordColumns(to_arrow_schema(schema_of(columns), timezone="UTC"), list(columns), "broker-a")


def rows(columns: RecordColumns) -> list[dict[str, Any]]:
    batch = columns.take()
    batch.validate(full=True)
    return list(batch.to_pylist(maps_as_pydicts="strict"))


def run(columns: RecordColumns, data: bytes, **options: Any) -> int:
    """Walk over all records."""
    at = 0
    while (stop := columns.add_run(data, at, len(data), len(data), **options)) > at:
        at = stop
    return at


def milliseconds(time: Any) -> int:
    return round(time.timestamp() * 1000)


def check_row(row: dict[str, Any], raw: bytes) -> None:
    message = record.decode_record(raw)
    table = properties.parse_bytes(record.read_fields(raw, 0, len(raw)).properties)
    assert (row["topic"], row["brokerName"], row["queueId"]) == (message.topic, "broker-a", message.queue_id)
    assert (row["queueOffset"], row["physicalOffset"]) == (message.queue_offset, message.physical_offset)
    assert (row["body"], row["properties"]) == (message.body, table)
    assert (row["tags"], row["keys"]) == (table.get("TAGS"), table.get("KEYS"))
    assert (row["msgId"], row["offsetMsgId"]) == (table.get("UNIQ_KEY", message.offset_msg_id), message.offset_msg_id)
    assert milliseconds(row["bornTimestamp"]) == message.born_timestamp
    assert milliseconds(row["storeTimestamp"]) == message.store_timestamp
    assert (row["bornHost"], row["storeHost"]) == (message.born_host.text, message.store_host.text)
    assert (row["flag"], row["sysFlag"], row["bodyCrc"]) == (message.flag, message.sys_flag, message.body_crc)
    assert (row["reconsumeTimes"], row["storeSize"]) == (message.reconsume_times, len(raw))
    assert row["preparedTransactionOffset"] == message.prepared_transaction_offset
    assert row["recordCrc32"] == zlib.crc32(raw)


@given(st.lists(records(), min_size=1, max_size=12))
def test_a_row_is_what_the_record_says(raws: list[bytes]) -> None:
    columns = collected()
    data = b"".join(raws)
    assert run(columns, data, check_crc=True) == len(data)
    found = rows(columns)
    assert len(found) == len(raws)
    for row, raw in zip(found, raws, strict=True):
        check_row(row, raw)
    assert len(columns) == 0


@given(st.lists(records(), min_size=1, max_size=12))
def test_kafkas_columns_say_the_same(raws: list[bytes]) -> None:
    columns, kafka = collected(), collected(KAFKA)
    data = b"".join(raws)
    run(columns, data)
    run(kafka, data)
    for row, same in zip(rows(columns), rows(kafka), strict=True):
        assert (same["topic"], same["partition"], same["offset"]) == (row["topic"], row["queueId"], row["queueOffset"])
        assert (same["timestamp"], same["timestampType"]) == (row["storeTimestamp"], record_columns.LOG_APPEND_TIME)
        assert same["value"] == row["body"]
        assert same["key"] == (None if row["keys"] is None else row["keys"].encode())
        assert {item["key"]: item["value"].decode() for item in same["headers"]} == row["properties"]


@given(st.lists(records(), min_size=1, max_size=12), st.integers(0, 9), st.integers(0, 9), st.integers(1, 3))
def test_what_is_not_wanted_is_passed_over(raws: list[bytes], first: int, last: int, kept: int) -> None:
    columns = collected()
    data = b"".join(raws)
    places = [(len(b"".join(raws[:number])), raw) for number, raw in enumerate(raws)]
    assert run(columns, data, first=first, last=last, keeps=lambda: columns.last_at % kept == 0) == len(data)
    wanted = [raw for at, raw in places if first <= record.decode_record(raw).queue_offset < last and at % kept == 0]
    assert len(columns) == len(wanted)
    if wanted:
        for row, raw in zip(rows(columns), wanted, strict=True):
            check_row(row, raw)


@given(st.lists(records(), min_size=1, max_size=3), st.data())
def test_damage_ends_a_run_before_it(raws: list[bytes], data: st.DataObject) -> None:
    """Any byte may change: only whole records are taken, and the run reports where it stopped."""
    names = ("storeSize", "topic", "body", "properties", "msgId", "bornHost")
    spoilt = bytearray(b"".join(raws))
    spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    columns = collected({name: COLUMNS[name] for name in names})
    end = run(columns, bytes(spoilt), check_crc=True)
    if len(columns):
        found = rows(columns)
        assert sum(row["storeSize"] for row in found) == end
    if end < len(spoilt):
        assert why_not(bytes(spoilt), end, len(spoilt)) != "the record was not taken"


def one(body: bytes = b"body", *, flags: int = 0, stored: bytes = b"TAGS\x01A") -> bytes:
    tail = encoded(b"T", body, stored, queue_offset=5, sys_flag=flags, born_host=HOSTS[0], store_host=HOSTS[0])
    return bytes(tail)


def test_why_a_record_was_not_taken_is_said() -> None:
    good = one()
    for data, why in (
        (good[:-1], "102 bytes with magic 0xdaa320a7 are not a record"),
        (good[:4] + bytes(4) + good[8:], "magic 0x00000000 are not a record"),
        (good[:39] + b"\x30" + good[40:], "not a record"),  # IPv6 hosts would not fit
        (good[:88] + b"BODY" + good[92:], "does not match its CRC"),
        (one(b"no zlib", flags=sys_flag.COMPRESSED), "damaged ZLIB body"),
    ):
        columns = collected()
        assert columns.add_run(data, 0, len(data), len(data), check_crc=True) == 0
        assert len(columns) == 0
        assert why in why_not(data, 0, len(data))


def test_a_full_collection_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the decompressed bodies fill it."""
    monkeypatch.setattr(record_columns, "BYTES_PER_BATCH", 100_000)
    raw = one(zlib.compress(bytes(60_000)), flags=sys_flag.COMPRESSED)
    columns = collected()
    stop = columns.add_run(raw * 5, 0, len(raw) * 5, len(raw) * 5)
    assert (stop, columns.is_full) == (2 * len(raw), True)
    assert [len(row["body"]) for row in rows(columns)] == [60_000, 60_000]
    assert not columns.is_full


def test_another_buffer_or_a_place_before_the_last_does_not_fit() -> None:
    columns = collected()
    data, other = one() * 2, one() * 3
    assert columns.fits(data, 0)
    columns.add_run(data, 0, 1, len(data))
    assert columns.fits(data, len(one()))
    assert not columns.fits(data, 0)
    assert not columns.fits(other, len(one()))
    assert (columns.last_topic, columns.last_at, columns.last_properties) == ("T", 0, b"TAGS\x01A")
