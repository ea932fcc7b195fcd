"""Fakes of the broker's surroundings that record the calls they receive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Any, TypeVar

import trio

from triomq.protocol.address import HostPort
from triomq.protocol.command import RemotingCommand
from triomq.protocol.response_template import ResponseTemplate, TemplatedResponse, Value
from triomq.remoting.connection import Connection
from triomq.remoting.scheduling.step_line import Steps
from triomq.remoting.turn import Turn
from triomq.store.results import QueryResult

T = TypeVar("T")


class FakeConnection(Connection):
    """A connection that records what is sent; `on_invoke` responds to calls. It is one of those, since compiled code
    takes nothing else, but has no socket, no turn that runs and no tasks."""

    def __init__(self, address: str = "10.0.0.1:1") -> None:
        self.remote = HostPort.parse(address)
        self.local = HostPort.parse("10.0.0.9:10911")
        self.is_open = True
        self.steps = Steps()
        self.turn = Turn()
        self.serialize_type = 0
        self.closed_because: str | None = None
        self.notes: dict[object, str] = {}
        self.oneways: list[RemotingCommand] = []
        self.invoked: list[tuple[RemotingCommand, float]] = []
        self.answers: list[tuple[RemotingCommand, RemotingCommand]] = []
        self.has_answered = trio.Event()
        self.on_invoke: Callable[[RemotingCommand], Awaitable[RemotingCommand]] | None = None
        self.on_answer: Callable[..., None] | None = None
        self.is_full = False
        self.held_bytes = 0
        self.is_memory_tight = False
        self.postponed: list[Callable[[], None]] = []

    def hold(self, count: int) -> bool:
        self.held_bytes += count
        return self.is_memory_tight

    def task_began(self, size_bytes: int) -> None:
        self.hold(size_bytes)

    def task_ended(self, size_bytes: int) -> None:
        self.hold(-size_bytes)

    def must_wait(self) -> bool:
        return self.is_full

    def postpone(self, later: RemotingCommand | Callable[[], None], size_bytes: int = 0) -> None:
        assert not isinstance(later, RemotingCommand)
        self.postponed.append(later)

    def close(self, reason: str = "") -> None:
        self.is_open = False
        self.closed_because = reason

    def send_oneway(self, command: RemotingCommand) -> bool:
        if not self.is_open:
            return False
        self.oneways.append(command)
        return True

    async def invoke(self, command: RemotingCommand, timeout_seconds: float) -> RemotingCommand:
        self.invoked.append((command, timeout_seconds))
        assert self.on_invoke is not None, "nobody answers calls on this connection"
        return await self.on_invoke(command)

    def answer(self, request: RemotingCommand, response: RemotingCommand, since: float = inf) -> None:
        self.answers.append((request, response))
        self.has_answered.set()

    def answer_filled(
        self, request: RemotingCommand, template: ResponseTemplate, code: int, values: tuple[Value, ...], since: float
    ) -> None:
        self.answer(request, TemplatedResponse(template, request, code, values), since)


class FakeStore:
    """A store whose queues are lists of (physical offset, size, tags code, store time)."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, int], list[tuple[int, int, int, int]]] = {}
        self.starts: dict[tuple[str, int], int] = {}
        self.records: dict[int, bytes] = {}
        self.max_physical_offset = 0
        self.min_physical_offset = 0
        self.deleted: list[str] = []
        self.used: list[str] = []
        self.calls: list[str] = []
        self.expired: set[str] = set()
        self.found = QueryResult()
        self.queries: list[tuple[str, str, int, int, int]] = []
        self.files: Any = None
        self.paths: Any = None
        self.flushed: Any = None

    def fill(self, topic: str, queue_id: int, *store_times: int, tags: int = 0) -> None:
        """Give a queue one entry of 100 bytes for each store time."""
        queue = self.entries.setdefault((topic, queue_id), [])
        for store_time in store_times:
            queue.append((self.max_physical_offset, 100, tags, store_time))
            self.max_physical_offset += 100

    @property
    def reading(self) -> FakeStore:
        """This fake is its own `reading`."""
        return self

    upkeep = reading

    def min_offset(self, topic: str, queue_id: int) -> int:
        return self.starts.get((topic, queue_id), 0)

    def max_offset(self, topic: str, queue_id: int) -> int:
        return len(self.entries.get((topic, queue_id), []))

    def leads_to_ext_unit(self, topic: str, queue_id: int, tags_code: int) -> bool:
        return False

    def queue_entries(self, topic: str, queue_id: int, queue_offset: int, count: int) -> list[tuple[int, int, int]]:
        queue = self.entries.get((topic, queue_id), [])
        return [entry[:3] for entry in queue[queue_offset : queue_offset + count]]

    def store_time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        queue = self.entries.get((topic, queue_id), [])
        return queue[queue_offset][3] if 0 <= queue_offset < len(queue) else -1

    def earliest_store_time(self, topic: str, queue_id: int) -> int:
        return self.store_time_at(topic, queue_id, self.min_offset(topic, queue_id))

    def earliest_log_time(self) -> int:
        return -1

    def queue_offset_by_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        queue = self.entries.get((topic, queue_id), [])
        return next((number for number, entry in enumerate(queue) if entry[3] >= timestamp_ms), len(queue))

    def record_at(self, physical_offset: int) -> bytes | None:
        return self.records.get(physical_offset)

    def query_by_key(self, topic: str, key: str, max_count: int, begin_ms: int, end_ms: int) -> QueryResult:
        self.queries.append((topic, key, max_count, begin_ms, end_ms))
        return self.found

    def delete_topic(self, topic: str) -> int:
        self.deleted.append(topic)
        return 1

    async def cover(self) -> bool:
        return True

    def delete_unused_topics(self, used: Any) -> int:
        self.used = sorted(used)
        return 0

    def queues(self) -> dict[str, list[int]]:
        return {topic: [queue_id] for topic, queue_id in self.entries}

    def delete_expired_queues(self, is_used: Callable[[str], bool]) -> int:
        self.calls.append("delete_expired_queues")
        self.expired = {topic for topic, _ in self.entries if not is_used(topic)}
        return 0

    def delete_files_now(self) -> None:
        self.calls.append("delete_files_now")


class MemoryFile:
    """A table file in memory: the present text and the earlier ones."""

    def __init__(self, *texts: str) -> None:
        self.texts = list(texts)

    def load(self, decode: Callable[[str], T]) -> T | None:
        for text in reversed(self.texts):
            try:
                return decode(text)
            except ValueError:
                continue
        return None

    def save(self, text: str) -> None:
        self.texts.append(text)

    def save_pieces(self, pieces: Sequence[bytes]) -> None:
        self.save(b"".join(pieces).decode())

    @property
    def text(self) -> str:
        return self.texts[-1]


def request(code: int, ext_fields: dict[str, str] | None = None, body: bytes = b"", **members: Any) -> RemotingCommand:
    """Return a request as a processor receives it."""
    return RemotingCommand(code, opaque=7, ext_fields=ext_fields, body=body, **members)
