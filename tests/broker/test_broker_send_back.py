"""Retries and dead letters: messages that consumers send back, and those that they send to retry topics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from broker_fakes import FakeConnection
from broker_metadata import metadata
from broker_store_lab import STORE_HOST, Lab, open_lab

from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.processors.send import SendProcessor
from triomq.broker.processors.send_back import SendBackProcessor
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.topics import MAX_QUEUES, TopicEvents
from triomq.protocol.bodies.base import replace
from triomq.protocol.bodies.topic_config import TopicConfig
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.send import ConsumerSendMsgBackRequestHeader, SendMessageRequestHeader
from triomq.protocol.message import MessageExt
from triomq.protocol.system_topics import SCHEDULE_TOPIC
from triomq.remoting.processor_table import Pool

RETRY, DLQ = "%RETRY%G", "%DLQ%G"
OLD_CLIENT = 120
"""Before version 121 maxReconsumeTimes of a request means nothing."""


class Retries:
    """The two ways back to the broker: CONSUMER_SEND_MSG_BACK, and a plain send to the retry topic."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.groups = GroupTable(now_ms=lab.now_ms)
        self.connection = FakeConnection()
        stats = BrokerStats("C", now_ms=lab.now_ms)
        tables = metadata(lab.now_ms, topics=lab.topics, groups=self.groups)
        self._back = SendBackProcessor(lab.configuration, tables, lab.store, lab.writer, stats)
        self._send = SendProcessor(
            lab.configuration,
            tables,
            lab.writer,
            stats,
            store_host=STORE_HOST.packed,
            now_ms=lab.now_ms,
            pool=Pool("send", 10),
        )

    def set_group(self, **members: Any) -> None:
        config = self.groups.find("G")
        assert config is not None
        self.groups.update(replace(config, **members))

    async def stored(self, reconsume_times: int) -> int:
        """Store a message that was consumed that many times. Return its physical offset."""
        message = self.lab.message("T", b"body", 0, {"TAGS": "A"})
        message.reconsume_times = reconsume_times
        result = self.lab.store.append(message)
        self.lab.store.commit()
        return result.physical_offset

    def send_back(self, physical_offset: int, version: int = 407, **changes: Any) -> RemotingCommand:
        values: dict[str, Any] = {"offset": physical_offset, "group": "G", "delay_level": 0, "origin_topic": "T"}
        header = ConsumerSendMsgBackRequestHeader(**{**values, **changes})
        return self._handle(self._back, new_request(RequestCode.CONSUMER_SEND_MSG_BACK, header), version)

    def send(self, reconsume_times: int, version: int = 407, **changes: Any) -> RemotingCommand:
        values: dict[str, Any] = {
            "producer_group": "CLIENT_INNER_PRODUCER",
            "topic": RETRY,
            "default_topic": "TBW102",
            "default_topic_queue_nums": 4,
            "queue_id": 0,
            "sys_flag": 0,
            "born_timestamp": 1_700_000_000_000,
            "flag": 0,
            "reconsume_times": reconsume_times,
            "properties": "",
        }
        header = SendMessageRequestHeader(**{**values, **changes})
        return self._handle(self._send, new_request(RequestCode.SEND_MESSAGE, header, b"body"), version)

    def _handle(self, processor: Any, request: RemotingCommand, version: int) -> RemotingCommand:
        request.version = version
        response = processor(cast(Any, self.connection), request)
        return cast(RemotingCommand, response if response is not None else self.connection.answers[-1][1])

    def dead(self) -> list[MessageExt]:
        return self.lab.messages(DLQ)

    def delayed(self) -> list[tuple[int, MessageExt]]:
        """Return (delay level, message) of every message that waits for its retry."""
        return [(level, message) for level in range(1, 19) for message in self.lab.messages(SCHEDULE_TOPIC, level - 1)]


@asynccontextmanager
async def open_retries(root: Path) -> AsyncIterator[Retries]:
    async with open_lab(root) as lab:
        yield Retries(lab)


@pytest.mark.parametrize(("reconsume_times", "is_dead"), [(15, False), (16, True), (17, True)])
async def test_a_message_sent_back_at_the_groups_limit_is_a_dead_letter(
    tmp_path: Path, reconsume_times: int, is_dead: bool
) -> None:
    async with open_retries(tmp_path) as retries:
        assert retries.send_back(await retries.stored(reconsume_times)).code == 0
        assert (len(retries.dead()), len(retries.delayed())) == ((1, 0) if is_dead else (0, 1))


@pytest.mark.parametrize(
    ("limit_of_request", "version", "is_dead"), [(3, 407, True), (4, 407, False), (3, OLD_CLIENT, False)]
)
async def test_a_request_may_bring_a_limit_of_its_own(
    tmp_path: Path, limit_of_request: int, version: int, is_dead: bool
) -> None:
    async with open_retries(tmp_path) as retries:
        offset = await retries.stored(3)
        assert retries.send_back(offset, version, max_reconsume_times=limit_of_request).code == 0
        assert bool(retries.dead()) is is_dead


@pytest.mark.parametrize(("reconsume_times", "level"), [(0, 3), (1, 4), (7, 10), (15, 18)])
async def test_each_further_try_waits_longer(tmp_path: Path, reconsume_times: int, level: int) -> None:
    async with open_retries(tmp_path) as retries:
        assert retries.send_back(await retries.stored(reconsume_times)).code == 0
        ((stored_level, message),) = retries.delayed()
        assert stored_level == level
        assert message.properties["DELAY"] == str(level)
        assert message.properties["REAL_TOPIC"] == RETRY
        assert message.reconsume_times == reconsume_times + 1


async def test_a_level_that_the_client_asks_for_is_taken(tmp_path: Path) -> None:
    async with open_retries(tmp_path) as retries:
        assert retries.send_back(await retries.stored(5), delay_level=2).code == 0
        assert [level for level, _ in retries.delayed()] == [2]


async def test_a_negative_level_is_a_dead_letter_at_once(tmp_path: Path) -> None:
    async with open_retries(tmp_path) as retries:
        assert retries.send_back(await retries.stored(0), delay_level=-1).code == 0
        (message,) = retries.dead()
        assert retries.delayed() == []
        assert message.body == b"body"
        assert message.properties["RETRY_TOPIC"] == "T"
        assert message.reconsume_times == 1


async def test_where_a_message_comes_from_survives_its_retries(tmp_path: Path) -> None:
    async with open_retries(tmp_path) as retries:
        first = await retries.stored(0)
        retries.send_back(first)
        ((_, again),) = retries.delayed()
        retries.send_back(again.physical_offset)
        ((_, _), (_, third)) = retries.delayed()
        assert third.properties["RETRY_TOPIC"] == "T"
        assert third.properties["ORIGIN_MESSAGE_ID"] == again.properties["ORIGIN_MESSAGE_ID"]
        assert third.reconsume_times == 2


async def test_the_retry_topic_has_the_groups_number_of_queues(tmp_path: Path) -> None:
    async with open_retries(tmp_path) as retries:
        retries.set_group(retry_queue_nums=5)
        retries.send_back(await retries.stored(0))
        config = retries.lab.topics.get(RETRY)
        assert config is not None
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (5, 5, 6)


async def test_the_retry_topic_grows_with_its_groups_number_of_queues(tmp_path: Path) -> None:
    async with open_retries(tmp_path) as retries:
        registered: list[int] = []
        topics = retries.lab.topics
        topics.tell(TopicEvents(made_by_use=lambda: registered.append(topics.data_version.counter)))
        for wanted, has in ((1, 1), (4, 4), (2, 4), (10**6, MAX_QUEUES)):
            retries.set_group(retry_queue_nums=wanted)
            for _ in range(20):
                retries.send_back(await retries.stored(0))
            config = topics.get(RETRY)
            assert config is not None
            assert (config.read_queue_nums, config.write_queue_nums) == (has, has)
            queues = [int(message.properties["REAL_QID"]) for _, message in retries.delayed()[-20:]]
            assert max(queues) < min(wanted, has)
        assert registered == [1, 2, 3], "its route changes, so the NameServers learn of it"


async def test_a_retry_topic_that_is_read_less_gets_only_what_is_read(tmp_path: Path) -> None:
    async with open_retries(tmp_path) as retries:
        retries.lab.topics.update(TopicConfig(topic_name=RETRY, read_queue_nums=1, write_queue_nums=8))
        for _ in range(20):
            retries.send_back(await retries.stored(0))
        assert {message.properties["REAL_QID"] for _, message in retries.delayed()} == {"0"}


async def test_a_group_without_retry_queues_stores_nothing(tmp_path: Path) -> None:
    async with open_retries(tmp_path) as retries:
        retries.set_group(retry_queue_nums=0)
        assert retries.send_back(await retries.stored(0)).code == 0
        assert (retries.dead(), retries.delayed()) == ([], [])
        assert retries.lab.topics.get(RETRY) is None


async def test_what_is_refused(tmp_path: Path) -> None:
    async with open_retries(tmp_path) as retries:
        offset = await retries.stored(0)
        with pytest.raises(RequestRefused, match="look message by offset failed, 999999"):
            retries.send_back(999_999)
        retries.lab.topics.update(TopicConfig(topic_name=RETRY, perm=4))
        with pytest.raises(RequestRefused, match="sending message is forbidden") as refused:
            retries.send_back(offset)
        assert refused.value.code == ResponseCode.NO_PERMISSION


@pytest.mark.parametrize(("reconsume_times", "is_dead"), [(15, False), (16, True), (17, True)])
async def test_a_send_to_the_retry_topic_at_the_groups_limit_is_a_dead_letter(
    tmp_path: Path, reconsume_times: int, is_dead: bool
) -> None:
    async with open_retries(tmp_path) as retries:
        assert retries.send(reconsume_times).code == 0
        assert (len(retries.dead()), len(retries.lab.messages(RETRY))) == ((1, 0) if is_dead else (0, 1))


@pytest.mark.parametrize(
    ("limit_of_request", "version", "is_dead"), [(3, 407, True), (4, 407, False), (3, OLD_CLIENT, False)]
)
async def test_a_send_to_the_retry_topic_may_bring_a_limit_of_its_own(
    tmp_path: Path, limit_of_request: int, version: int, is_dead: bool
) -> None:
    async with open_retries(tmp_path) as retries:
        assert retries.send(3, version, max_reconsume_times=limit_of_request).code == 0
        assert bool(retries.dead()) is is_dead


async def test_a_dead_letter_waits_for_nothing(tmp_path: Path) -> None:
    async with open_retries(tmp_path) as retries:
        assert retries.send(16, properties="DELAY\x015\x02").code == 0
        assert (len(retries.dead()), retries.delayed()) == (1, [])
        assert retries.send(15, properties="DELAY\x015\x02").code == 0
        assert [level for level, _ in retries.delayed()] == [5]
