"""What depends on a new topic or group is acknowledged when no crash loses it and the NameServers know it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from broker_fakes import FakeConnection, MemoryFile, request
from broker_metadata import metadata
from broker_store_lab import open_lab
from fake_clock import FakeClock

from triomq.broker.config import BrokerSettings
from triomq.broker.configuration import Configuration
from triomq.broker.message_writer import AwaitedPut, MessageWriter
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.processors.client import ClientProcessor
from triomq.broker.processors.send_back import SendBackProcessor
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.kept_table import KeptTable
from triomq.broker.tables.new_names import RETRY_SECONDS, ROUTE_SECONDS
from triomq.broker.tables.topics import TopicTable
from triomq.protocol.bodies.topic_config import TopicConfig
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from triomq.store.results import PutStatus

WRITE_SECONDS = 0.25


class SlowDisk(MemoryFile):
    """A disk whose writes take their time, and that can be full."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False

    def save(self, text: str) -> None:
        if self.is_full:
            raise OSError("no space left on device")
        super().save(text)


async def slowly(function: Any, *args: Any) -> Any:
    await trio.sleep(WRITE_SECONDS)
    return function(*args)


class NameServers:
    """A registration that takes its time, or as long as it may."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.rounds = 0

    async def in_routes(self, until: float) -> None:
        self.rounds += 1
        with trio.move_on_at(until):
            await trio.sleep(self.seconds)


@asynccontextmanager
async def running(table: KeptTable, name_servers: NameServers | None = None) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.run, slowly)
        nursery.start_soon(table.new_names.run, name_servers.in_routes if name_servers is not None else None)
        await trio.testing.wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()


def make(topics: TopicTable, topic: str, queues: int = 1) -> None:
    topics.create_on_send_back(topic, queues, 6, 0)


@asynccontextmanager
async def writing(
    folder: Path, name_servers: NameServers | None = None
) -> AsyncIterator[tuple[Any, TopicTable, SlowDisk]]:
    """Yield a lab whose writer knows the new topics, the topics, and their disk."""
    file = SlowDisk()
    async with open_lab(folder) as lab:
        topics = TopicTable(file, now_ms=FakeClock())
        lab.writer = MessageWriter(lab.configuration, lab.store, lab._wake, new_topics=topics.new_names)
        async with running(topics, name_servers or NameServers()):
            yield lab, topics, file


# -- puts ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["plain", "half", "delayed"])
async def test_a_message_of_a_new_topic_is_stored_at_once_and_acknowledged_when_the_file_has_the_topic(
    tmp_path: Path, autojump_clock: object, kind: str
) -> None:
    async with writing(tmp_path) as (lab, topics, file):
        make(topics, "New")
        began = trio.current_time()
        async with trio.open_nursery() as nursery:

            async def put() -> None:
                result = await (lab.put_half("New") if kind == "half" else lab.put("New", **delay))
                assert result.status is PutStatus.PUT_OK
                assert '"New"' in file.text

            delay = {"DELAY": "1"} if kind == "delayed" else {}
            nursery.start_soon(put)
            await trio.testing.wait_all_tasks_blocked()
            assert lab.store.appended_offset > 0
            assert trio.current_time() == began
        assert trio.current_time() - began >= WRITE_SECONDS
        began = trio.current_time()
        await lab.put("New")
        assert trio.current_time() == began, "from then on nothing waits"


async def test_what_depends_on_other_topics_waits_for_nothing(tmp_path: Path, autojump_clock: object) -> None:
    async with writing(tmp_path) as (lab, topics, _):
        make(topics, "New")
        began = trio.current_time()
        await lab.put("Old")
        assert trio.current_time() == began


async def test_many_that_use_a_new_topic_share_the_write_and_the_registration(
    tmp_path: Path, autojump_clock: object
) -> None:
    name_servers = NameServers(0.5)
    async with writing(tmp_path, name_servers) as (lab, topics, file):
        async with trio.open_nursery() as nursery:
            for number in range(50):
                make(topics, f"New{number % 10}")
                nursery.start_soon(lab.put, f"New{number % 10}")
        assert len(file.texts) == 1
        assert name_servers.rounds == 1


async def test_a_name_server_that_does_not_respond_holds_a_send_up_for_a_second(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with writing(tmp_path, NameServers(1000)) as (lab, topics, _):
        make(topics, "First")
        await trio.sleep(0.5)
        began = trio.current_time()
        make(topics, "Second")
        await lab.put("Second")
        assert trio.current_time() - began < ROUTE_SECONDS + WRITE_SECONDS + 0.1


async def test_a_topic_with_more_queues_counts_as_new(tmp_path: Path, autojump_clock: object) -> None:
    """After a crash nobody would read the queues that the file does not have."""
    async with writing(tmp_path) as (lab, topics, file):
        make(topics, "%RETRY%G")
        await lab.put("%RETRY%G")
        make(topics, "%RETRY%G", 8)
        await lab.put("%RETRY%G", queue_id=7)
        assert '"readQueueNums":8' in file.text
        topics.update(TopicConfig(topic_name="%RETRY%G", read_queue_nums=9, write_queue_nums=9))
        await lab.put("%RETRY%G", queue_id=8)
        assert '"readQueueNums":9' in file.text


async def test_a_table_that_cannot_be_written_refuses_what_depends_on_its_new_topics(
    tmp_path: Path, autojump_clock: object
) -> None:
    async with writing(tmp_path) as (lab, topics, file):
        file.is_full = True
        make(topics, "New")
        result = await lab.put("New")
        assert result.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "topic[New]" in result.reason
        assert "no space left on device" in result.reason
        stored = lab.store.appended_offset
        refused = AwaitedPut()
        lab.writer.put_batch(lab.message("New", b"", 0, {}), [], False, refused)
        assert refused.result.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert (await lab.put("New")).status is PutStatus.SERVICE_NOT_AVAILABLE
        assert lab.store.appended_offset == stored, "the next ones are not even stored"
        assert (await lab.put("Old")).status is PutStatus.PUT_OK
        file.is_full = False
        await trio.sleep(RETRY_SECONDS + 2 * WRITE_SECONDS)
        assert (await lab.put("New")).status is PutStatus.PUT_OK
        assert '"New"' in file.text


async def test_a_message_that_the_store_refuses_waits_for_no_topic(tmp_path: Path, autojump_clock: object) -> None:
    async with writing(tmp_path) as (lab, topics, _):
        make(topics, "New")
        began = trio.current_time()
        assert (await lab.put("New", b"x" * (8 << 20))).status is PutStatus.MESSAGE_ILLEGAL
        assert trio.current_time() == began


async def test_a_returned_message_is_acknowledged_when_its_group_and_its_retry_topic_are_kept(
    tmp_path: Path, autojump_clock: object
) -> None:
    of_groups = SlowDisk()
    async with writing(tmp_path) as (lab, topics, of_topics):
        groups = GroupTable(of_groups, now_ms=FakeClock())
        tables = metadata(lab.now_ms, topics=topics, groups=groups)
        stats = BrokerStats("C", now_ms=lab.now_ms)
        back = SendBackProcessor(lab.configuration, tables, lab.store, lab.writer, stats)
        physical_offset = (await lab.put("Old")).physical_offset
        header = ConsumerSendMsgBackRequestHeader(offset=physical_offset, group="G", delay_level=0, origin_topic="Old")
        connection = FakeConnection()
        of_groups.is_full = True
        async with running(groups):
            assert back(connection, new_request(RequestCode.CONSUMER_SEND_MSG_BACK, header)) is None
            assert connection.answers == []
            await trio.sleep(2 * WRITE_SECONDS)
            assert [response.code for _, response in connection.answers] == [ResponseCode.SYSTEM_ERROR]
            assert "subscription group[G]" in str(connection.answers[0][1].remark)
            of_groups.is_full = False
            await trio.sleep(RETRY_SECONDS + 2 * WRITE_SECONDS)
            back(connection, new_request(RequestCode.CONSUMER_SEND_MSG_BACK, header))
            assert [response.code for _, response in connection.answers] == [ResponseCode.SYSTEM_ERROR, 0]
            assert '"%RETRY%G"' in of_topics.text
            assert '"G"' in of_groups.text


# -- heartbeats ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def beating(name_servers: NameServers) -> AsyncIterator[tuple[ClientProcessor, SlowDisk, SlowDisk]]:
    """Yield a client processor, and the disks of its topics and groups."""
    clock = FakeClock()
    of_topics, of_groups = SlowDisk(), SlowDisk()
    topics, groups = TopicTable(of_topics, now_ms=clock), GroupTable(of_groups, now_ms=clock)
    configuration = Configuration(broker=BrokerSettings(broker_name="b-a"))
    client = ClientProcessor(configuration, metadata(clock, topics=topics, groups=groups))
    async with running(topics, name_servers), running(groups):
        yield client, of_topics, of_groups


async def beat(client: ClientProcessor, groups: list[str], number: int = 1) -> RemotingCommand:
    body = {"clientID": f"c{number}", "consumerDataSet": [{"groupName": group} for group in groups]}
    response = client.heartbeat(FakeConnection(f"10.0.0.1:{number}"), request(34, body=json.dumps(body).encode()))
    return response if isinstance(response, RemotingCommand) else await response


@pytest.mark.parametrize("groups", [1, 500])
async def test_fifty_clients_that_start_at_once_find_their_group_kept_and_in_the_route(
    autojump_clock: object, groups: int
) -> None:
    name_servers = NameServers(0.5)
    async with beating(name_servers) as (client, of_topics, of_groups):

        async def start(number: int) -> None:
            began = trio.current_time()
            assert (await beat(client, [f"G{group}" for group in range(groups)], number)).code == 0
            assert trio.current_time() - began >= 0.5
            assert f'"%RETRY%G{groups - 1}"' in of_topics.text
            assert f'"G{groups - 1}"' in of_groups.text

        async with trio.open_nursery() as nursery:
            for number in range(50):
                nursery.start_soon(start, number)
        assert name_servers.rounds <= 2
        assert isinstance(
            client.heartbeat(
                FakeConnection(),
                request(34, body=b'{"clientID":"c","consumerDataSet":[{"groupName":"G0"}]}'),
            ),
            RemotingCommand,
        ), "the next heartbeat waits for nothing"


async def test_a_heartbeat_whose_group_cannot_be_written_is_refused(autojump_clock: object) -> None:
    async with beating(NameServers()) as (client, _, of_groups):
        of_groups.is_full = True
        for _ in range(2):
            with pytest.raises(RequestRefused) as refused:
                await beat(client, ["G"])
            assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "subscription group[G]" in str(refused.value.remark)
        of_groups.is_full = False
        await trio.sleep(RETRY_SECONDS + 2 * WRITE_SECONDS)
        assert (await beat(client, ["G"])).code == 0
