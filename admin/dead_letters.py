"""Which dead letters were sent again (protocol/dead_letters.py says how it is known)."""

from __future__ import annotations

from triomq.admin.messages import FOUND, Queue, pull
from triomq.admin.routes import DLQ_PREFIX, RETRY_PREFIX
from triomq.admin.session import Refused
from triomq.protocol import dead_letters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from triomq.admin.run import Run
    from triomq.protocol.message import MessageExt

QUERY_NOT_FOUND = 22
MOST_COPIES = 32
"""A copy that failed and is retried is there for each try."""
MOST_LOOKED_AT = 100
"""Letters of a queue, the newest, of which the doctor finds out whether they were resent."""


def copy_of(run: Run, letter: MessageExt, address: str) -> MessageExt | None:
    """Return the message as which the broker at this address has resent a dead letter; None if it was not resent."""
    from triomq.protocol.record import iterate_records

    group = letter.topic.removeprefix(DLQ_PREFIX)
    fields = {
        "topic": RETRY_PREFIX + group,
        "key": letter.offset_msg_id,
        "maxNum": MOST_COPIES,
        "beginTimestamp": 0,
        "endTimestamp": 2**63 - 1,
        "_UNIQUE_KEY_QUERY": "true",
    }
    try:
        response = run.session.call(address, 12, fields)
    except Refused as error:
        if error.code == QUERY_NOT_FOUND:
            return None
        raise
    for message in iterate_records(response.body):
        if dead_letters.is_copy(message.topic, message.properties, group, letter.offset_msg_id):
            message.broker_name = letter.broker_name
            return message
    return None


def count_waiting(run: Run, topic: str, queues: Sequence[tuple[str, int, str, int, int]]) -> int:
    """Return how many letters of a dead letter topic nobody has resent; 0 if all of the newest were, whatever became of
    older ones. `queues` as `cluster_view.topic_queues` returns them."""
    waiting = older = 0
    for name, number, address, first, end in queues:
        begin = max(first, end - MOST_LOOKED_AT)
        older += begin - first
        queue = Queue(topic, name, number, address)
        while begin < end:
            status, following, messages = pull(run, queue, begin, MOST_LOOKED_AT)
            if status != FOUND or following <= begin:
                waiting += end - begin  # as far as anybody knows
                break
            begin = following
            waiting += sum([copy_of(run, letter, address) is None for letter in messages])
    return waiting + older if waiting else 0
