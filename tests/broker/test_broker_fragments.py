"""The text of a table in pieces: what a change costs, and that the text is right."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
import trio.testing
from broker_fakes import MemoryFile
from fake_clock import FakeClock
from file_faults import FaultyFiles
from hypothesis import given
from hypothesis import strategies as st

from triomq.broker.tables.fragments import BLOCKS_IN_A_STEP, ENTRIES_IN_A_BLOCK, ENTRIES_IN_A_STEP, Fragments, member
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.queue_locks import QueueLockTable
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from triomq.protocol.message_queue import MessageQueue
from triomq.store.disk.json_config import WRITE_BYTES, JsonFile


class Table:
    """Entries, and a count of those that are rendered."""

    def __init__(self, names: int = 0) -> None:
        self.entries: dict[str, int] = {}
        self.rendered = 0
        self.fragments: Fragments[str] = Fragments(self._text)
        for number in range(names):
            self.put(f"n{number}", number)

    def put(self, name: str, value: int | None) -> None:
        if value is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = value
        self.fragments.touch(name)

    def _text(self, name: str) -> str | None:
        self.rendered += 1
        value = self.entries.get(name)
        return member(name, str(value)) if value is not None else None

    def kept(self) -> Any:
        return json.loads(b"".join(self.fragments.object()))


CHANGES = st.tuples(st.integers(0, 300), st.none() | st.integers(0, 9))


@given(st.lists(st.lists(CHANGES, max_size=80) | st.just("render") | st.just("pieces"), max_size=12))
def test_the_text_is_that_of_the_entries_whatever_was_rendered_when(steps: list[Any]) -> None:
    table = Table()
    for step in steps:
        if step == "render":
            table.fragments.render()
        elif step == "pieces":
            assert table.kept() == table.entries
        else:
            for name, value in step:
                table.put(f"n{name}", value)
    assert table.kept() == table.entries


def test_a_change_renders_one_entry_and_a_step_a_few() -> None:
    table = Table(10_000)
    steps = 0
    while True:
        before = table.rendered
        has_more = table.fragments.render()
        assert table.rendered - before <= ENTRIES_IN_A_STEP
        steps += 1
        if not has_more:
            break
    assert steps >= 10_000 // ENTRIES_IN_A_STEP + 10_000 // ENTRIES_IN_A_BLOCK // BLOCKS_IN_A_STEP - 1
    before = table.rendered
    assert table.kept() == table.entries
    assert table.rendered - before <= ENTRIES_IN_A_STEP, "what is left is one step of work"
    before = table.rendered
    unchanged = {id(piece) for piece in table.fragments.pieces()}
    table.put("n77", 5)
    assert table.kept() == table.entries
    assert table.rendered == before + 1
    assert len([piece for piece in table.fragments.pieces() if id(piece) not in unchanged]) == 1, "one block"


def test_changes_as_quick_as_the_steps_do_not_keep_the_file_from_being_written() -> None:
    table = Table(1000)
    steps = 0
    while table.fragments.render():
        steps += 1
        for number in range(2 * ENTRIES_IN_A_STEP):
            table.put(f"n{(number + steps * 64) % 1000}", steps)
        assert steps < 1000
    assert table.kept() == table.entries


def test_there_are_no_more_blocks_than_the_largest_table_needed() -> None:
    table = Table(ENTRIES_IN_A_BLOCK * 10)
    table.fragments.pieces()
    for number in range(ENTRIES_IN_A_BLOCK * 10):
        table.put(f"n{number}", None)
        table.put(f"m{number}", 1)
        table.fragments.pieces()
    blocks = [piece for piece in table.fragments.pieces() if piece != b",\n"]
    assert len(blocks) <= 11
    for number in range(ENTRIES_IN_A_BLOCK * 10):
        table.put(f"m{number}", None)
    assert table.fragments.object() == [b"{}"]


async def test_others_run_between_the_steps_and_the_file_has_what_came_meanwhile(autojump_clock: object) -> None:
    file = MemoryFile()
    table = GroupTable(file, now_ms=FakeClock(1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.run, _inline)
        await trio.testing.wait_all_tasks_blocked()
        for number in range(20 * ENTRIES_IN_A_STEP):
            table.find(f"G{number}")
        passes = 0
        while not file.texts:
            passes += 1
            if passes == 5:
                table.update(SubscriptionGroupConfig(group_name="G3", retry_max_times=77))
            await trio.lowlevel.checkpoint()
        assert passes >= 20
        kept = json.loads(file.text)
        assert kept["dataVersion"]["counter"] == table.data_version.counter
        assert kept["subscriptionGroupTable"]["G3"]["retryMaxTimes"] == 77
        await table.wait_saved()
        assert len(file.texts) == 1, "nothing is left to write"
        nursery.cancel_scope.cancel()


async def _inline(function: Any, *args: Any) -> Any:
    return function(*args)


def test_a_lock_more_renders_one_line_whatever_its_group_holds() -> None:
    file = MemoryFile()
    table = QueueLockTable(FakeClock(1), file=file)
    table.lock("G", [MessageQueue("T", "b", number) for number in range(5000)], "c1")
    table._writer.save()
    before = {id(piece) for piece in table._pieces()}
    table.lock("G", [MessageQueue("T", "b", 7000)], "c1")
    assert len([piece for piece in table._pieces() if id(piece) not in before]) <= 2, "the head and one block"
    table._writer.save()
    again = QueueLockTable(FakeClock(1), file=file)
    again.load()
    assert again.holder("G", MessageQueue("T", "b", 7000)) == again.holder("G", MessageQueue("T", "b", 4999)) == "c1"


def test_locks_of_an_earlier_version_are_read() -> None:
    file = MemoryFile('{"aliveAt":1,"locks":{"G":[["c1","T","b",3]]}}')
    table = QueueLockTable(FakeClock(1), file=file)
    table.load()
    assert table.holder("G", MessageQueue("T", "b", 3)) == "c1"


@pytest.mark.parametrize("sizes", [[], [0], [5, 0, 7], [WRITE_BYTES - 1, 1, 3], [1000] * 700])
def test_a_file_in_pieces_is_written_in_writes_of_some_size(tmp_path: Any, sizes: list[int]) -> None:
    pieces = [bytes([65 + index % 26]) * size for index, size in enumerate(sizes)]
    files = FaultyFiles()
    JsonFile(files, f"{tmp_path}/config/t.json", bytes).save(*pieces)
    assert (tmp_path / "config" / "t.json").read_bytes() == b"".join(pieces)
    writes = [call.size_bytes for call in files.noted("pwrite")]
    assert sum(writes) == sum(sizes)
    assert len(writes) <= 1 + sum(sizes) // WRITE_BYTES
    assert max(writes, default=0) < WRITE_BYTES + max(sizes, default=0)


async def test_offsets_change_one_block() -> None:
    file = MemoryFile()
    table = OffsetTable(file)
    for number in range(1000):
        table.commit(f"G{number}", "T", 0, 5)
    assert await table.persist()
    before = {id(piece) for piece in table._pieces()}
    table.commit("G500", "T", 0, 6)
    assert await table.persist()
    changed = [piece for piece in table._pieces() if id(piece) not in before]
    assert sum(b"{0:6" in piece for piece in changed) == 1
    assert sum(b"@G" in piece for piece in changed) == 1
    assert json.loads(file.text.replace("{0:", '{"0":'))["offsetTable"]["T@G500"] == {"0": 6}
