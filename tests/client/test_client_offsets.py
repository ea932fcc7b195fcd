"""The offset table and its file."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from triomq.client.core.offsets import LocalOffsetFile, OffsetTable
from triomq.protocol.message_queue import MessageQueue

Q0, Q1 = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
QUEUES = st.builds(
    MessageQueue, st.text("T%|_-", min_size=1, max_size=5), st.text(min_size=1, max_size=5), st.integers(0, 9)
)


def test_increase_only_ignores_smaller_offsets() -> None:
    table = OffsetTable()
    table.update(Q0, 5)
    table.update(Q0, 3, increase_only=True)
    assert table.get(Q0) == 5
    table.update(Q0, 3)
    assert table.get(Q0) == 3


def test_it_knows_what_changed() -> None:
    table = OffsetTable()
    table.restore(Q1, 9)
    table.update(Q0, 5)
    assert table.changed() == [(Q0, 5)]
    table.update(Q0, 6)
    table.mark_stored(Q0, 5)
    assert table.changed() == [(Q0, 6)]
    table.mark_stored(Q0, 6)
    table.update(Q0, 6)
    assert table.changed() == []
    table.remove(Q0)
    assert table.snapshot() == {Q1: 9}


def test_the_file_keeps_offsets_where_java_looks_for_them(tmp_path: Path) -> None:
    file = LocalOffsetFile(tmp_path, "10.0.0.1@me", "group")
    assert file.load() == {}
    file.save({Q1: 2, Q0: 1})
    assert file.path == tmp_path / "10.0.0.1@me" / "group" / "offsets.json"
    text = file.path.read_text()
    assert '"offsetTable"' in text
    assert '{"brokerName":"b","queueId":0,"topic":"T"}:1' in "".join(text.split())
    assert file.load() == {Q0: 1, Q1: 2}


def test_a_torn_file_is_replaced_by_the_one_before(tmp_path: Path) -> None:
    file = LocalOffsetFile(tmp_path, "c", "../../etc")
    assert tmp_path in file.path.resolve().parents
    file.save({Q0: 1})
    file.save({Q0: 2})
    for torn in (b"", b'{"offsetTable":{{"bro', b"[]", b"null", b'{"offsetTable":5}'):
        file.path.write_bytes(torn)
        assert file.load() == {Q0: 1}


@settings(max_examples=25)  # each one waits for the disk
@given(table=st.dictionaries(QUEUES, st.integers(0, 2**63 - 1), max_size=6))
def test_whatever_is_saved_is_loaded(table: dict[MessageQueue, int]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        file = LocalOffsetFile(Path(directory), "c", "g")
        file.save(table)
        assert file.load() == table
