"""QueueEnds: a slave asks its master for the ends of silent queues, of whose messages its own log has none (see
store/writing/silent_queues.py).

    1  GET_BROKER_RUNTIME_INFO      while the own log is behind the master's, nothing more is asked
    2  GET_TOPIC_STATS_INFO         the ends N of the queues of each topic that may have silent ones
    3  GET_BROKER_RUNTIME_INFO      the end E of the master's log

N may be used when the own log has everything before E in its queues, and the queue is still silent. What N counts was
in the master's log before E was asked for, so it lies in front of the own log, or it is in it: then it would be in the
queue. From then on the own log tells everything about the queue, so a topic is asked for once. Another master, or a
log that was replaced, begins all over: a former master may have answered that was filled from the middle itself.

All of these requests are RocketMQ's, so its masters answer them. Not asked for are queues beyond writeQueueNums, which
get no messages, and those of light topics (%LMQ%), which no table names.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from triomq.broker.tables.topics import TopicTable
from triomq.protocol.bodies.consume_stats import TopicStatsTable
from triomq.protocol.bodies.kv_table import KVTable
from triomq.protocol.bodies.topic_config import DataVersion, TopicConfig
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.headers.topic import GetTopicStatsInfoRequestHeader
from triomq.store.errors import StoreError
from triomq.store.message_store import DefaultMessageStore

MAX_TOPICS = 100
"""How many topics one round asks for."""
MAX_ROUNDS = 10
"""How many rounds follow each other before other tables have their turn."""
BEHIND_SECONDS = 1.0
"""How long a round waits until the own log has what the master's had."""
_STEP_TOPICS = 256

Ask = Callable[[RemotingCommand], Awaitable[RemotingCommand | None]]
"""Returns the master's response, or None if it cannot be trusted. Raises RemotingError, OSError."""


class QueueEnds:
    """Holds which topics need not be asked for any more: topic -> how many of its queues, from 0 on."""

    def __init__(self, topics: TopicTable, store: DefaultMessageStore) -> None:
        self._topics = topics
        self._store = store
        self._known: dict[str, int] = {}
        self._known_of: tuple[str, int] | None = None
        self._all_known_at: DataVersion | None = None

    async def copy(self, master: str, ask: Ask) -> None:
        """Ask for the ends of silent queues, and keep them. Raises RemotingError, ProtocolError, OSError, ValueError,
        StoreFailed."""
        known_of = master, self._store.quorum.replaced_count
        if known_of != self._known_of:
            self._known, self._known_of, self._all_known_at = {}, known_of, None
        if not self._store.silent_queues.may_exist or self._all_known_at == self._topics.data_version:
            return
        log_end = await self._log_end(ask)
        for _ in range(MAX_ROUNDS):
            if log_end is None or self._store.committed.value < log_end:
                return
            version = self._topics.data_version
            asked = await self._unknown()
            if not asked:
                self._all_known_at = version
                return
            change_count = self._store.silent_queues.change_count
            ends: dict[tuple[str, int], int] = {}
            answered = [config for config in asked if await self._add_ends(config.topic_name, ends, ask)]
            log_end = await self._log_end(ask)
            if log_end is None or not await self._keep(ends, log_end, change_count) or known_of != self._known_of:
                return
            self._known |= {config.topic_name: config.write_queue_nums for config in answered}

    async def _unknown(self) -> list[TopicConfig]:
        """Return the next topics that may have silent queues and were not asked for."""
        self._known = {topic: count for topic, count in self._known.items() if self._topics.get(topic) is not None}
        found: list[TopicConfig] = []
        silent, known = self._store.silent_queues, self._known
        for number, config in enumerate(list(self._topics.configs()), 1):
            begin = known.get(config.topic_name, 0)
            if any(silent.has(config.topic_name, each) for each in range(begin, config.write_queue_nums)):
                found.append(config)
                if len(found) == MAX_TOPICS:
                    break
            if number % _STEP_TOPICS == 0:
                await trio.lowlevel.checkpoint()
        return found

    async def _add_ends(self, topic: str, ends: dict[tuple[str, int], int], ask: Ask) -> bool:
        """Add the ends of a topic's queues. Return whether the master told them: none of a topic that it lacks."""
        header = GetTopicStatsInfoRequestHeader(topic=topic)
        answer = await ask(new_request(RequestCode.GET_TOPIC_STATS_INFO, header=header))
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            for queue, offsets in TopicStatsTable.decode(answer.body).offset_table.items():
                ends[topic, queue.queue_id] = offsets.max_offset
            return True
        return answer is not None and answer.code == ResponseCode.TOPIC_NOT_EXIST

    async def _log_end(self, ask: Ask) -> int | None:
        """Return the end of the master's log, or None if it does not tell."""
        answer = await ask(new_request(RequestCode.GET_BROKER_RUNTIME_INFO))
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return None
        return int(KVTable.decode(answer.body).table.get("commitLogMaxOffset", "none"))

    async def _keep(self, ends: dict[tuple[str, int], int], log_end: int, change_count: int) -> bool:
        """Keep these ends when the own log has what the master's had up to `log_end`. Return whether all are kept."""
        store, silent = self._store, self._store.silent_queues
        try:
            with trio.move_on_after(BEHIND_SECONDS):
                await store.committed.wait_beyond(log_end - 1)
        except StoreError:
            return False  # the log was cut
        if store.committed.value < log_end:
            return False
        for (topic, queue_id), end in ends.items():
            if store.committed.value < log_end or silent.change_count != change_count:
                return False
            if silent.raise_end(topic, queue_id, end):
                change_count = silent.change_count
                await trio.lowlevel.checkpoint()
        return True
