"""A send that the state of the broker refuses says what is wrong and where; the first one after its end is taken."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from broker_whole import WholeBroker, whole_broker
from file_faults import WRITES, FaultyFiles

from triomq.protocol.codes import ResponseCode


class Disk(FaultyFiles):
    """A disk that is full at times."""

    def __init__(self) -> None:
        super().__init__(usage=0.5)

    def fill(self) -> None:
        self.usage = 0.97

    def recover(self) -> None:
        self.usage = 0.5
        self.mend()


def check_disk(broker: WholeBroker) -> None:
    broker.controller.serving.store.retention.check_disk()


FAULTS: dict[str, tuple[Callable[[Disk], object], list[str]]] = {
    "usage": (Disk.fill, ["/store/commitlog is 97.0% full", "above 90.0% (diskSpaceWarningLevelRatio)"]),
    "log": (
        lambda disk: disk.fail(errno.ENOSPC, *WRITES, where="commitlog"),
        ["no space for 1 messages in the commit log", "No space left on device"],
    ),
    "descriptors": (
        lambda disk: disk.fail(errno.EMFILE, *WRITES, where="commitlog"),
        ["no descriptor for 1 messages in the commit log", "Too many open files"],
    ),
}


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_full_disk_is_named_and_the_first_send_after_it_is_taken(
    tmp_path: Path, fault: str, flush: str
) -> None:
    disk = Disk()
    begin, words = FAULTS[fault]
    async with whole_broker(tmp_path, files=disk, flushDiskType=flush) as broker:
        await broker.create_topic("T")
        begin(disk)
        check_disk(broker)
        for _ in range(2):
            refused = await broker.send("T")
            assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert (refused.remark or "").startswith("service not available now: ")
            assert [word for word in words if word not in (refused.remark or "")] == []
        disk.recover()
        assert (await broker.send("T")).code == ResponseCode.SUCCESS


async def test_a_broken_store_says_what_broke_and_what_helps(tmp_path: Path) -> None:
    disk = Disk()
    async with whole_broker(tmp_path, files=disk) as broker:
        await broker.create_topic("T")
        disk.fail(errno.EIO, *WRITES, where="commitlog")
        first = await broker.send("T")
        disk.recover()
        second = await broker.send("T")
        assert {first.code, second.code} == {ResponseCode.SERVICE_NOT_AVAILABLE}
        assert "Input/output error" in (first.remark or "")
        assert "restarted" in (second.remark or "") and "Input/output error" in (second.remark or "")


async def test_a_slave_says_that_it_is_one(tmp_path: Path) -> None:
    async with whole_broker(tmp_path, brokerRole="SLAVE", brokerId="1") as broker:
        refused = await broker.send("TBW102")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert refused.remark == "service not available now: the store belongs to a slave"


async def test_a_message_that_cannot_be_sent_back_or_committed_has_the_reason(tmp_path: Path) -> None:
    disk = Disk()
    async with whole_broker(tmp_path, files=disk) as broker:
        await broker.create_topic("T")
        half = await broker.send("T", properties="TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01U", sysFlag=4)
        stored = await broker.send("T")
        fields = half.ext_fields or {}
        offset = int((stored.ext_fields or {})["msgId"][-16:], 16)
        await broker.ask(200, {"groupName": "G"}, b'{"groupName":"G","consumeEnable":true}')
        disk.fill()
        check_disk(broker)
        back = await broker.ask(36, {"group": "G", "offset": offset, "delayLevel": 3, "originMsgId": "U"})
        commit = {
            "producerGroup": "P",
            "tranStateTableOffset": fields["queueOffset"],
            "commitLogOffset": int(fields["msgId"][-16:], 16),
            "commitOrRollback": 8,
            "msgId": fields["msgId"],
        }
        ended = await broker.ask(37, commit)
        assert (back.remark or "").startswith("SERVICE_NOT_AVAILABLE: the disk of ")
        assert (ended.remark or "").startswith("Service not available now: the disk of ")
