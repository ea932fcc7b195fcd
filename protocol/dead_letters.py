"""Dead letters that are sent again: what the copy is like, and how it marks its letter as resent.

The copy goes to the retry topic of the group, at the broker that has the letter, and its UNIQ_KEY is the letter's
offsetMsgId. So it is the mark: stored together with the message, found by one lookup in the broker's index, there for
as long as the letter is, and the same for `mqadmin` and the dashboard. Nothing else says that a letter was resent.
"""

from __future__ import annotations

from triomq.protocol.property_names import (
    CLUSTER,
    DELAY,
    MAX_OFFSET,
    MIN_OFFSET,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RECONSUME_TIME,
    RETRY_TOPIC,
    UNIQ_KEY,
    WAIT,
)
from triomq.protocol.system_topics import DLQ_PREFIX, RETRY_PREFIX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

REASON = "DEAD_LETTER_REASON"
"""Why a Python consumer gave a message up."""
TRIES = "DEAD_LETTER_TRIES"
"""How often it was tried by then."""
DROPPED = frozenset(
    {
        DELAY,
        REAL_TOPIC,
        REAL_QUEUE_ID,
        MIN_OFFSET,
        MAX_OFFSET,
        UNIQ_KEY,
        WAIT,
        CLUSTER,
        RECONSUME_TIME,
        REASON,
        TRIES,
    }
)
"""What only the letter has, or what the broker and the sender set again."""

MOST_RETRIES = 1
"""maxReconsumeTimes of the request that sends a copy, which has none behind it: a group with retryMaxTimes=0 would get
the copy as the next dead letter."""


def copy_properties(properties: Mapping[str, str], group: str, letter_id: str) -> dict[str, str]:
    """Return the properties of the copy of a letter. `letter_id` is the offsetMsgId of the letter."""
    kept = {name: value for name, value in properties.items() if name not in DROPPED}
    kept.setdefault(RETRY_TOPIC, DLQ_PREFIX + group)
    kept[UNIQ_KEY] = letter_id
    kept[WAIT] = "true"
    return kept


def is_copy(topic: str, properties: Mapping[str, str], group: str, letter_id: str) -> bool:
    """Return whether a message is a copy of the letter, or a retry of one."""
    return topic == RETRY_PREFIX + group and properties.get(UNIQ_KEY) == letter_id


def tries_of(properties: Mapping[str, str], reconsume_times: int) -> int:
    """Return how often a letter was tried. One that was given up early counts in its record as often as its group
    allows; the property has the true number."""
    text = properties.get(TRIES, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else reconsume_times
