"""The tables that a slave copies from its master over remoting (RocketMQ: SlaveSynchronize)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from store_support import inline, message, open_store
from structlog.testing import capture_logs
from trio.testing import MockClock

from triomq.broker.replication.master_account import MAX_FILE_BYTES, MasterAccount
from triomq.broker.replication.master_tables import MasterTables
from triomq.broker.tables.delay_offsets import DelayOffsets
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.topics import TopicTable
from triomq.protocol.bodies.topic_config import TopicConfig
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.signature import is_bound_by, is_signed_by
from triomq.remoting.errors import ConnectFailed
from triomq.store.config import BrokerRole


class FakeMaster:
    """Responds to a slave's requests; codes in `failing` fail, those in `odd` get an unreadable body."""

    def __init__(self) -> None:
        self.topics, self.groups, self.offsets, self.delays = tables()
        self.asked: list[tuple[str, int]] = []
        self.requests: list[RemotingCommand] = []
        self.refuses = False
        self.failing: set[int] = set()
        self.odd: set[int] = set()

    async def invoke(self, address: str, command: RemotingCommand, timeout_seconds: float) -> RemotingCommand:
        self.asked.append((address, command.code))
        self.requests.append(command)
        if self.refuses:
            return new_response(command, 1, "org.apache.rocketmq.acl.common.AclException: No accessKey is configured")
        if command.code in self.failing:
            raise ConnectFailed("no")
        bodies = {
            RequestCode.GET_ALL_TOPIC_CONFIG: self.topics.wrapper().encode,
            RequestCode.GET_ALL_CONSUMER_OFFSET: self.offsets.wrapper().encode,
            RequestCode.GET_ALL_DELAY_OFFSET: self.delays.wrapper().encode,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.groups.wrapper().encode,
        }
        body = b"{nonsense" if command.code in self.odd else bodies[RequestCode(command.code)]()
        return new_response(command, body=body)


def tables(now_ms: int = 5) -> tuple[TopicTable, GroupTable, OffsetTable, DelayOffsets]:
    offsets, delays = OffsetTable(offload=inline), DelayOffsets(offload=inline)
    return TopicTable(now_ms=lambda: now_ms), GroupTable(now_ms=lambda: now_ms), offsets, delays


class Slave:
    def __init__(
        self, master: FakeMaster, *, is_trusted: bool = True, sign: Callable[[RemotingCommand], None] | None = None
    ) -> None:
        self.is_trusted = is_trusted
        client: Any = master
        self.topics, self.groups, self.offsets, self.delays = tables(now_ms=7)
        self.tables = MasterTables(
            client,
            self.topics,
            self.groups,
            self.offsets,
            self.delays,
            is_trusted=lambda: self.is_trusted,
            sign=sign,
        )
        self.tables.master_known("10.0.0.1:10911")


class Group:
    """What a member of a group knows of its leader."""

    def __init__(self, *, copies_tables: bool, address: str | None) -> None:
        self.copies_tables = copies_tables
        self.address = address

    def address_of_master(self) -> str | None:
        return self.address


@pytest.fixture
def master() -> FakeMaster:
    master = FakeMaster()
    master.topics.update(TopicConfig(topic_name="T", read_queue_nums=3))
    master.groups.find("CID")
    master.offsets.commit("CID", "T", 2, 44)
    master.delays.set(3, 9)
    return master


async def test_everything_is_taken_over(master: FakeMaster) -> None:
    slave = Slave(master)
    slave.topics.update(TopicConfig(topic_name="Gone"))
    slave.offsets.commit("CID", "T", 1, 5)
    slave.offsets.commit("Other", "T", 0, 6)
    await slave.tables.sync()
    assert set(slave.topics.names()) == set(master.topics.names())
    assert slave.topics.data_version == master.topics.data_version
    assert slave.groups.get("CID") == master.groups.get("CID")
    assert slave.offsets.queues("CID", "T") == {2: 44}  # whole entries replace its own
    assert slave.offsets.query("Other", "T", 0) == 6  # and entries that the master lacks stay
    assert dict(slave.delays.items()) == {3: 9}


async def test_topics_are_asked_for_at_the_fast_port(master: FakeMaster) -> None:
    await Slave(master).tables.sync()
    assert master.asked == [
        ("10.0.0.1:10909", RequestCode.GET_ALL_TOPIC_CONFIG),
        ("10.0.0.1:10911", RequestCode.GET_ALL_CONSUMER_OFFSET),
        ("10.0.0.1:10911", RequestCode.GET_ALL_DELAY_OFFSET),
        ("10.0.0.1:10911", RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    ]


@pytest.mark.parametrize("kind", ["failing", "odd"])
async def test_one_that_fails_leaves_the_others(master: FakeMaster, kind: str) -> None:
    slave = Slave(master)
    getattr(master, kind).update({RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_DELAY_OFFSET})
    await slave.tables.sync()
    assert slave.topics.get("T") is None
    assert dict(slave.delays.items()) == {}
    assert slave.offsets.query("CID", "T", 2) == 44
    assert slave.groups.get("CID") is not None
    getattr(master, kind).clear()
    await slave.tables.sync()
    assert slave.topics.get("T") is not None


async def test_nothing_is_asked_without_a_master_or_of_one_with_another_log(master: FakeMaster) -> None:
    slave = Slave(master, is_trusted=False)
    await slave.tables.sync()
    slave.is_trusted = True
    slave.tables.master_known(None)
    await slave.tables.sync()
    assert master.asked == []


@pytest.mark.parametrize("change", ["another log", "another master"])
async def test_nothing_is_taken_of_a_master_that_changed_while_it_was_asked(master: FakeMaster, change: str) -> None:
    """A master that restarts without its store would erase its slave's tables, too."""
    slave = Slave(master)
    slave.topics.update(TopicConfig(topic_name="Kept"))
    answer = master.invoke

    async def invoke(address: str, command: RemotingCommand, timeout_seconds: float) -> RemotingCommand:
        response = await answer(address, command, timeout_seconds)
        if change == "another log":
            slave.is_trusted = False
        else:
            slave.tables.master_known("10.0.0.2:10911")
        return response

    master.invoke = invoke  # type: ignore[method-assign]
    await slave.tables.sync()
    assert "Kept" in slave.topics.names()
    assert slave.topics.get("T") is None
    assert master.asked == [("10.0.0.1:10909", RequestCode.GET_ALL_TOPIC_CONFIG)], "nothing more is asked"


async def test_requests_carry_the_account_of_the_tools_file(master: FakeMaster, tmp_path: Path) -> None:
    file = tmp_path / "tools.yml"
    slave = Slave(master, sign=MasterAccount(file, lambda: 1_700_000_000_000).sign)
    await slave.tables.sync()
    assert [request.ext_fields for request in master.requests] == [None] * 4, "there is no file"
    master.requests.clear()
    file.write_text("accessKey: 00012345\nsecretKey: 10000000\n")
    await slave.tables.sync()
    assert len(master.requests) == 4
    for request in master.requests:
        fields = request.ext_fields or {}
        assert fields["AccessKey"] == "00012345"
        assert is_signed_by(fields, b"", "10000000")
        assert is_bound_by(request.code, fields, b"", "10000000")
    assert len({(request.ext_fields or {})["SignedAt"] for request in master.requests}) == 4


async def test_the_account_may_be_in_variables_and_its_secret_in_a_file(master: FakeMaster, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text("10000000\n")
    tools = tmp_path / "tools.yml"
    tools.write_text("accessKey: 00012345\nsecretKeyFile: secret\n")
    missing = tmp_path / "missing.yml"
    for file, variables in (
        (tools, {}),
        (missing, {"TRIOMQ_ACCESS_KEY": "00012345", "TRIOMQ_SECRET_KEY": "10000000"}),
        (missing, {"TRIOMQ_ACCESS_KEY": "00012345", "TRIOMQ_SECRET_KEY_FILE": str(secret)}),
    ):
        master.requests.clear()
        await Slave(master, sign=MasterAccount(file, lambda: 5, variables).sign).tables.sync()
        assert len(master.requests) == 4
        for request in master.requests:
            assert is_signed_by(request.ext_fields or {}, b"", "10000000")


@pytest.mark.parametrize(
    ("text", "variables", "reason"),
    [
        ("accessKey: a\nsecretKey: hush\nsecretKeyFile: f", {}, "secretKey and secretKeyFile are both set"),
        ("accessKey: a\nsecretKeyFile: f", {}, "f cannot be read: No such file"),
        (
            "",
            {"TRIOMQ_ACCESS_KEY": "a", "TRIOMQ_SECRET_KEY": "hush", "TRIOMQ_SECRET_KEY_FILE": "f"},
            "TRIOMQ_SECRET_KEY and TRIOMQ_SECRET_KEY_FILE are both set",
        ),
        ("", {"TRIOMQ_SECRET_KEY": "hush"}, "TRIOMQ_ACCESS_KEY and TRIOMQ_SECRET_KEY are expected"),
        (
            "accessKey: a\nsecretKey: hush",
            {"TRIOMQ_ACCESS_KEY": "a", "TRIOMQ_SECRET_KEY": "hush"},
            "two accounts: in the variables TRIOMQ_ACCESS_KEY and TRIOMQ_SECRET_KEY, and in this file",
        ),
    ],
)
async def test_an_account_with_two_origins_or_half_of_one_is_an_error(
    master: FakeMaster, tmp_path: Path, text: str, variables: dict[str, str], reason: str
) -> None:
    file = tmp_path / "tools.yml"
    file.write_text(text)
    with capture_logs() as logs:
        await Slave(master, sign=MasterAccount(file, lambda: 5, variables).sign).tables.sync()
    assert [request.ext_fields for request in master.requests] == [None] * 4
    (said,) = [entry for entry in logs if entry["event"] == "account for the master not read"]
    assert reason in said["reason"]
    assert "hush" not in str(said)


async def test_an_empty_tools_file_is_no_account_and_no_warning(master: FakeMaster, tmp_path: Path) -> None:
    file = tmp_path / "tools.yml"
    file.write_text("# accessKey: operator\n")
    with capture_logs() as logs:
        await Slave(master, sign=MasterAccount(file, lambda: 5, {}).sign).tables.sync()
    assert [request.ext_fields for request in master.requests] == [None] * 4
    assert "account for the master not read" not in {entry["event"] for entry in logs}


@pytest.mark.parametrize(
    "data",
    [
        b"[",
        b"- a",
        b"accessKey: a",
        b"accessKey: a\nsecretKey: [hush]",
        b"\xff\xfe\x00",
        b"accessKey: hush\n" * (MAX_FILE_BYTES // 10),
    ],
    ids=["yaml", "list", "half", "nested", "bytes", "long"],
)
async def test_a_tools_file_that_cannot_be_used_is_said_once(master: FakeMaster, tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "tools.yml"
    file.write_bytes(data)
    with capture_logs() as logs:
        await Slave(master, sign=MasterAccount(file, lambda: 5).sign).tables.sync()
    assert [request.ext_fields for request in master.requests] == [None] * 4
    (said,) = [entry for entry in logs if entry["event"] == "account for the master not read"]
    assert said["path"] == str(file)
    assert "hush" not in str(said["reason"])


async def test_a_master_that_is_gone_is_said_once_a_minute(master: FakeMaster, autojump_clock: MockClock) -> None:
    slave = Slave(master)
    master.failing = {RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_CONSUMER_OFFSET}
    with capture_logs() as lines:
        for _ in range(90):
            await slave.tables.sync()
            await trio.sleep(1)
    said = [line["event"] for line in lines if line["log_level"] == "warning"]
    assert said == ["tables not copied; trying again"] * 2
    master.failing = set()
    await trio.sleep(20)
    with capture_logs() as lines:
        await slave.tables.sync()
    assert [line["event"] for line in lines if "again" in line["event"]] == ["tables copied again"]


async def test_the_tables_come_when_the_master_is_known_and_its_log_matches(
    autojump_clock: MockClock, nursery: trio.Nursery, master: FakeMaster, tmp_path: Path
) -> None:
    slave = Slave(master, is_trusted=False)
    store = await open_store(tmp_path, broker_role=BrokerRole.SLAVE)
    nursery.start_soon(slave.tables.run, store)
    await trio.sleep(5)
    assert master.asked == []
    slave.is_trusted = True
    await trio.sleep(1.5)
    assert slave.topics.get("T") is not None
    asked = len(master.asked)
    await trio.sleep(60)
    assert len(master.asked) == asked, "nothing is new"
    slave.tables.master_known("10.0.0.9:10911")
    await trio.sleep(1.5)
    assert len(master.asked) == 2 * asked


async def test_a_member_of_a_group_copies_the_tables_each_second(
    autojump_clock: MockClock, nursery: trio.Nursery, master: FakeMaster, tmp_path: Path
) -> None:
    """What a follower lacks at a failover is consumed again."""
    slave = Slave(master)
    store = await open_store(tmp_path, broker_role=BrokerRole.SLAVE)
    nursery.start_soon(slave.tables.run, store, 1.0)
    await trio.sleep(0.1)
    once = len(master.asked)
    for second in range(1, 11):
        await trio.sleep(1)
        assert len(master.asked) == (second + 1) * once
    slave.tables.master_known(None)
    await trio.sleep(10)
    assert len(master.asked) == 11 * once
    slave.tables.master_known("10.0.0.9:10911")
    await trio.sleep(1.5)
    assert len(master.asked) > 11 * once


async def test_a_topic_that_arrives_in_the_log_is_looked_up_at_once_and_only_once(
    autojump_clock: MockClock, nursery: trio.Nursery, master: FakeMaster, tmp_path: Path
) -> None:
    slave = Slave(master)
    source = await open_store(tmp_path / "master")
    store = await open_store(tmp_path / "slave", broker_role=BrokerRole.SLAVE)
    nursery.start_soon(slave.tables.run, store)
    await trio.sleep(5)

    async def replicate(topic: str, queue_id: int = 0) -> None:
        begin = source.reading.max_physical_offset
        source.append(message(topic, queue_id))
        source.commit()
        assert store.replica.append(begin, source.reading.read_log(begin, 4096))
        store.replica.dispatch()
        await trio.sleep(0.3)

    master.topics.update(TopicConfig(topic_name="New", read_queue_nums=3))
    asked = len(master.asked)
    await replicate("New")
    assert slave.topics.get("New") is not None
    assert len(master.asked) == asked + 4
    await replicate("New", 1)
    await replicate("%LMQ%client")
    assert len(master.asked) == asked + 4, "a further queue, and a queue that has no topic, need no table"
    await replicate("Deleted")
    await replicate("New", 2)
    assert len(master.asked) == asked + 8, "a topic that the master does not know is looked up once"
    await source.close()


async def test_tables_are_copied_from_where_members_of_the_group_reach_the_master(master: FakeMaster) -> None:
    slave = Slave(master)
    group = Group(copies_tables=True, address="10.9.9.9:10911")
    slave.tables.join(group)
    await slave.tables.sync()
    assert {address for address, _ in master.asked} == {"10.9.9.9:10911", "10.9.9.9:10909"}
    assert slave.tables.are_current
    group.address = None
    assert not slave.tables.are_current, "another master, whose tables were not copied yet"


async def test_a_table_that_cannot_be_copied_leaves_the_tables_out_of_date(master: FakeMaster) -> None:
    slave = Slave(master)
    master.failing = {RequestCode.GET_ALL_CONSUMER_OFFSET}
    await slave.tables.sync()
    assert not slave.tables.are_current
    master.failing, master.refuses = set(), True
    await slave.tables.sync()
    assert not slave.tables.are_current


async def test_tables_that_come_another_way_are_not_asked_for(master: FakeMaster) -> None:
    slave = Slave(master)
    slave.tables.join(Group(copies_tables=False, address=None))
    await slave.tables.sync()
    assert master.asked == [] and slave.topics.get("T") is None
