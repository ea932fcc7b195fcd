"""Deleting a topic: its queues, its configuration and its consumer offsets end together, whatever is killed meanwhile.

    1  topics.json says that the topic is to be deleted
    2  in one step: the record in the log, the queues, the entry of the table, the offsets
    3  the log, topics.json and consumerOffset.json are on disk; only then the topic may be made again

A start completes what 1 began. What is left of 2 after a kill is an offset in consumerOffset.json for a queue without
messages, which a start removes: there are none before 3 is over. Otherwise a group would pass the first messages of the
topic's next life.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import structlog
import trio

from triomq.broker.tables.logged import check_leads
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.topics import TopicTable
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RequestRefused
from triomq.store.errors import StoreError
from triomq.store.message_store import DefaultMessageStore

log = structlog.get_logger("triomq.broker.topics")


class TopicDeletion:
    """Deletes topics of a master. Several may run at once, for different topics."""

    def __init__(self, topics: TopicTable, offsets: OffsetTable, store: DefaultMessageStore) -> None:
        self._topics = topics
        self._offsets = offsets
        self._store = store

    def begin(self, topic: str) -> Coroutine[Any, Any, None]:
        """Begin to delete a topic, so that what arrives from now on comes after it, and return what completes that; it
        must be awaited. It returns when that is on disk, and raises RequestRefused if the topic is not deleted, or if
        that could not be written; the text says which."""
        self._topics.begin_deletion(topic)
        return self._complete(topic)

    async def _complete(self, topic: str) -> None:
        try:
            with trio.CancelScope(shield=True):  # a deletion that has begun is not left half done
                await self._delete(topic)
        finally:
            self._topics.end_deletion(topic)

    async def _delete(self, topic: str) -> None:
        try:
            await self._topics.wait_saved()
            check_leads(self._topics.log)  # another member of the group may lead by now
            self._store.upkeep.delete_topic(topic)
        except (OSError, StoreError, RequestRefused) as error:
            self._topics.keep(topic)
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"topic[{topic}] is not deleted: {error}") from None
        self._topics.delete(topic)
        self._offsets.remove_topic(topic)
        try:
            is_covered = await self._store.cover()
            await self._topics.wait_saved()
            if is_covered:
                await self._offsets.save()
        except OSError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, _not_on_disk(topic, str(error))) from None
        if not is_covered:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, _not_on_disk(topic, self._store.refusal or "no sync"))

    async def complete(self) -> None:
        """Complete at a start what the last run began. Never raises RequestRefused: a failure is logged, and the next
        start tries again."""
        for topic in self._topics.being_deleted():
            log.warning("deletion of a topic found begun; it is completed", topic=topic)
            try:
                await self.begin(topic)
            except RequestRefused as error:
                log.error("deletion of a topic not completed", topic=topic, reason=error.remark)
        for topic in self._topics.deleted():
            self._offsets.remove_outlived(topic, self._store.reading.max_offset)
        await self._offsets.persist_all()


def _not_on_disk(topic: str, reason: str) -> str:
    return f"topic[{topic}] is deleted, but that could not be written: {reason}; delete it again"
