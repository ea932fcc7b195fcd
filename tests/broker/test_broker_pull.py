"""The pull processor: permissions, committed offsets, and the responses when there is no message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from broker_fakes import FakeConnection
from broker_metadata import metadata
from broker_store_lab import Lab, open_lab

from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.metrics.store_metrics import StoreMetrics
from triomq.broker.processors.pull import PullProcessor
from triomq.broker.pulls.selection import FilterChooser
from triomq.broker.tables.groups import GroupTable
from triomq.protocol import sys_flag
from triomq.protocol.bodies.base import replace
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from triomq.protocol.bodies.topic_config import TopicConfig
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.errors import RequestRefused
from triomq.protocol.frame import decode_frame, encode_frame
from triomq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from triomq.remoting.processor_table import Pool
from triomq.store.config import BrokerRole

COMMIT, SUSPEND, SUBSCRIPTION = sys_flag.PULL_COMMIT_OFFSET, sys_flag.PULL_SUSPEND, sys_flag.PULL_SUBSCRIPTION


class Pulls:
    """A pull processor over a store with three messages in queue 0 of topic T."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.connection = FakeConnection()
        self.groups = GroupTable(now_ms=lab.now_ms)
        self.moved: list[int] = []
        self.pool = Pool("pull", 10)
        tables = metadata(lab.now_ms, topics=lab.topics, groups=self.groups, offsets=lab.offsets)
        self.stats = BrokerStats("C", now_ms=lab.now_ms)
        lab.topics.update(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1))
        self.processor = PullProcessor(
            lab.configuration,
            lab.store,
            tables,
            FilterChooser(lab.configuration, tables.consumers, self.groups, tables.filters, now_ms=lab.now_ms),
            self.stats,
            StoreMetrics(self.stats, now_ms=lab.now_ms),
            pool=self.pool,
            offset_moved=lambda header, queue_offset: self.moved.append(queue_offset),
        )

    def pull(self, **changes: Any) -> RemotingCommand | None:
        values: dict[str, Any] = {
            "consumer_group": "G",
            "topic": "T",
            "queue_id": 0,
            "queue_offset": 0,
            "max_msg_nums": 32,
            "sys_flag": SUBSCRIPTION,
            "commit_offset": 0,
            "suspend_timeout_millis": 15_000,
            "subscription": "*",
            "sub_version": 1,
        }
        header = PullMessageRequestHeader(**{**values, **changes})
        return self.processor(cast(Any, self.connection), new_request(RequestCode.PULL_MESSAGE, header))

    def code(self, **changes: Any) -> int:
        response = self.pull(**changes)
        assert response is not None
        return response.code

    def committed(self) -> int:
        return self.lab.offsets.query("G", "T", 0)


@asynccontextmanager
async def open_pulls(root: Path, **store: Any) -> AsyncIterator[Pulls]:
    async with open_lab(root, store=store) as lab:
        for body in (b"a", b"b", b"c"):
            await lab.put("T", body)
        yield Pulls(lab)


@pytest.mark.parametrize("role", [BrokerRole.ASYNC_MASTER, BrokerRole.SYNC_MASTER])
async def test_a_master_takes_the_offset_that_a_pull_commits(tmp_path: Path, role: BrokerRole) -> None:
    async with open_pulls(tmp_path, broker_role=role) as pulls:
        assert pulls.code(queue_offset=2, sys_flag=SUBSCRIPTION | COMMIT, commit_offset=1) == 0
        assert pulls.committed() == 1


async def test_a_slave_takes_no_offsets_from_pulls(tmp_path: Path) -> None:
    """A slave's table is a copy of its master's: an offset of its own would be overwritten, or hide a newer one."""
    async with open_pulls(tmp_path) as pulls:
        pulls.lab.configuration.role.take(BrokerRole.SLAVE, 1)
        assert pulls.code(queue_offset=2, sys_flag=SUBSCRIPTION | COMMIT, commit_offset=1) == 0
        assert pulls.committed() == -1


async def test_without_the_flag_nothing_is_committed(tmp_path: Path) -> None:
    async with open_pulls(tmp_path) as pulls:
        assert pulls.code(commit_offset=2) == 0
        assert pulls.committed() == -1


async def test_a_pull_is_held_only_when_it_asks_for_it(tmp_path: Path) -> None:
    async with open_pulls(tmp_path) as pulls:
        assert pulls.code(queue_offset=3) == ResponseCode.PULL_NOT_FOUND
        assert len(pulls.processor.long_polling) == 0
        assert pulls.pull(queue_offset=3, sys_flag=SUBSCRIPTION | SUSPEND) is None
        assert len(pulls.processor.long_polling) == 1
        await pulls.lab.put("T", b"d")
        (_, answer) = pulls.connection.answers[-1]
        assert answer.code == ResponseCode.SUCCESS
        assert b"d" in answer.body
        assert len(pulls.processor.long_polling) == 0


@pytest.mark.parametrize(
    ("queue_offset", "code", "moved_to"),
    [
        (0, ResponseCode.SUCCESS, None),
        (2, ResponseCode.SUCCESS, None),
        (3, ResponseCode.PULL_NOT_FOUND, None),
        (4, ResponseCode.PULL_OFFSET_MOVED, 3),
        (-1, ResponseCode.PULL_OFFSET_MOVED, 0),
    ],
)
async def test_offsets_inside_at_and_outside_of_the_queue(
    tmp_path: Path, queue_offset: int, code: int, moved_to: int | None
) -> None:
    async with open_pulls(tmp_path) as pulls:
        assert pulls.code(queue_offset=queue_offset) == code
        assert pulls.moved == ([] if moved_to is None else [moved_to])


async def test_an_empty_queue_moves_every_offset_but_the_first(tmp_path: Path) -> None:
    async with open_pulls(tmp_path) as pulls:
        pulls.lab.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
        assert pulls.code(queue_id=1, queue_offset=0) == ResponseCode.PULL_NOT_FOUND
        assert pulls.moved == []
        assert pulls.code(queue_id=1, queue_offset=1) == ResponseCode.PULL_OFFSET_MOVED
        assert pulls.moved == [0]


async def test_offset_0_is_moved_when_the_first_messages_are_gone(tmp_path: Path) -> None:
    async with open_pulls(tmp_path) as pulls:
        pulls.lab.store.contents.queues.get("T", 0).min_offset = 2
        assert pulls.code(queue_offset=0) == ResponseCode.PULL_OFFSET_MOVED
        assert pulls.moved == [2]
        assert pulls.code(queue_offset=2) == ResponseCode.SUCCESS


async def test_who_may_not_pull(tmp_path: Path) -> None:
    def refusal(pulls: Pulls, **changes: Any) -> tuple[int, str]:
        with pytest.raises(RequestRefused) as refused:
            pulls.pull(**changes)
        return refused.value.code, refused.value.remark or ""

    async with open_pulls(tmp_path) as pulls:
        assert refusal(pulls, topic="Nowhere")[0] == ResponseCode.TOPIC_NOT_EXIST
        code, remark = refusal(pulls, queue_id=1)
        assert (code, "queueId[1] is illegal" in remark) == (ResponseCode.SYSTEM_ERROR, True)
        assert refusal(pulls, queue_id=-1)[0] == ResponseCode.SYSTEM_ERROR
        config = pulls.groups.find("G")
        assert config is not None
        pulls.groups.update(replace(config, consume_enable=False))
        assert refusal(pulls) == (ResponseCode.NO_PERMISSION, "subscription group no permission, G")
        pulls.groups.update(config)
        pulls.lab.topics.update(TopicConfig(topic_name="T", read_queue_nums=1, write_queue_nums=1, perm=2))
        assert refusal(pulls) == (ResponseCode.NO_PERMISSION, "the topic[T] pulling message is forbidden")
        pulls.lab.change(broker_permission=2)
        assert refusal(pulls)[1].endswith("pulling message is forbidden")


async def test_what_a_pull_hands_out_is_counted_for_its_group(tmp_path: Path) -> None:
    async with open_pulls(tmp_path) as pulls:
        assert pulls.code() == 0
        assert (pulls.stats.get_total, pulls.stats.get_found_times, pulls.stats.get_missed_times) == (3, 1, 0)
        assert pulls.code(queue_offset=3) == ResponseCode.PULL_NOT_FOUND
        assert (pulls.stats.get_total, pulls.stats.get_found_times, pulls.stats.get_missed_times) == (3, 1, 1)


@pytest.mark.parametrize(
    ("is_checked", "code"),
    [(False, ResponseCode.PULL_RETRY_IMMEDIATELY), (True, ResponseCode.PULL_OFFSET_MOVED)],
)
async def test_a_slave_corrects_an_offset_behind_its_end_only_when_it_may(
    tmp_path: Path, is_checked: bool, code: ResponseCode
) -> None:
    """A slave's end may be behind its master's."""
    async with open_pulls(tmp_path, offset_check_in_slave=is_checked) as pulls:
        pulls.lab.configuration.role.take(BrokerRole.SLAVE, 1)
        assert pulls.code(queue_offset=50) == code
        assert len(pulls.moved) == int(is_checked)


@pytest.mark.parametrize(
    ("reads_slaves", "memory_percent", "suggested"), [(True, 0, 7), (True, 100, 5), (False, 0, 0), (False, 100, 0)]
)
async def test_a_group_is_sent_to_its_slave_for_old_messages_where_slaves_may_be_read(
    tmp_path: Path, reads_slaves: bool, memory_percent: int, suggested: int
) -> None:
    """With 0 percent of the memory every message is an old one."""
    async with open_pulls(tmp_path, access_message_in_memory_max_ratio_percent=memory_percent) as pulls:
        configuration = pulls.lab.configuration
        configuration.broker = msgspec.structs.replace(configuration.broker, slave_read_enable=reads_slaves)
        pulls.groups.update(SubscriptionGroupConfig(group_name="G", broker_id=5, which_broker_when_consume_slowly=7))
        response = pulls.pull()
        assert response is not None
        answered = decode_frame(encode_frame(response)).header(PullMessageResponseHeader)
        assert answered.suggest_which_broker_id == suggested
