"""KnownEnds: no queue of a group begins below what its groups have committed (see store/upkeep/queue_floors.py).

A member learns the ends of silent queues, of whose messages its own log has none, from its leader. When all members
have lost their consume queues, no leader knows them. So a member that takes office asks its tables, and what a rebuild
has noted: after everything in its log was committed, since that may be messages of such a queue, and before it gives
out a queue offset. Followers follow the queue offsets of its messages.
"""

from __future__ import annotations

from contextlib import suppress

import trio

from triomq.broker.tables.delay_offsets import DelayOffsets
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.topics import TopicTable
from triomq.protocol.system_topics import needs_no_config
from triomq.store.message_store import DefaultMessageStore
from triomq.store.upkeep.queue_floors import consumed_ends, forget_noted_ends, noted_ends

_STEP_QUEUES = 64


class KnownEnds:
    """Owns nothing."""

    def __init__(
        self, store: DefaultMessageStore, topics: TopicTable, offsets: OffsetTable, delay_offsets: DelayOffsets
    ) -> None:
        self._store = store
        self._topics = topics
        self._offsets = offsets
        self._delay_offsets = delay_offsets

    async def keep(self) -> None:
        """Raise silent queues that end below what is known of them. Raises StoreFailed."""
        files, paths = self._store.contents.files, self._store.contents.paths
        noted = noted_ends(files, paths)
        consumed = consumed_ends(self._offsets.wrapper(), self._delay_offsets.items())
        number = 0
        for ends in (consumed, noted):
            for (topic, queue_id), end in ends.items():
                if self._is_live(topic):
                    self._store.silent_queues.raise_end(topic, queue_id, end)
                number += 1
                if number % _STEP_QUEUES == 0:
                    await trio.lowlevel.checkpoint()
        if noted:
            with suppress(OSError):  # a disk that is read-only at present; used again, a note changes nothing
                forget_noted_ends(files, paths)

    def _is_live(self, topic: str) -> bool:
        return self._topics.get(topic) is not None or needs_no_config(topic)
