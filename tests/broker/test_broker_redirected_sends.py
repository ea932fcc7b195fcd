"""What half and delayed messages look like in the store: as RocketMQ stores them, in whatever order."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_whole import whole_broker

from triomq.protocol import properties as property_text
from triomq.protocol import sys_flag
from triomq.protocol.codes import ResponseCode
from triomq.protocol.java import string_hash
from triomq.protocol.record import read_fields
from triomq.protocol.system_topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC

HALF, DELAY = "TRAN_MSG\x01true", "DELAY\x013"
KEYS = "KEYS\x01k1 k2\x02TAGS\x01t\x02UNIQ_KEY\x01U1"
CASES = {
    "half": f"{KEYS}\x02{HALF}\x02WAIT\x01false\x02PGROUP\x01P",
    "half, ends with a separator": f"{KEYS}\x02{HALF}\x02",
    "half, in another spelling": f"{KEYS}\x02TRAN_MSG\x01True",
    "half with a delay": f"{KEYS}\x02{HALF}\x02{DELAY}",
    "half with its own CLUSTER": f"CLUSTER\x01mine\x02{KEYS}\x02{HALF}",
    "half that was sent elsewhere": f"REAL_TOPIC\x01Other\x02REAL_QID\x017\x02{HALF}\x02{KEYS}",
    "half with repeated names": f"TAGS\x01u\x02{HALF}\x02{KEYS}",
    "half that is not ASCII": f"name\x01ü\x02{HALF}\x02{KEYS}",
    "delayed": f"{KEYS}\x02WAIT\x01true\x02{DELAY}",
    "delayed, ends with two separators": f"{KEYS}\x02{DELAY}\x02\x02",
    "delayed above the last level": f"DELAY\x0199\x02{KEYS}",
    "delayed in other digits": f"DELAY\x01003\x02{KEYS}",
    "delayed with empty properties": f"empty\x01\x02{DELAY}\x02{KEYS}",
    "delayed with a lonely name": f"{DELAY}\x02lonely\x02{KEYS}",
    "delayed, and no half": f"{DELAY}\x02{KEYS}\x02TRAN_MSG\x01false",
    "delayed that was sent elsewhere": f"{DELAY}\x02{KEYS}\x02REAL_TOPIC\x01Other",
    "not delayed": f"{KEYS}\x02DELAY\x010",
    "no half": f"{KEYS}\x02TRAN_MSG\x01false",
}


@pytest.mark.parametrize("case", CASES)
async def test_a_redirected_message_keeps_its_properties_and_gets_the_brokers(tmp_path: Path, case: str) -> None:
    table = property_text.parse(CASES[case])
    is_half = table.get("TRAN_MSG", "").lower() == "true"
    level = 0 if is_half else min(int(table.get("DELAY", "0")), 18)
    where, queue_id = (TRANS_HALF_TOPIC, 0) if is_half else (SCHEDULE_TOPIC, level - 1) if level else ("T", 1)
    if level == 18:
        table["DELAY"] = "18"
    if not is_half and "DELAY" not in table:
        table.pop("WAIT", None)
    table["CLUSTER"] = "DefaultCluster"
    if where != "T":
        table.update(REAL_TOPIC="T", REAL_QID="1")
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T")
        flags = sys_flag.TRANSACTION_PREPARED if is_half else 0
        sent = await broker.send("T", queueId=1, properties=CASES[case], sysFlag=flags)
        assert sent.code == ResponseCode.SUCCESS
        reading = broker.controller.serving.store.reading
        [(physical_offset, size, code)] = reading.queue_entries(where, queue_id, 0, 2)
        record = read_fields(reading.record_of_entry(physical_offset, size) or b"", 0, size)
        assert property_text.parse_bytes(record.properties) == table
        assert record.properties == property_text.encode(property_text.parse_bytes(record.properties)), "each once"
        assert (record.topic, record.queue_id) == (where.encode(), queue_id)
        delay_ms = 10_000 if level == 3 else 7_200_000
        assert code == (record.store_timestamp + delay_ms if level else string_hash("t"))
        assert sys_flag.transaction_type(record.sys_flag) == sys_flag.TRANSACTION_NOT
        for key in ("k1", "k2", "U1"):
            assert reading.offsets_by_key(where, key, 8, 0, 1 << 62) == [physical_offset]


@pytest.mark.parametrize("delay", ["x", "3.5"])
async def test_a_delay_that_is_no_number_is_refused(tmp_path: Path, delay: str) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T")
        refused = await broker.send("T", properties=f"{KEYS}\x02DELAY\x01{delay}")
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "the property DELAY must be the number of a delay level" in (refused.remark or "")


async def test_half_messages_are_refused_where_the_broker_rejects_them(tmp_path: Path) -> None:
    async with whole_broker(tmp_path, rejectTransactionMessage="true") as broker:
        await broker.create_topic("T")
        refused = await broker.send("T", properties=f"{KEYS}\x02{HALF}", sysFlag=sys_flag.TRANSACTION_PREPARED)
        assert refused.code == ResponseCode.NO_PERMISSION
        assert "sending transaction message is forbidden" in (refused.remark or "")


async def test_a_delayed_message_of_type_prepared_is_not_delayed(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T")
        flags = sys_flag.TRANSACTION_PREPARED
        assert (await broker.send("T", properties=f"{KEYS}\x02{DELAY}", sysFlag=flags)).code == ResponseCode.SUCCESS
        assert broker.controller.serving.store.reading.max_offset(SCHEDULE_TOPIC, 2) == 0
