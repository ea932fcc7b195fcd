"""The positions of a copy on disk: one file for each topic in the directory of --state.

    {"source": "DefaultCluster", "target": "Orders", "queues": [
      {"broker": "broker-a", "queue": 0, "toBroker": "broker-a", "toQueue": 0, "next": 4711, "runs": [[0, 0, 4711]]}]}

`next` is the offset of the first message that is not known to be at the target; `runs` are those of OffsetMap. A file
is written beside, synced and renamed. One process owns the directory; a lock on the file `lock` says which.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote

from triomq.pipeline.copying.offset_map import OffsetMap
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.jobs.session import JobFailed

FIRST_REST_SECONDS: Final = 0.1
LONGEST_REST_SECONDS: Final = 1.0


@dataclass(slots=True)
class Counts:
    """`lost`: deleted at the source before they were copied. `returned`: left out, since they came from the target."""

    copied: int = 0
    lost: int = 0
    returned: int = 0


class QueueCopy:
    """One queue on its way. Owned by the loop of the job.

    `next_offset`: None before the first position is known. `is_unsure`: what the target has must be read back before
    the next message is sent. `address`: of the target's master, as seen last. `depth`, `span`: pulls of the next round,
    and messages of each. `end`: of the queue at the source, as seen last. `counts`: since the figures were taken.
    `is_drained`: the last pull found nothing.
    """

    __slots__ = (
        "address",
        "counts",
        "depth",
        "end",
        "is_drained",
        "is_unsure",
        "next_offset",
        "offsets",
        "rest_seconds",
        "rests_until",
        "source",
        "span",
        "target",
    )

    def __init__(self, source: MessageQueue, target: MessageQueue, next_offset: int | None, offsets: OffsetMap) -> None:
        self.source = source
        self.target = target
        self.next_offset = next_offset
        self.offsets = offsets
        self.is_unsure = False
        self.address = ""
        self.depth = 1
        self.span = 32
        self.end = 0
        self.counts = Counts()
        self.is_drained = False
        self.rest_seconds = 0.0
        self.rests_until = 0.0

    def rest(self, now: float) -> None:
        """Ask a queue without news less often, up to once in LONGEST_REST_SECONDS. `now`: seconds, monotonic."""
        self.rest_seconds = min(max(2 * self.rest_seconds, FIRST_REST_SECONDS), LONGEST_REST_SECONDS)
        self.rests_until = now + self.rest_seconds

    @property
    def lag(self) -> int:
        return max(self.end - (self.next_offset or 0), 0)


class StateDirectory:
    """Use as a context manager. Every method raises JobFailed when the directory cannot be used."""

    def __init__(self, path: str, source: str) -> None:
        """`source`: what the source is called; the positions of another one are refused."""
        self._path = Path(path)
        self._source = source
        self._lock: IO[bytes] | None = None

    def __enter__(self) -> StateDirectory:
        try:
            self._path.mkdir(parents=True, exist_ok=True)
            self._lock = (self._path / "lock").open("ab")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobFailed(f"--state: another copy is running with {self._path}") from None
        except OSError as error:
            raise JobFailed(f"--state: {self._path} cannot be used: {error.strerror or error}") from None
        return self

    def __exit__(self, *exception: object) -> None:
        if self._lock is not None:
            self._lock.close()

    def _file(self, topic: str) -> Path:
        return self._path / f"{quote(topic, safe='')}.json"

    def load(self, topic: str, target: str) -> dict[MessageQueue, QueueCopy]:
        """Return source queue -> its copy, as it was saved; empty for a topic without a file."""
        file = self._file(topic)
        try:
            data = json.loads(file.read_bytes())
            if (data["source"], data["target"]) != (self._source, target):
                was = f"{data['target']!r} from {data['source']!r}"
                raise JobFailed(f"--state: {file} is of a copy to {was}; use another directory")
            found = {}
            for one in data["queues"]:
                source = MessageQueue(topic, one["broker"], one["queue"])
                place = MessageQueue(target, one["toBroker"], one["toQueue"])
                found[source] = QueueCopy(source, place, one["next"], OffsetMap(one["runs"]))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise JobFailed(f"--state: {file} cannot be read: {error.strerror or error}") from None
        except (ValueError, KeyError, TypeError) as error:
            raise JobFailed(f"--state: {file} is damaged: {error!r}; without it the topic is copied again") from None
        return found

    def save(self, topic: str, target: str, copies: Iterable[QueueCopy]) -> None:
        """Write the file of a topic; it is on disk when this returns."""
        queues = [
            {
                "broker": copy.source.broker_name,
                "queue": copy.source.queue_id,
                "toBroker": copy.target.broker_name,
                "toQueue": copy.target.queue_id,
                "next": copy.next_offset,
                "runs": copy.offsets.runs,
            }
            for copy in copies
        ]
        data = json.dumps({"source": self._source, "target": target, "queues": queues}).encode()
        file = self._file(topic)
        beside = file.with_suffix(".tmp")
        try:
            with beside.open("wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            beside.replace(file)
            directory = os.open(self._path, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise JobFailed(f"--state: {file} cannot be written: {error.strerror or error}") from None
