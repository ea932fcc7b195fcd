"""The dead letters of a group: their page, and what was resent of them (protocol/dead_letters.py)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Final

from triomq.broker.assembly.serving import Serving
from triomq.broker.views.found import Found
from triomq.broker.views.messages import FOREVER_MS, Messages
from triomq.dashboard.listing import number_of
from triomq.dashboard.views import Ask, NotThere, Steps
from triomq.protocol import dead_letters
from triomq.protocol import property_names as names
from triomq.protocol.system_topics import UNDELIVERABLE_TOPIC, dlq_topic, retry_topic

MOST_LETTERS: Final = 50
MOST_REASON_CHARACTERS: Final = 500
MOST_LOOKED_AT: Final = 20
"""Letters of a queue of which an overview finds out whether they were resent; mqadmin doctor looks at more."""
_MOST_COPIES: Final = 32
_EVERYBODY: Final = Ask()


@dataclass(slots=True)
class LetterRow:
    """`id` locates the letter on this broker, `unique_key` is the id that the message had from its producer. `topic` is
    where the message was sent to first, `resent` the id of its copy, "" if there is none."""

    id: str
    unique_key: str
    queue: int
    offset: int
    stored_ms: int
    topic: str
    tries: int
    reason: str
    keys: str
    bytes: int
    begin: str
    resent: str


class Letters:
    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._messages = Messages(serving)
        self._reading = serving.store.reading

    def count(self, group: str) -> int:
        """Return the number of dead letters of a group that are still stored."""
        topic = dlq_topic(group)
        ends = self._reading.ends(topic)
        return sum([end - self._reading.min_offset(topic, queue_id) for queue_id, end in ends.items()])

    def count_waiting(self, group: str) -> int:
        """Return how many dead letters of a group nobody has resent; 0 if all of the newest were (MOST_LOOKED_AT),
        whatever became of older ones."""
        topic = dlq_topic(group)
        waiting = older = 0
        for queue_id, end in self._reading.ends(topic).items():
            first = self._reading.min_offset(topic, queue_id)
            begin = max(first, end - MOST_LOOKED_AT)
            older += begin - first
            found = [self._at(topic, queue_id, offset, _EVERYBODY) for offset in range(begin, end)]
            waiting += sum([letter is None or not self.resent_as(group, letter.id) for letter in found])
        return waiting + older if waiting else 0

    def is_known(self, group: str) -> bool:
        return self._serving.tables.metadata.topics.get(dlq_topic(group)) is not None

    def find(self, group: str, letter_id: str) -> Found | None:
        """Return the letter of a group with this offsetMsgId; None if there is none."""
        found = self._messages.of_place(letter_id, _EVERYBODY)
        is_it = found is not None and found.id == letter_id and found.fields.topic == dlq_topic(group).encode()
        return found if is_it else None

    def resent_as(self, group: str, letter_id: str) -> str:
        """Return the id of the copy of a letter that was resent, "" if it was not."""
        topic = retry_topic(group)
        for at in self._reading.offsets_by_key(topic, letter_id, _MOST_COPIES, 0, FOREVER_MS):
            found = self._messages.at(at, _EVERYBODY)
            if found is not None:
                stored_topic = found.fields.topic.decode("utf-8", "replace")
                if dead_letters.is_copy(stored_topic, found.properties, group, letter_id):
                    return found.id
        return ""

    def every(self, group: str, ask: Ask = _EVERYBODY) -> Generator[Found | None, None, None]:
        """Yield the letters of a group, oldest first, queue by queue; None for what is gone, or not for the
        viewer."""
        topic = dlq_topic(group)
        for queue_id, end in sorted(self._reading.ends(topic).items()):
            for offset in range(self._reading.min_offset(topic, queue_id), end):
                yield self._at(topic, queue_id, offset, ask)

    def _at(self, topic: str, queue_id: int, offset: int, ask: Ask) -> Found | None:
        for begin, _, _ in self._reading.queue_entries(topic, queue_id, offset, 1):
            return self._messages.at(begin, ask)
        return None

    def letters(self, ask: Ask) -> Steps:
        """Make the page of a group's letters: the newest of a queue, or those before an offset, newest first."""
        group = ask.query.get("group", "")
        topic = dlq_topic(group)
        if not (self.is_known(group) and ask.may_read(topic)):
            raise NotThere(f"there are no dead letters of group {group!r} that you may see")
        queues = sorted(self._reading.ends(topic))
        queue = number_of(ask.query, "queue", queues[0] if queues else 0, 0, (1 << 31) - 1)
        low, end = self._reading.min_offset(topic, queue), self._reading.max_offset(topic, queue)
        before = number_of(ask.query, "before", end, low, end) if end > low else end
        first = max(low, before - MOST_LETTERS)
        rows: list[LetterRow] = []
        for offset in range(before - 1, first - 1, -1):
            found = self._at(topic, queue, offset, ask)
            if found is not None:
                rows.append(self._row(group, found))
            yield
        return {
            "group": group,
            "topic": topic,
            "total": self.count(group),
            "rows": rows,
            "queue": queue,
            "queues": queues,
            "older": first if first > low else None,
            "newer": min(end, before + MOST_LETTERS) if before < end else None,
            "may_resend": topic != UNDELIVERABLE_TOPIC,
        }

    def _row(self, group: str, found: Found) -> LetterRow:
        message, texts = found.row(), found.properties
        return LetterRow(
            message.id,
            message.unique_key,
            message.queue,
            message.offset,
            message.stored_ms,
            texts.get(names.RETRY_TOPIC, ""),
            dead_letters.tries_of(texts, found.fields.reconsume_times),
            texts.get(dead_letters.REASON, "")[:MOST_REASON_CHARACTERS],
            message.keys,
            message.bytes,
            message.begin,
            self.resent_as(group, message.id),
        )
