"""The lives of a topic that was deleted and made again, as consumers see them.

A consumer that did not notice continues with a position of the earlier life. Beyond the end of a queue such a position
is known for what it is; within the queue no request tells one from the other.
"""

from __future__ import annotations

from triomq.broker.tables.topics import TopicTable
from triomq.store.reading.reading import Reading


def is_outlived(topics: TopicTable, reading: Reading, topic: str, queue_id: int, queue_offset: int) -> bool:
    """Return whether the position of a consumer is one of an earlier life of the topic, as far as requests show it."""
    if topics.is_deleted(topic):
        return True
    return queue_offset > reading.max_offset(topic, queue_id) and topics.was_made_again(topic)
