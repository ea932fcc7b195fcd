"""The pages of messages: those of a topic by queue, offset, time or key, and one message with who consumed it.

They read the store, send nothing, and count in no statistics. A message is shown to those who may consume its topic; a
delayed or half message belongs to the topic that it was sent to."""

from __future__ import annotations

import heapq
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from triomq.broker.assembly.serving import Serving
from triomq.broker.record_border import topic_at
from triomq.broker.views.bodies import plain_begin, shown_body
from triomq.broker.views.found import Found, MessageRow
from triomq.broker.views.search import Search
from triomq.broker.views.topics import USER_KINDS, Topics
from triomq.dashboard.listing import number_of
from triomq.dashboard.views import Ask, Data, File, NotThere, Steps
from triomq.protocol import message_id, properties
from triomq.protocol import property_names as names
from triomq.protocol.address import HostPort
from triomq.protocol.errors import BodyError, ProtocolError
from triomq.protocol.java import cached_string_hash
from triomq.protocol.record import read_fields
from triomq.protocol.system_topics import DLQ_PREFIX, RETRY_PREFIX, dlq_topic
from triomq.protocol.trace_records import PUB, records_of

MOST_MESSAGES: Final = 50
MOST_QUEUES: Final = 1024
MOST_FOUND_BY_KEY: Final = 64
MOST_GROUPS: Final = 200
MOST_SUGGESTED: Final = 200
"""Topics that the form suggests."""
MOST_EVENTS: Final = 200
"""Of a message's trace."""
MOST_TRACE_BYTES: Final = 1024 * 1024
MOST_FILE_BYTES: Final = 32 * 1024 * 1024
_PIECE_BYTES: Final = 64 * 1024
_STEP_QUEUES: Final = 32
FOREVER_MS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Begin:
    """Where a list begins: at an offset or a time (ms), or at the newest; in one queue or, with -1, in all."""

    queue: int
    offset: int
    since_ms: int | None

    @property
    def step(self) -> int:
        return 1 if self.offset >= 0 or self.since_ms is not None else -1


class Messages:
    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._metadata = serving.tables.metadata
        self._reading = serving.store.reading
        self._topics = Topics(serving)

    def at(self, physical_offset: int, ask: Ask) -> Found | None:
        """Return the message that begins there, None if none does or the viewer may not see it."""
        data = self._reading.record_at(physical_offset) if physical_offset >= 0 else None
        topic = topic_at(self._reading, physical_offset, data) if data is not None else None
        if data is None or topic is None:
            return None
        fields = read_fields(data, 0, len(data))
        stored_topic = fields.topic.decode("utf-8", "replace")
        if not (ask.may_read(stored_topic) and ask.may_read(topic)):
            return None
        return Found(data, fields, properties.parse_bytes(fields.properties), topic, physical_offset)

    # -- a list --------------------------------------------------------------------------------------------------------

    def messages(self, ask: Ask) -> Steps:
        """Make the list of a topic's messages: with a key those that have it; otherwise the newest, or those from an
        offset or a time on."""
        query = ask.query
        topic = query.get("topic", "").strip()
        key = query.get("key", "").strip()
        if topic and (not ask.may_read(topic) or self._metadata.topics.get(topic) is None):
            raise NotThere(f"there is no topic {topic!r} that you may see")
        queue = number_of(query, "queue", -1, -1, (1 << 31) - 1)
        since_ms = time_of(query.get("time", ""))
        offset = number_of(query, "offset", -1, -1, FOREVER_MS) if queue >= 0 else -1
        search = Search(query)
        rows: list[MessageRow] = []
        after = -1
        if topic and key:
            rows = yield from self._by_key(topic, key, search, ask)
        elif topic and not search.error:
            rows, after = yield from self._by_queue(topic, Begin(queue, offset, since_ms), search, ask)
        suggested = yield from self._suggested(ask)
        yield
        newer = older = None
        if search.is_narrow:
            newer = after if queue >= 0 and after >= 0 else None
        elif topic and not key and queue >= 0 and rows:
            first = min(row.offset for row in rows)
            last = max(row.offset for row in rows)
            newer = last + 1 if last + 1 < self._reading.max_offset(topic, queue) else None
            low = self._reading.min_offset(topic, queue)
            older = max(low, first - MOST_MESSAGES) if first > low else None
        return {
            "rows": rows,
            "topics": suggested,
            "topic": topic,
            "queue": queue if queue >= 0 else None,
            "offset": offset if offset >= 0 else None,
            "time": query.get("time", "").strip(),
            "is_time_wrong": bool(query.get("time", "").strip()) and since_ms is None,
            "key": key,
            "search": {"tag": search.tag, "sql": search.sql, "text": search.text, "error": search.error},
            "looked": search.looked if search.is_narrow else None,
            "is_stopped": search.is_stopped,
            "until_ms": search.until_ms,
            "newer": newer,
            "older": older,
        }

    def _suggested(self, ask: Ask) -> Generator[None, None, list[str]]:
        """Return the first topics by name that the list of topics has without a chosen kind. Those of retries and dead
        letters come last: where groups are many, they would leave no place for the others."""
        shown = yield from self._topics.readable(ask, USER_KINDS)
        return sorted(shown, key=lambda name: (name.startswith((RETRY_PREFIX, DLQ_PREFIX)), name))[:MOST_SUGGESTED]

    def _by_key(self, topic: str, key: str, search: Search, ask: Ask) -> Generator[None, None, list[MessageRow]]:
        rows = []
        for at in self._reading.offsets_by_key(topic, key, MOST_FOUND_BY_KEY, 0, FOREVER_MS):
            found = self.at(at, ask)
            # The index has hashes only, so other keys and other topics come along.
            is_it = found is not None and found.has_key(key) and found.fields.topic == topic.encode()
            search.looked += is_it
            if found is not None and is_it and search.wants(found):
                rows.append(found.row())
            yield
        return rows

    def _by_queue(
        self, topic: str, begin: Begin, search: Search, ask: Ask
    ) -> Generator[None, None, tuple[list[MessageRow], int]]:
        """Return the newest messages, newest first, or those from an offset or a time on, oldest first; and the offset
        of the message behind the last one, -1 if there is none or newest come first."""
        reading = self._reading
        step = begin.step
        heads = yield from self._heads(topic, begin)
        rows: list[MessageRow] = []
        after = -1
        while heads and len(rows) < MOST_MESSAGES and search.may_look(2 * MOST_MESSAGES):  # some may be gone
            search.looked += 1
            moment, queue_id, at = heapq.heappop(heads)
            search.until_ms = step * moment
            for physical_offset, _, _ in reading.queue_entries(topic, queue_id, at, 1):
                found = self.at(physical_offset, ask)
                if found is not None and search.wants(found):
                    rows.append(found.row())
            at += step
            after = -1
            if reading.min_offset(topic, queue_id) <= at < reading.max_offset(topic, queue_id):
                heapq.heappush(heads, (step * reading.store_time_at(topic, queue_id, at), queue_id, at))
                after = at if step > 0 else -1
            yield
        return rows, after

    def _heads(self, topic: str, begin: Begin) -> Generator[None, None, list[tuple[int, int, int]]]:
        """Return the first message to look at of each queue as a heap of store time (negative if the newest come
        first), queue and offset."""
        reading = self._reading
        queues = [begin.queue] if begin.queue >= 0 else sorted(reading.ends(topic))[:MOST_QUEUES]
        heads: list[tuple[int, int, int]] = []
        for number, queue_id in enumerate(queues, 1):
            low = reading.min_offset(topic, queue_id)
            end = reading.max_offset(topic, queue_id)
            at = end - 1
            if begin.offset >= 0:
                at = max(low, begin.offset)
            elif begin.since_ms is not None:
                at = reading.queue_offset_by_time(topic, queue_id, begin.since_ms)
            if low <= at < end:
                heads.append((begin.step * reading.store_time_at(topic, queue_id, at), queue_id, at))
            if number % _STEP_QUEUES == 0:
                yield
        heapq.heapify(heads)
        return heads

    # -- one message ---------------------------------------------------------------------------------------------------

    def message(self, ask: Ask) -> Steps:
        """Make the page of one message, by either of its ids; that of its producer needs the topic, too."""
        wanted = ask.query.get("id", "").strip()
        topic = ask.query.get("topic", "").strip()
        found = self.of_place(wanted, ask)
        if found is None and topic and ask.may_read(topic):
            for at in self._reading.offsets_by_key(topic, wanted, MOST_FOUND_BY_KEY, 0, FOREVER_MS):
                candidate = self.at(at, ask)
                yield
                is_it = candidate is not None and candidate.properties.get(names.UNIQ_KEY) == wanted
                if candidate is not None and is_it and candidate.fields.topic == topic.encode():
                    found = candidate
                    break
        if found is None:
            raise NotThere(f"there is no message {wanted!r} that you may see; an id of a producer needs its topic")
        fields = found.fields
        body = yield from shown_body(found.body, fields.sys_flag, ask.query.get("as", ""))
        groups, left_out = yield from self._consumed_by(found, ask)
        trace = yield from self._trace(found)
        return {
            "message": found.row(),
            "real_topic": found.topic,
            "born_ms": fields.born_timestamp,
            "born_host": HostPort.from_packed(fields.born_host).text,
            "reconsume_times": fields.reconsume_times,
            "flag": fields.flag,
            "sys_flag": fields.sys_flag,
            "stored_bytes": fields.size_bytes,
            "physical_offset": found.at,
            "properties": [{"name": name, "value": value} for name, value in sorted(found.properties.items())],
            "body": body,
            "trace": trace,
            "groups": groups,
            "groups_left_out": left_out,
        }

    def body(self, ask: Ask) -> File:
        """Make a file of the body of a message, decompressed, by the id that locates it."""
        wanted = ask.query.get("id", "").strip()
        found = self.of_place(wanted, ask)
        if found is None:
            raise NotThere(f"there is no message {wanted!r} that you may see")
        body = found.body
        try:
            body, is_whole = plain_begin(body, found.fields.sys_flag, MOST_FILE_BYTES)
        except BodyError:
            is_whole = True  # what cannot be decompressed is stored as it is
        if not is_whole:
            raise NotThere(f"the body has more than {MOST_FILE_BYTES} bytes: only a consumer gets it")
        return File(f"{found.id}.bin", "application/octet-stream", pieces_of(body))

    def of_place(self, wanted: str, ask: Ask) -> Found | None:
        """Return the message that an offsetMsgId of this broker locates, None if the viewer may not see it."""
        try:
            _, physical_offset = message_id.parse_offset_message_id(wanted)
        except ProtocolError:
            return None
        found = self.at(physical_offset, ask)
        # an id of another broker has another host
        return found if found is not None and found.id == wanted.upper() else None

    def _trace(self, found: Found) -> Generator[None, None, list[Data]]:
        """Return what clients with a message trace sent about the message, in the order of time."""
        key = found.properties.get(names.UNIQ_KEY)
        topic = self._serving.tables.configuration.broker.msg_trace_topic_name
        if not key or found.topic == topic:
            return []
        events: list[Data] = []
        for at in self._reading.offsets_by_key(topic, key, MOST_FOUND_BY_KEY, 0, FOREVER_MS):
            record = self.at(at, Ask())
            yield
            if record is None or record.fields.topic != topic.encode():
                continue
            try:
                body, _ = plain_begin(record.body, record.fields.sys_flag, MOST_TRACE_BYTES)
            except BodyError:
                continue
            client = HostPort.from_packed(record.fields.born_host).ip
            for one in records_of(body, key):
                events.append(
                    {
                        "event": "sent" if one.kind == PUB else "consumed",
                        "group": one.group,
                        "client": client,
                        "time_ms": one.time_ms,
                        "cost_ms": one.cost_ms,
                        "ok": one.is_good,
                    }
                )
        events.sort(key=lambda event: int(event["time_ms"]))
        return events[:MOST_EVENTS]

    def _consumed_by(self, found: Found, ask: Ask) -> Generator[None, None, tuple[list[Data], int]]:
        """Return what each group of the topic did with the message, as far as the broker knows, and how many groups are
        left out."""
        topic = found.fields.topic.decode("utf-8", "replace")
        known = dict.fromkeys(
            [*self._metadata.consumers.groups_of_topic(topic), *self._metadata.offsets.groups_of_topic(topic)]
        )
        groups = [group for group in sorted(known) if ask.may_read_group(group)]
        rows: list[Data] = []
        for group in groups[:MOST_GROUPS]:
            online = self._metadata.consumers.get(group)
            committed = self._metadata.offsets.query(group, topic, found.fields.queue_id)
            rows.append(
                {
                    "group": group,
                    "state": self._state(found, topic, group, committed),
                    "members": len(online.channels) if online is not None else 0,
                    "committed": committed if committed >= 0 else None,
                }
            )
            yield
        return rows, len(groups) - len(rows)

    def _state(self, found: Found, topic: str, group: str, committed: int) -> str:
        """Return one of broadcasting, waiting, dead letter, filtered and consumed. An offset says only that the group
        is past the message; what its listener did is in the message trace."""
        online = self._metadata.consumers.get(group)
        if online is not None and online.consumption.message_model == "BROADCASTING":
            return "broadcasting"
        if committed <= found.fields.queue_offset:
            return "waiting"
        if self._is_dead(found, group):
            return "dead letter"
        subscription = online.subscriptions.get(topic) if online is not None else None
        if subscription is not None and subscription.is_tag and subscription.code_set:
            tags = found.properties.get(names.TAGS, "")
            if cached_string_hash(tags) not in subscription.code_set:
                return "filtered"
        return "consumed"

    def _is_dead(self, found: Found, group: str) -> bool:
        """Return whether the group's dead letters have the message. One lookup, and one record of the same id."""
        key = found.properties.get(names.UNIQ_KEY)
        dead = dlq_topic(group)
        if not key or self._metadata.topics.get(dead) is None:
            return False
        for at in self._reading.offsets_by_key(dead, key, 1, 0, FOREVER_MS):
            data = self._reading.record_at(at)
            if data is not None and topic_at(self._reading, at, data) == dead:
                fields = read_fields(data, 0, len(data))
                return properties.parse_bytes(fields.properties).get(names.UNIQ_KEY) == key
        return False


def pieces_of(data: bytes) -> Iterator[bytes]:
    """Yield data in pieces that are a step each."""
    for at in range(0, len(data), _PIECE_BYTES):
        yield data[at : at + _PIECE_BYTES]


def time_of(text: str) -> int | None:
    """Return the ms of a moment in UTC (2026-01-31 23:59:59.5, or with a T) or of ms since 1970; None otherwise."""
    text = text.strip()
    if text.isascii() and text.isdigit() and 9 < len(text) < 16:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        return max(0, int(moment.timestamp() * 1000))
    except (ValueError, OverflowError):
        return None
