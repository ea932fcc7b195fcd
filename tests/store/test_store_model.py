"""Random sequences of everything that a broker does with a store, compared with a simple model."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import trio
from fake_clock import FakeClock
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from store_support import abandon, message, open_store, unique_key

from triomq.protocol import record
from triomq.protocol.record import BatchUnit
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import GetStatus

topics = st.sampled_from(["A", "B", "%RETRY%G"])
queue_ids = st.integers(0, 1)
payloads = st.integers(0, 1500).map(lambda size: b"p" * size)


class StoreMachine(RuleBasedStateMachine):
    """`queues`: what can be read, (topic, queue) -> list of (key, body); `pending`: what was put since the commit."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.clock = FakeClock(step_ms=7)
        self.queues: dict[tuple[str, int], list[tuple[str, bytes]]] = {}
        self.pending: list[tuple[tuple[str, int], str, bytes]] = []
        self.store: DefaultMessageStore = self.run(open_store, Path(self.directory.name), clock=self.clock)

    def run(self, function: Any, *arguments: Any, **named: Any) -> Any:
        async def call() -> Any:
            return await function(*arguments, **named)

        return trio.run(call)

    def teardown(self) -> None:
        self.run(self.store.close)
        self.directory.cleanup()

    def next_offset(self, where: tuple[str, int]) -> int:
        return len(self.queues.get(where, [])) + sum(pending[0] == where for pending in self.pending)

    @rule(topic=topics, queue_id=queue_ids, body=payloads, keyed=st.booleans())
    def put(self, topic: str, queue_id: int, body: bytes, keyed: bool) -> None:
        key = unique_key()
        expected = self.next_offset((topic, queue_id))
        result = self.store.append(message(topic, queue_id, body, uniq_key=key, keys=f"x{key} y" if keyed else None))
        assert result.is_ok and result.queue_offset == expected
        self.pending.append(((topic, queue_id), key, body))

    @rule(topic=topics, queue_id=queue_ids, bodies=st.lists(payloads, min_size=1, max_size=4))
    def put_batch(self, topic: str, queue_id: int, bodies: list[bytes]) -> None:
        keys = [unique_key() for _ in bodies]
        units = [BatchUnit(0, body, f"UNIQ_KEY\x01{key}".encode()) for key, body in zip(keys, bodies, strict=True)]
        expected = self.next_offset((topic, queue_id))
        result = self.store.append_batch(message(topic, queue_id, properties=b"CLUSTER\x01C"), units)
        if sum(map(len, bodies)) > 3400:
            assert result.is_ok or "batch" in result.reason
        if result.is_ok:
            assert (result.queue_offset, result.message_count) == (expected, len(bodies))
            self.pending += [((topic, queue_id), key, body) for key, body in zip(keys, bodies, strict=True)]

    @rule()
    def commit(self) -> None:
        self.store.commit()
        for where, key, body in self.pending:
            self.queues.setdefault(where, []).append((key, body))
        self.pending.clear()

    @rule()
    def close_and_open(self) -> None:
        self.commit()
        self.run(self.store.close)
        self.store = self.run(open_store, Path(self.directory.name), clock=self.clock)
        assert self.store.recovery_report is not None and self.store.recovery_report.records == 0

    @rule()
    def kill_and_open(self) -> None:
        abandon(self.store)
        self.pending.clear()
        self.store = self.run(open_store, Path(self.directory.name), clock=self.clock)

    @rule(thorough=st.booleans())
    def flush(self, thorough: bool) -> None:
        self.run(self.store.flushing.flush_thoroughly if thorough else self.store.flushing.flush_log)

    @precondition(lambda self: self.queues and not self.pending)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        where = data.draw(st.sampled_from(sorted(self.queues)))
        messages = self.queues[where]
        offset = data.draw(st.integers(0, len(messages) + 2))
        count = data.draw(st.integers(1, 40))
        found = self.store.reading.get_messages(*where, offset, count)
        if offset == len(messages):
            assert found.status is GetStatus.OFFSET_OVERFLOW_ONE
        elif offset > len(messages):
            assert (found.status, found.next_begin_offset) == (GetStatus.OFFSET_OVERFLOW_BADLY, len(messages))
        else:
            stored = [record.decode_record(raw) for raw in found.records]
            assert 1 <= len(stored) <= count
            assert [(m.uniq_key, m.body) for m in stored] == messages[offset : offset + len(stored)]
            assert [m.queue_offset for m in stored] == list(range(offset, offset + len(stored)))
            assert found.next_begin_offset == offset + len(stored)

    @precondition(lambda self: self.queues and not self.pending)
    @rule(data=st.data())
    def query(self, data: st.DataObject) -> None:
        where = data.draw(st.sampled_from(sorted(self.queues)))
        key, body = data.draw(st.sampled_from(self.queues[where]))
        found = self.store.reading.query_by_key(where[0], key, 64, 0, 1 << 60)
        assert [record.decode_record(raw).body for raw in found.records] == [body]

    @invariant()
    def ends(self) -> None:
        for where, messages in self.queues.items():
            assert self.store.reading.max_offset(*where) == len(messages) == self.store.reading.queue_end(*where).value
            assert self.store.reading.min_offset(*where) == 0


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
