"""Consume offsets: the table in memory, and the file in which a broadcasting consumer keeps it.

Queue offsets here are those of the NEXT message to consume. May not live here: requests to brokers (offset_store.py).
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from triomq.protocol.bodies import fastjson
from triomq.protocol.errors import ProtocolError
from triomq.protocol.message_queue import MessageQueue


class OffsetTable:
    """The offsets of one consumer group at this client. It remembers which of them changed since they were last
    stored."""

    def __init__(self) -> None:
        self._offsets: dict[MessageQueue, int] = {}
        self._changed: set[MessageQueue] = set()

    def __len__(self) -> int:
        return len(self._offsets)

    def get(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    def update(self, queue: MessageQueue, queue_offset: int, *, increase_only: bool = False) -> None:
        """Set the offset; with `increase_only`, a smaller one is ignored."""
        known = self._offsets.get(queue)
        if known == queue_offset or (increase_only and known is not None and queue_offset < known):
            return
        self._offsets[queue] = queue_offset
        self._changed.add(queue)

    def restore(self, queue: MessageQueue, queue_offset: int) -> None:
        """Set the offset to what the store holds, so that it does not count as changed."""
        self._offsets[queue] = queue_offset
        self._changed.discard(queue)

    def remove(self, queue: MessageQueue) -> None:
        self._offsets.pop(queue, None)
        self._changed.discard(queue)

    def changed(self) -> list[tuple[MessageQueue, int]]:
        """Return what has to be stored, sorted by queue."""
        return sorted((queue, self._offsets[queue]) for queue in self._changed)

    def mark_stored(self, queue: MessageQueue, queue_offset: int) -> None:
        """Note that this value has reached the store; a newer one in memory stays marked as changed."""
        if self._offsets.get(queue) == queue_offset:
            self._changed.discard(queue)

    def snapshot(self, topic: str | None = None) -> dict[MessageQueue, int]:
        """Return a copy, of one topic or of all."""
        return {queue: at for queue, at in self._offsets.items() if topic is None or queue.topic == topic}


_UNSAFE_IN_PATH = re.compile(r"[^A-Za-z0-9._#@%-]")


class LocalOffsetFile:
    """The offsets of a broadcasting consumer, in the format and at the place of RocketMQ's LocalFileOffsetStore:

        <directory>/<client id>/<group>/offsets.json     {"offsetTable":{{"brokerName":..,"queueId":0,"topic":..}:5}}

    A broadcasting consumer needs a fixed `instance_name` to continue where it stopped, because the client id is part of
    the path. All calls block; the caller moves them off the event loop.
    """

    def __init__(self, directory: Path, client_id: str, group: str) -> None:
        self.path = directory / _UNSAFE_IN_PATH.sub("_", client_id) / _UNSAFE_IN_PATH.sub("_", group) / "offsets.json"

    def load(self) -> dict[MessageQueue, int]:
        """Return the stored offsets; empty when there is no file. The `.bak` file replaces a torn one."""
        for path in (self.path, self.path.with_suffix(".json.bak")):
            try:
                data = path.read_bytes()
            except FileNotFoundError:
                continue
            with contextlib.suppress(ValueError, TypeError, AttributeError, KeyError):
                if data.strip():
                    return _read_table(data)
        return {}

    def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Replace the stored offsets; the previous file stays as `.bak`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.path.with_suffix(".json.tmp")
        with fresh.open("wb") as file:
            file.write(fastjson.dumps_pretty({"offsetTable": dict(sorted(offsets.items()))}))
            file.flush()
            os.fsync(file.fileno())
        if self.path.exists():
            self.path.replace(self.path.with_suffix(".json.bak"))
        fresh.replace(self.path)


def _read_table(data: bytes) -> dict[MessageQueue, int]:
    """Return the table of an offsets.json. Raises ValueError, TypeError or AttributeError when it has another form."""
    try:
        table = fastjson.loads(data)["offsetTable"]
    except ProtocolError as error:
        raise ValueError(str(error)) from error
    return {queue: int(at) for queue, at in table.items() if isinstance(queue, MessageQueue)}
