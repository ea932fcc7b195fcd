"""Consume offsets: the table in memory, and the file in which a broadcasting consumer keeps it.

Queue offsets here are those of the NEXT message to consume. May not live here: requests to brokers (offset_store.py).
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping
from pathlib import Path

from triomq.client.core.errors import LocalOffsetsUnreadable
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


_NAME = "offsets.json"
_UNSAFE_IN_PATH = re.compile(r"[^A-Za-z0-9._#@%-]")


class LocalOffsetFile:
    """The offsets of a broadcasting consumer, in the format of RocketMQ's LocalFileOffsetStore:

        <directory>/<instance name>/<group>/offsets.json
        {"offsetTable":{{"brokerName":..,"queueId":0,"topic":..}:5}}

    A broadcasting consumer needs a fixed `instance_name` to continue where it stopped, which is unique in its
    directory. RocketMQ's clients, and ours before, have the client id in its place, and so the address of the host: a
    machine with a new address would lose its place. Such a file is read while there is no other, the newest if there
    are several.

    A file that is torn or foreign does not count as empty, or its consumer would skip what it has not seen. The
    `.bak` file replaces it, or LocalOffsetsUnreadable is raised. All calls block; the caller moves them off the event
    loop.
    """

    def __init__(self, directory: Path, client_id: str, group: str) -> None:
        instance = client_id.partition("@")[2] or client_id
        self._directory = directory
        self._instance, self._group = (_UNSAFE_IN_PATH.sub("_", name) for name in (instance, group))
        self._old_place = directory / _UNSAFE_IN_PATH.sub("_", client_id) / self._group / _NAME
        self.path = directory / self._instance / self._group / _NAME
        self.damage: str | None = None
        """What was wrong with the file whose backup `load` has used."""

    def load(self) -> dict[MessageQueue, int]:
        """Return the stored offsets; empty when there is no file. Raises LocalOffsetsUnreadable."""
        for path in (self.path, self._old_place, *self._old_places()):
            found = self._load(path)
            if found is not None:
                return found
        return {}

    def _load(self, path: Path) -> dict[MessageQueue, int] | None:
        """Return the offsets in a file or in its backup, None without either. Raises LocalOffsetsUnreadable."""
        failure: str | None = None
        for one in (path, path.with_suffix(".json.bak")):
            try:
                found = _read_table(one.read_bytes())
            except FileNotFoundError:
                continue
            except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
                failure = failure or f"{type(error).__name__}: {error}"
                continue
            if failure is not None:
                self.damage = f"{path}: {failure}"
            return found
        if failure is not None:
            raise LocalOffsetsUnreadable(str(path), failure)
        return None

    def _old_places(self) -> list[Path]:
        """Return the files under earlier addresses of this host, the newest first."""
        pattern = f"*@{glob.escape(self._instance)}/{glob.escape(self._group)}/{_NAME}"
        return sorted(self._directory.glob(pattern), key=lambda path: path.stat().st_mtime, reverse=True)

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
    """Return the table of an offsets.json. Raises ValueError, TypeError, AttributeError or KeyError when it has another
    form."""
    try:
        table = fastjson.loads(data)["offsetTable"]
    except ProtocolError as error:
        raise ValueError(str(error)) from error
    for queue, at in table.items():
        if not isinstance(queue, MessageQueue) or type(at) is not int:
            raise ValueError(f"{queue!r}: {at!r} is not the offset of a queue")
    return dict(table)
