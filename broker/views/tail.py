"""The page that shows messages as they are stored: the newest ones, and those that come as server-sent events.

A stream lasts for `SECONDS`; the browser then asks again and says where it was, so nothing is left out, and who may see
the topic is decided again. Without a script, or without events, the page shows the newest messages each time it is
loaded.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import AsyncGenerator, Generator
from typing import Final

import trio

from triomq.broker.assembly.serving import Serving
from triomq.broker.views.found import MessageRow
from triomq.broker.views.messages import Messages
from triomq.broker.views.search import Search
from triomq.dashboard.views import Ask, NotThere, Steps, Stream, View
from triomq.remoting.scheduling.step_line import Steps as Turns

MOST_TAILS: Final = 8
"""Streams at once."""
MOST_QUEUES: Final = 64
MOST_MESSAGES: Final = 50
"""Of one queue at a time, and of all of them; older ones are counted only."""
TICK_SECONDS: Final = 1.0
SECONDS: Final = 45.0
"""Less than a response may last."""
_QUIET_TICKS: Final = 5
"""After as many without a message something is sent all the same: it shows whether the browser is still there."""


class Tail:
    def __init__(self, serving: Serving, messages: Messages) -> None:
        self._messages = messages
        self._reading = serving.store.reading
        self._topics = serving.tables.metadata.topics
        self._open = 0

    def views(self) -> list[View]:
        """Return the page."""
        return [View("/tail", "Live messages", "tail.html", self.page, "/messages", refreshes=False)]

    def streams(self) -> list[Stream]:
        """Return the stream of the page."""
        return [Stream("/tail.events", self.events)]

    def _check(self, ask: Ask) -> str:
        topic = ask.query.get("topic", "").strip()
        if not ask.may_read(topic) or self._topics.get(topic) is None:
            raise NotThere(f"there is no topic {topic!r} that you may see")
        return topic

    def page(self, ask: Ask) -> Steps:
        """Make the page with the newest messages."""
        topic = self._check(ask)
        wanted = {name: ask.query.get(name, "") for name in ("tag", "sql", "text")}
        data = yield from self._messages.messages(Ask({"topic": topic, **wanted}, ask.viewer))
        return {"topic": topic, "rows": data["rows"], "search": data["search"], "most": MOST_MESSAGES}

    def events(self, ask: Ask, last_id: str, turns: Turns) -> AsyncGenerator[bytes, None]:
        """Return the stream of a topic, from where the browser was, or from now on. Raises NotThere."""
        return self._events(self._check(ask), ask, positions_of(last_id), turns)

    async def _events(
        self, topic: str, ask: Ask, positions: dict[int, int], turns: Turns
    ) -> AsyncGenerator[bytes, None]:
        if self._open >= MOST_TAILS:
            yield b"retry: 10000\nevent: busy\ndata: {}\n\n"
            return
        self._open += 1
        try:
            search = Search(ask.query)
            positions = positions or self._ends(topic)
            yield b"retry: 1000\n\n"
            end = trio.current_time() + SECONDS
            quiet = 0
            while trio.current_time() < end:
                rows, skipped = await turns.run(self._new(topic, positions, search, ask))
                quiet = 0 if rows or skipped else quiet + 1
                if rows or skipped or quiet % _QUIET_TICKS == 0:
                    data = json.dumps({"rows": [dataclasses.asdict(row) for row in rows], "skipped": skipped})
                    place = ",".join([f"{queue_id}:{offset}" for queue_id, offset in positions.items()])
                    yield f"id: {place}\ndata: {data}\n\n".encode()
                await trio.sleep(TICK_SECONDS)
        finally:
            self._open -= 1

    def _ends(self, topic: str) -> dict[int, int]:
        return {queue_id: self._reading.max_offset(topic, queue_id) for queue_id in self._queues(topic)}

    def _queues(self, topic: str) -> list[int]:
        return sorted(self._reading.ends(topic))[:MOST_QUEUES]

    def _new(
        self, topic: str, positions: dict[int, int], search: Search, ask: Ask
    ) -> Generator[None, None, tuple[list[MessageRow], int]]:
        """Return the messages behind these positions, oldest first, and how many are left out. Moves the positions."""
        rows: list[MessageRow] = []
        skipped = 0
        for queue_id in self._queues(topic):
            low, end = self._reading.min_offset(topic, queue_id), self._reading.max_offset(topic, queue_id)
            at = min(end, max(low, positions.get(queue_id, low)))
            first = max(at, end - MOST_MESSAGES)
            skipped += first - at
            for offset in range(first, end):
                for begin, _, _ in self._reading.queue_entries(topic, queue_id, offset, 1):
                    found = self._messages.at(begin, ask)
                    if found is not None and search.wants(found):
                        rows.append(found.row())
                yield
            positions[queue_id] = end
        rows.sort(key=lambda row: row.stored_ms)
        return rows[-MOST_MESSAGES:], skipped + max(0, len(rows) - MOST_MESSAGES)


def positions_of(text: str) -> dict[int, int]:
    """Return the next offset of each queue from the id of an event; none if the text is not one."""
    positions: dict[int, int] = {}
    for pair in text.split(",")[:MOST_QUEUES]:
        queue_id, _, offset = pair.partition(":")
        if not (queue_id + offset).isascii() or not (queue_id.isdigit() and offset.isdigit()) or len(pair) > 30:
            return {}
        positions[int(queue_id)] = int(offset)
    return positions
