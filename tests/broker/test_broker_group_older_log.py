"""A plain broker becomes a member of a group with the messages that it has."""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio
from broker_whole import ANSWER_SECONDS, WholeBroker, whole_broker
from free_ports import free_port

from triomq.daemon.errors import StartError
from triomq.protocol import record
from triomq.protocol.codes import ResponseCode


def member_settings() -> dict[str, str]:
    peers = f"n0-127.0.0.1:{free_port()}"
    return {"enableDLegerCommitLog": "true", "dLegerGroup": "G", "dLegerSelfId": "n0", "dLegerPeers": peers}


async def is_sent(broker: WholeBroker, body: bytes) -> bool:
    return (await broker.send("T", body=body, queueId=0)).code == ResponseCode.SUCCESS


async def until_sent(broker: WholeBroker, body: bytes) -> None:
    with trio.fail_after(ANSWER_SECONDS):
        while not await is_sent(broker, body):  # noqa: ASYNC110 (over TCP)
            await trio.sleep(0.02)


def bodies_of(data: bytes) -> list[bytes]:
    at, found = 0, []
    while at < len(data):
        fields = record.read_fields(data, at, len(data))
        found.append(data[fields.body_at : fields.body_at + fields.body_length])
        at += fields.size_bytes
    return found


def bodies_in(broker: WholeBroker) -> list[bytes]:
    assert broker.controller.serving is not None
    records = broker.controller.serving.tables.store.reading.get_messages("T", 0, 0, 32).records
    return bodies_of(b"".join(map(bytes, records)))


async def pulled(broker: WholeBroker) -> list[bytes]:
    response = await broker.pull("T", queueId=0, queueOffset=0, maxMsgNums=32)
    assert response.code == ResponseCode.SUCCESS
    return bodies_of(bytes(response.body))


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_plain_broker_becomes_a_group_of_one_with_its_messages(tmp_path: Path, elsewhere: bool) -> None:
    paths = {"storePathCommitLog": f"{tmp_path}/a,{tmp_path}/b"} if elsewhere else {}
    async with whole_broker(tmp_path, **paths) as broker:
        await broker.create_topic("T", 1)
        for number in range(3):
            assert (await broker.send("T", body=b"old %d" % number, queueId=0)).code == ResponseCode.SUCCESS
    for start in range(2):
        async with whole_broker(tmp_path, **paths, **member_settings()) as broker:
            await until_sent(broker, b"new %d" % start)
            wanted = [b"old 0", b"old 1", b"old 2", b"new 0", b"new 1"][: 4 + start]
            assert await pulled(broker) == wanted


async def test_three_copies_of_a_plain_store_become_a_group_of_three(tmp_path: Path) -> None:
    async with whole_broker(tmp_path / "n0") as broker:
        await broker.create_topic("T", 1)
        for number in range(3):
            assert (await broker.send("T", body=b"old %d" % number, queueId=0)).code == ResponseCode.SUCCESS
    for name in ("n1", "n2"):
        shutil.copytree(tmp_path / "n0", tmp_path / name)
    peers = ";".join(f"n{at}-127.0.0.1:{free_port()}" for at in range(3))
    wanted = [b"old 0", b"old 1", b"old 2", b"new"]
    async with AsyncExitStack() as running:
        brokers = []
        for name in ("n0", "n1", "n2"):
            settings = member_settings() | {"dLegerSelfId": name, "dLegerPeers": peers, "slaveReadEnable": "true"}
            brokers.append(await running.enter_async_context(whole_broker(tmp_path / name, **settings)))
        with trio.fail_after(ANSWER_SECONDS):
            while not any([await is_sent(broker, b"new") for broker in brokers]):  # noqa: ASYNC110 (over TCP)
                await trio.sleep(0.02)
            for broker in brokers:
                while len(bodies_in(broker)) < len(wanted):  # noqa: ASYNC110 (a follower hears of a commit later)
                    await trio.sleep(0.02)
                assert bodies_in(broker) == wanted


async def test_a_group_of_one_has_its_ledger_in_several_directories(tmp_path: Path) -> None:
    logs = [f"{tmp_path}/c", f"{tmp_path}/a", f"{tmp_path}/b"]
    paths = {"storePathDLedgerCommitLog": ",".join(logs), "mappedFileSizeCommitLog": "4096"}
    settings = member_settings()
    wanted = [b"%02d" % number + bytes(1200) for number in range(12)]
    async with whole_broker(tmp_path / "store", **paths, **settings) as broker:
        await until_sent(broker, wanted[0])
        for body in wanted[1:]:
            await until_sent(broker, body)
    for at, name in enumerate("abc"):
        numbers = sorted(int(path.name) // 4096 for path in (tmp_path / name).iterdir())
        assert len(numbers) > 1 and {number % 3 for number in numbers} == {at}
    read_only = {"readOnlyCommitLogStorePaths": logs[1]}
    async with whole_broker(tmp_path / "store", **paths, **settings, **read_only) as broker:
        await until_sent(broker, b"end")
        assert await pulled(broker) == [*wanted, b"end"]
        assert broker.controller.serving is not None
        assert list(broker.controller.serving.tables.store.paths.commit_logs) == logs


async def test_a_ledger_does_not_lie_among_the_files_of_the_plain_log(tmp_path: Path) -> None:
    same = {"storePathCommitLog": f"{tmp_path}/log", "storePathDLedgerCommitLog": f"{tmp_path}/data,{tmp_path}/log"}
    with pytest.RaisesGroup(pytest.RaisesExc(StartError, match="a directory of its own"), flatten_subgroups=True):
        async with whole_broker(tmp_path, **same, **member_settings()):
            pass
