"""The ledger on disk: directories of real members, cuts, full disks, and what a power failure may leave."""

from __future__ import annotations

import errno
import hashlib
import json
import random
import shutil
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from file_faults import WRITES, FaultyFiles
from golden_data import golden_group, golden_member
from hypothesis import given, settings
from hypothesis import strategies as st
from store_faults import RecordingFiles, crash, replay_onto
from stored_records import encoded

from triomq.dledger.ledger import entry_format
from triomq.dledger.ledger.ledger import INDEX_FILE_BYTES, Ledger
from triomq.dledger.ledger.records import is_whole_record, opening_record
from triomq.dledger.ledger.runs import LONGEST_ENTRY_BYTES
from triomq.dledger.ledger.term_files import TermFiles
from triomq.dledger.rules.log import LogRefused, PositionMismatch
from triomq.dledger.wire.bodies import ENTRY_HEADER_BYTES, Entry
from triomq.protocol import record
from triomq.protocol.record import read_fields
from triomq.store.config import StoreSettings
from triomq.store.disk.files import Files
from triomq.store.disk.log_directories import LogDirectories
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.errors import StoreRefused
from triomq.store.log.scanned_record import scanned
from triomq.store.message_store import DefaultMessageStore

SETS = ("clean", "killed", "divergent", "healed", "stale", "expired", "old_log")
MEMBERS = ("n0", "n1", "n2")
GOLDEN_FILE_BYTES = 65536
DATA_BYTES = 1024
INDEX_BYTES = 512


@cache
def expectation(name: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((golden_group("dledger") / name / "expect.json").read_bytes())
    return value


def member_directory(name: str, member: str, target: Path) -> Path:
    """Unpack the directory of one member of a set."""
    return golden_member(name, member, target) / f"dledger-{member}"


def opened(directory: Path, files: Files | None = None, directories: LogDirectories | None = None) -> Ledger:
    ledger = Ledger(
        files or Files(),
        str(directory),
        DATA_BYTES,
        is_whole=lambda entry: True,
        index_file_bytes=INDEX_BYTES,
        directories=directories,
    )
    ledger.open()
    return ledger


def opened_sealed(directory: Path, files: Files | None = None, *, is_spread: bool = False) -> Ledger:
    """Return an open ledger for bodies that end with a checksum, as records have one."""
    ledger = Ledger(
        files or Files(),
        str(directory),
        DATA_BYTES,
        is_whole=is_sealed,
        index_file_bytes=INDEX_BYTES,
        directories=spread_in(directory) if is_spread else None,
    )
    ledger.open()
    return ledger


def spread_in(directory: Path) -> LogDirectories:
    return LogDirectories([f"{directory}/{name}" for name in ("data", "b", "a")], [])


def sealed(body: bytes) -> bytes:
    return body + zlib.crc32(body).to_bytes(4, "big")


def is_sealed(entry: Entry) -> bool:
    return sealed(entry.body[:-4]) == entry.body


def bodies_of(ledger: Ledger) -> list[bytes]:
    if ledger.end_index < 0:
        return []
    return [ledger.entry(index).body for index in range(ledger.begin_index, ledger.end_index + 1)]


def picture(directory: Path) -> dict[str, bytes]:
    return {
        f"{path.parent.name}/{path.name}": without_end_zeros(path)
        for part in ("a", "b", "data", "index")
        for path in sorted((directory / part).glob("*"))
    }


def without_end_zeros(path: Path) -> bytes:
    """Return what a file holds up to its last byte that is not zero; most of an index file lies behind that."""
    found, zeros = bytearray(), 0
    with path.open("rb") as file:
        while block := file.read(1 << 16):
            if block == bytes(len(block)):
                zeros += len(block)
            else:
                found += bytes(zeros) + block
                zeros = 0
    return bytes(found.rstrip(b"\0"))


# Directories of real members.


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("name", SETS)
def test_a_directory_of_a_real_member_holds_what_that_member_held(name: str, member: str, tmp_path: Path) -> None:
    directory = member_directory(name, member, tmp_path)
    expected = expectation(name)["members"][member]
    before = picture(directory)
    terms = TermFiles(Files(), str(directory))
    noted_end, committed = terms.load_checkpoint()
    assert [str(noted_end), str(committed)] == [expected["checkpoint"][key] for key in ("endIndex", "committedIndex")]
    currterm = expected["currterm"]
    assert terms.load_term() == (int(currterm["currTerm"]), currterm["voteLeader"] or None)
    for _ in range(2):
        ledger = Ledger(Files(), str(directory), GOLDEN_FILE_BYTES)
        ledger.open()
        assert (ledger.begin_index, ledger.end_index, ledger.end_term) == tuple(
            expected[key] for key in ("begin_index", "end_index", "end_term")
        )
        found = []
        for index in range(ledger.begin_index, ledger.end_index + 1):
            entry = ledger.entry(index)
            digest = hashlib.sha256(entry_format.encode(entry)).hexdigest()[:16]
            found.append([entry.index, entry.term, entry.pos, entry.size, digest])
        assert found == expected["entries"]
        ledger.close()
    if not expected["stale_behind_end"]:
        assert picture(directory) == before


@pytest.mark.parametrize(("name", "member"), [("clean", "n0"), ("healed", "n1"), ("old_log", "n2")])
def test_the_same_entries_make_the_same_files_as_a_real_member(name: str, member: str, tmp_path: Path) -> None:
    """Blanks, positions and index units, byte for byte; INDEX_FILE_BYTES is not configurable in RocketMQ."""
    directory = member_directory(name, member, tmp_path)
    real = Ledger(Files(), str(directory), GOLDEN_FILE_BYTES)
    real.open()
    ours = Ledger(Files(), str(tmp_path / "ours"), GOLDEN_FILE_BYTES)
    ours.open()
    entries = [real.entry(index) for index in range(real.begin_index, real.end_index + 1)]
    if entries[0].pos:
        ours.reset(entries.pop(0))
    for at in range(0, len(entries), 7):
        ours.write(entries[at : at + 7])
    assert picture(tmp_path / "ours") == picture(directory)
    assert {path.stat().st_size for path in (tmp_path / "ours" / "index").iterdir()} == {INDEX_FILE_BYTES}


def test_stale_entries_of_an_older_term_behind_the_end_are_not_entries(tmp_path: Path) -> None:
    stale = expectation("stale")
    member = stale["tail_at"]
    directory = member_directory("stale", member, tmp_path)
    ledger = Ledger(Files(), str(directory), GOLDEN_FILE_BYTES)
    ledger.open()
    assert stale["members"][member]["stale_behind_end"]
    assert ledger.end_index == 561
    forbidden = set(stale["must_not_be_served"])
    assert forbidden
    assert not forbidden & {hashlib.sha256(body).hexdigest()[:16] for body in bodies_of(ledger)}


# Writing and reading.


def test_what_is_appended_is_read_back_after_a_restart(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.append(1, [b"a" * 300, b"b" * 700, b"c"])
    ledger.append(2, [b"d" * 100] * 30)
    ledger.close()
    again = opened(tmp_path)
    assert (again.begin_index, again.end_index, again.end_term, again.synced_index) == (0, 32, 2, 32)
    assert bodies_of(again) == [b"a" * 300, b"b" * 700, b"c", *[b"d" * 100] * 30]


@pytest.mark.parametrize(("size", "pos"), [(1024 - 8 - 348 - 48, 348), (1024 - 8 - 348 - 48 + 1, 1024)])
def test_an_entry_that_leaves_less_than_eight_bytes_goes_to_the_next_file(size: int, pos: int, tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.append(1, [b"a" * 300, b"b" * size])
    assert ledger.entry(1).pos == pos


def test_an_entry_at_another_position_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.append(1, [b"a"])
    before = picture(tmp_path)
    with pytest.raises(PositionMismatch):
        ledger.write([Entry(body=b"b", index=1, pos=50, size=49, term=1)])
    assert picture(tmp_path) == before


def test_an_entry_beyond_the_longest_that_real_members_take_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(Files(), str(tmp_path), 2 * LONGEST_ENTRY_BYTES)
    ledger.open()
    ledger.append(1, [bytes(LONGEST_ENTRY_BYTES - 48)])
    with pytest.raises(LogRefused, match="longer"):
        ledger.append(1, [bytes(LONGEST_ENTRY_BYTES - 47)])


def test_a_cut_removes_what_is_behind_it_also_from_the_files(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.append(1, [b"x" * 200] * 20)
    ledger.sync()
    ledger.cut(3)
    assert (ledger.end_index, ledger.synced_index) == (3, 3)
    ledger.append(2, [b"y"])
    ledger.close()
    assert bodies_of(opened(tmp_path)) == [b"x" * 200] * 4 + [b"y"]


def test_a_checkpoint_never_notes_what_a_cut_removes(tmp_path: Path) -> None:
    """Recovery does not read the bodies in front of the noted end: what is written there later may be torn."""
    files = RecordingFiles()
    ledger = opened(tmp_path, files)
    ledger.append(1, [b"x"] * 9)
    ledger.save_checkpoint(5)
    del files.journal[:]
    ledger.cut(3)
    assert TermFiles(Files(), str(tmp_path)).load_checkpoint() == (3, 3)
    lowered = next(at for at, one in enumerate(files.journal) if one.kind == "rename")
    assert all("/data/" not in one.path for one in files.journal[:lowered])
    assert any("/data/" in one.path for one in files.journal[lowered:])


def test_a_cut_during_the_sync_of_a_checkpoint_leaves_the_lower_one(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.append(1, [b"x"] * 9)
    ledger.save_checkpoint(5)
    ledger.append(1, [b"x"] * 9)
    noting = ledger.noting.begin_checkpoint(ledger.end_index, 8)
    ledger.cut(3)
    noting.run()
    assert not ledger.noting.end_checkpoint(noting, 8)
    assert TermFiles(Files(), str(tmp_path)).load_checkpoint() == (3, 3)
    again = ledger.noting.begin_checkpoint(ledger.end_index, 3)
    again.run()
    assert ledger.noting.end_checkpoint(again, 3)
    assert TermFiles(Files(), str(tmp_path)).load_checkpoint() == (3, 3)


def test_a_cut_of_everything_keeps_the_place_where_the_ledger_begins(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.reset(Entry(body=b"a", index=4, pos=4096, size=49, term=1))
    ledger.cut(3)
    assert (ledger.begin_index, ledger.end_index, ledger.end_pos) == (-1, -1, 4096)


def test_a_ledger_that_lost_everything_by_a_cut_opens_again_although_it_had_a_checkpoint(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.reset(Entry(body=b"a", index=4, pos=4096, size=49, term=1))
    ledger.append(1, [b"x"] * 3)
    ledger.save_checkpoint(5)
    ledger.cut(3)
    ledger.close()
    again = opened(tmp_path)
    assert (again.begin_index, again.end_index, again.end_pos) == (-1, -1, 4096)


def test_a_reset_leaves_only_the_new_beginning(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.append(1, [b"x" * 200] * 20)
    ledger.reset(Entry(body=b"a", index=40, pos=9216, size=49, term=3))
    ledger.append(3, [b"b"])
    ledger.close()
    again = opened(tmp_path)
    assert (again.begin_index, again.end_index, bodies_of(again)) == (40, 41, [b"a", b"b"])


def test_nothing_of_a_replaced_ledger_is_in_memory_or_counts_as_synced(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    for _ in range(3):
        ledger.append_records(1, opening_record(ledger.end_pos + ENTRY_HEADER_BYTES, 0, bytes(8)))
    ledger.sync()
    assert ledger.synced_index == 2
    ledger.reset(Entry(body=b"a", index=1, pos=4096, size=49, term=3))
    assert ledger.entry(1).body == b"a"
    assert [entry.body for entry in ledger.batch(1, 5, 1000)] == [b"a"]
    assert ledger.synced_index == -1


def test_an_index_file_goes_with_the_last_data_file_that_has_its_entries(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    entries = INDEX_BYTES // entry_format.UNIT_BYTES
    ledger.append(1, [b"x" * (1016 // entries - ENTRY_HEADER_BYTES)] * (2 * entries + 1))
    ledger.detach_first()
    assert (ledger.begin_index, ledger.index.first_start) == (entries, INDEX_BYTES)


def test_a_ledger_never_begins_within_a_file(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.append(1, [b"x"] * 3)
    with pytest.raises(LogRefused, match="not the first of a file"):
        ledger.reset(Entry(body=b"a", index=40, pos=9217, size=49, term=3))
    ledger.close()
    assert bodies_of(opened(tmp_path)) == [b"x"] * 3


def test_a_filled_file_without_its_next_entry_leaves_the_end_behind_the_last_one(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.append(1, [b"x" * 500])
    end = ledger.end_pos
    ledger.append(1, [b"y" * 600])
    assert ledger.end_pos > 1024
    ledger.close()
    (tmp_path / "data" / f"{1024:020}").unlink()
    again = opened(tmp_path)
    assert (again.end_index, again.end_pos) == (0, end)


def test_a_leaders_entry_may_leave_the_rest_of_a_file_although_it_had_room(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.append(1, [b"x" * 500])
    ledger.write([Entry(body=b"y", index=1, pos=1024, size=49, term=1)])
    ledger.write([Entry(body=b"z", index=2, pos=1024 + 49, size=49, term=1)])
    with pytest.raises(PositionMismatch):
        ledger.write([Entry(body=b"z", index=3, pos=1024 + 150, size=49, term=1)])
    ledger.close()
    again = opened(tmp_path)
    assert bodies_of(again) == [b"x" * 500, b"y", b"z"]


def test_expired_files_move_the_beginning(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.append(1, [b"x" * 200] * 20)
    ledger.close()
    (tmp_path / "data" / f"{0:020}").unlink()
    again = opened(tmp_path)
    assert (again.begin_index, again.end_index) == (4, 19)


# Faults of the disk.


@pytest.mark.parametrize("where", ["/data/", "/index/"])
@pytest.mark.parametrize("partial", [False, True])
def test_a_full_disk_refuses_a_write_and_leaves_the_ledger_as_it_was(where: str, partial: bool, tmp_path: Path) -> None:
    files = FaultyFiles()
    ledger = opened(tmp_path, files)
    ledger.append(1, [b"a" * 100])
    before = picture(tmp_path)
    files.fail(errno.ENOSPC, *WRITES, where=where, part=2 / 3 if partial else 0)
    with pytest.raises(LogRefused):
        ledger.append(1, [b"b" * 100] * 12)
    assert not ledger.can_append
    assert {name: data for name, data in picture(tmp_path).items() if data} == before
    files.mend()
    assert ledger.can_append, "there is room again: a member that was full may lead"
    ledger.append(1, [b"c"])
    assert ledger.can_append
    assert bodies_of(ledger) == [b"a" * 100, b"c"]


def test_a_full_disk_refuses_a_cut_and_leaves_the_ledger_as_it_was(tmp_path: Path) -> None:
    """A follower whose disk is full for a while must not end."""
    files = FaultyFiles()
    ledger = opened(tmp_path, files)
    ledger.append(1, [b"a", b"b", b"c"])
    ledger.save_checkpoint(2)
    files.fail(errno.ENOSPC, *WRITES, where="checkpoint")
    with pytest.raises(LogRefused):
        ledger.cut(0)
    assert bodies_of(ledger) == [b"a", b"b", b"c"]
    files.mend()
    ledger.cut(0)
    assert TermFiles(Files(), str(tmp_path)).load_checkpoint() == (0, 0)
    assert bodies_of(ledger) == [b"a"]


def test_a_failing_disk_takes_nothing_until_a_restart(tmp_path: Path) -> None:
    files = FaultyFiles()
    ledger = opened(tmp_path, files)
    files.fail(errno.EIO, *WRITES, where="/data/")
    with pytest.raises(LogRefused):
        ledger.append(1, [b"a"])
    files.mend()
    with pytest.raises(LogRefused, match="restart"):
        ledger.append(1, [b"a"])


def test_a_failed_sync_is_not_repeated(tmp_path: Path) -> None:
    files = FaultyFiles()
    ledger = opened(tmp_path, files)
    ledger.append(1, [b"a"])
    files.fail(errno.EIO, "datasync", where="/data/")
    with pytest.raises(OSError, match="Input/output"):
        ledger.sync()
    assert (ledger.synced_index, ledger.can_append) == (-1, False)


def test_what_is_written_during_a_sync_waits_for_the_next_one(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.append(1, [b"a"] * 3)
    sync = ledger.noting.begin_sync(ledger.end_index)
    ledger.append(1, [b"b"])
    sync.run()
    assert ledger.synced_index == -1
    ledger.noting.end_sync(sync)
    assert ledger.synced_index == 2


def test_what_is_cut_during_a_sync_does_not_count_as_synced(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.append(1, [b"a"] * 5)
    sync = ledger.noting.begin_sync(ledger.end_index)
    ledger.cut(1)
    ledger.append(2, [b"b"] * 3)
    sync.run()
    ledger.noting.end_sync(sync)
    assert (ledger.synced_index, ledger.end_index) == (1, 4)


def test_a_later_sync_leaves_out_files_that_are_on_disk(tmp_path: Path) -> None:
    files = RecordingFiles()
    ledger = opened(tmp_path, files)
    for _ in range(2):
        ledger.append(1, [b"x" * 400] * 6)
        files.journal.clear()
        sync = ledger.noting.begin_sync(ledger.end_index)
        sync.run()
        ledger.noting.end_sync(sync)
    synced = [one.path[-5:] for one in files.journal if one.kind == "sync"]
    assert synced == ["02048", "03072", "04096", "05120"]


def test_files_that_are_written_again_during_a_sync_are_in_the_next_one(tmp_path: Path) -> None:
    files = RecordingFiles()
    ledger = opened(tmp_path, files)
    ledger.append(1, [b"x" * 400] * 6)
    sync = ledger.noting.begin_sync(ledger.end_index)
    ledger.cut(1)
    ledger.append(2, [b"y" * 400] * 4)
    sync.run()
    ledger.noting.end_sync(sync)
    files.journal.clear()
    ledger.sync()
    synced = [one.path[-5:] for one in files.journal if one.kind == "sync"]
    assert synced == ["00000", "01024", "02048"]


def test_a_sync_in_a_thread_that_fails_is_not_repeated(tmp_path: Path) -> None:
    files = FaultyFiles()
    ledger = opened(tmp_path, files)
    ledger.append(1, [b"a"])
    files.fail(errno.EIO, "datasync", where="/data/")
    sync = ledger.noting.begin_sync(ledger.end_index)
    sync.run()
    with pytest.raises(OSError, match="Input/output"):
        ledger.noting.end_sync(sync)
    assert (ledger.synced_index, ledger.can_append) == (-1, False)


def test_a_reset_that_the_disk_refuses_keeps_the_old_entries(tmp_path: Path) -> None:
    files = FaultyFiles()
    ledger = opened(tmp_path, files)
    ledger.append(1, [b"a"])
    files.fail(errno.ENOSPC, *WRITES, where="reset-")
    with pytest.raises(LogRefused):
        ledger.reset(Entry(body=b"b", index=40, pos=9216, size=49, term=3))
    assert bodies_of(ledger) == [b"a"]
    ledger.close()
    assert bodies_of(opened(tmp_path)) == [b"a"]


# Recovery.


def test_lost_index_units_are_written_again(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.append(1, [b"x"] * 20)
    ledger.close()
    before = picture(tmp_path)
    for path in (tmp_path / "index").iterdir():
        path.write_bytes(bytes(INDEX_BYTES))
    opened(tmp_path).close()
    assert picture(tmp_path) == before


def test_a_file_that_is_missing_in_the_middle_is_named(tmp_path: Path) -> None:
    """D16."""
    ledger = opened(tmp_path)
    ledger.append(1, [b"x" * 400] * 8)
    ledger.close()
    (tmp_path / "data" / f"{1024:020}").unlink()
    with pytest.raises(StoreRefused, match=r"/data/0{20} is not followed by a file for 1024"):
        opened(tmp_path)


def test_damage_in_front_of_what_was_on_disk_is_named(tmp_path: Path) -> None:
    """D16: the end of the log would otherwise move back silently behind what this member has confirmed."""
    ledger = opened(tmp_path)
    ledger.append(1, [b"x" * 400] * 12)
    ledger.save_checkpoint(11)
    ledger.close()
    with (tmp_path / "data" / f"{3072:020}").open("r+b") as file:
        file.write(bytes(64))
    with pytest.raises(StoreRefused, match="behind index 5, but entries up to 11 were on disk"):
        opened(tmp_path)
    (tmp_path / "checkpoint").unlink()
    assert opened(tmp_path).end_index == 5


def test_a_file_that_is_short_is_one_that_was_made_or_cut_when_the_crash_came(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.append(1, [b"x" * 400] * 2)
    ledger.close()
    (tmp_path / "data" / f"{1024:020}").write_bytes(b"")
    assert opened(tmp_path).end_index == 1
    (tmp_path / "data" / f"{0:020}").write_bytes(b"short")
    TermFiles(Files(), str(tmp_path)).save_checkpoint(1, 1)
    with pytest.raises(StoreRefused, match="behind index -1, but entries up to 1 were on disk"):
        opened(tmp_path)


def test_a_torn_body_behind_what_was_on_disk_ends_the_ledger(tmp_path: Path) -> None:
    """Nothing in an entry covers its body; the record inside has a CRC."""
    directory = member_directory("clean", "n0", tmp_path)
    ledger = Ledger(Files(), str(directory), GOLDEN_FILE_BYTES)
    ledger.open()
    assert ledger.noted_committed == 267
    torn = ledger.entry(260)
    ledger.close()
    with (directory / "data" / f"{torn.pos - torn.pos % GOLDEN_FILE_BYTES:020}").open("r+b") as file:
        file.seek(torn.pos % GOLDEN_FILE_BYTES + 48 + 100)
        file.write(bytes(20))
    TermFiles(Files(), str(directory)).save_checkpoint(259, 259)
    ledger = Ledger(Files(), str(directory), GOLDEN_FILE_BYTES)
    ledger.open()
    assert ledger.end_index == 259


def test_a_torn_topic_behind_what_was_on_disk_ends_the_ledger(tmp_path: Path) -> None:
    directory = member_directory("clean", "n0", tmp_path)
    ledger = Ledger(Files(), str(directory), GOLDEN_FILE_BYTES)
    ledger.open()
    torn = ledger.entry(260)
    ledger.close()
    fields = read_fields(torn.body, 0, len(torn.body))
    topic_at = torn.body.index(fields.topic, fields.body_at + fields.body_length)
    with (directory / "data" / f"{torn.pos - torn.pos % GOLDEN_FILE_BYTES:020}").open("r+b") as file:
        file.seek(torn.pos % GOLDEN_FILE_BYTES + 48 + topic_at)
        file.write(bytes(3))
    TermFiles(Files(), str(directory)).save_checkpoint(259, 259)
    ledger = Ledger(Files(), str(directory), GOLDEN_FILE_BYTES)
    ledger.open()
    assert ledger.end_index == 259


@pytest.mark.parametrize(
    ("topic", "is_whole"), [(b"Orders", True), (b"\1rders", True), (b"\0rders", False), (b"Or\0ers", False)]
)
def test_a_record_is_whole_unless_its_topic_has_a_zero(topic: bytes, is_whole: bool) -> None:
    body = bytes(encoded(b"Orders", b"body", b"KEYS\1k", physical_offset=1000 + ENTRY_HEADER_BYTES))
    body = body.replace(b"Orders", topic)
    assert is_whole_record(Entry(body=body, pos=1000, size=ENTRY_HEADER_BYTES + len(body))) is is_whole


# Power failures.


class Journal:
    """A random workload: its system calls, and which entries must be there after a crash at each of them."""

    def __init__(self, seed: int, root: Path, *, is_spread: bool) -> None:
        self.choose = choose = random.Random(seed)
        files = RecordingFiles()
        self.operations = files.journal
        self.written: dict[int, set[tuple[int, bytes]]] = {}
        self._must: list[tuple[int, dict[int, tuple[int, bytes]]]] = [(0, {})]
        term = 1
        ledger = opened_sealed(root, files, is_spread=is_spread)
        for _ in range(choose.randint(5, 25)):
            if is_spread and choose.random() < 0.3:
                paths = ledger.directories.paths
                ledger.directories.full = frozenset(choose.sample(paths, choose.randint(0, 2)))
            turn = choose.random()
            if turn < 0.6:
                bodies = [sealed(choose.randbytes(choose.choice((1, 30, 400)))) for _ in range(choose.randint(1, 6))]
                ledger.append(term, bodies)
                self._note(ledger)
            elif turn < 0.85:
                ledger.sync() if choose.random() < 0.7 else ledger.save_checkpoint(-1)
                self._must.append((len(self.operations), self._entries(ledger)))
            elif turn < 0.97 and ledger.end_index > 2:
                to = choose.randint(ledger.begin_index, ledger.end_index)
                known = self._must[-1][1]
                self._must.append((len(self.operations), {index: one for index, one in known.items() if index <= to}))
                term += 1
                ledger.cut(to)
            elif turn >= 0.97 and ledger.end_index > 2:
                self._must.append((len(self.operations), {}))
                term += 1
                index = ledger.end_index + 50
                start = 10240 * (1 + ledger.end_pos // 10240)
                ledger.reset(Entry(body=sealed(b"new"), index=index, pos=start, size=55, term=term))
                self._note(ledger)
        ledger.close()

    def _entries(self, ledger: Ledger) -> dict[int, tuple[int, bytes]]:
        if ledger.end_index < 0:
            return {}
        every = [ledger.entry(index) for index in range(ledger.begin_index, ledger.end_index + 1)]
        return {entry.index: (entry.term, entry.body) for entry in every}

    def _note(self, ledger: Ledger) -> None:
        for index, one in self._entries(ledger).items():
            self.written.setdefault(index, set()).add(one)

    def must_have(self, at: int) -> dict[int, tuple[int, bytes]]:
        return next(entries for since, entries in reversed(self._must) if since <= at)


@pytest.mark.parametrize("is_spread", [False, True])
@pytest.mark.parametrize("seed", range(24))
def test_a_power_failure_takes_nothing_that_was_synced_and_invents_nothing(
    seed: int, is_spread: bool, tmp_path: Path
) -> None:
    """Also if the data files are in several directories, which become full and empty again."""
    root = tmp_path / "ledger"
    journal = Journal(seed, root, is_spread=is_spread)
    for _ in range(12):
        at = journal.choose.randint(0, len(journal.operations))
        image = tmp_path / "image"
        image.mkdir()
        crash(journal.operations, at, str(root), image, journal.choose, journal.choose.choice((0.0, 0.3, 0.8, 1.0)))
        ledger = opened_sealed(image, is_spread=is_spread)
        found = journal._entries(ledger)
        for index, one in journal.must_have(at).items():
            assert found.get(index) == one, f"entry {index} was synced before operation {at}"
        assert all(one in journal.written[index] for index, one in found.items())
        assert [term for term, _ in found.values()] == sorted(term for term, _ in found.values())
        ledger.close()
        before = picture(image)
        again = opened_sealed(image, is_spread=is_spread)
        assert journal._entries(again) == found
        again.close()
        assert picture(image) == before
        shutil.rmtree(image)


@pytest.mark.parametrize("is_spread", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_a_power_failure_during_a_reset_leaves_the_old_ledger_or_the_new_one(
    seed: int, is_spread: bool, tmp_path: Path
) -> None:
    """Also if the start that completes the reset ends in the middle, too, and if data files are in several
    directories."""
    choose = random.Random(seed)
    root = tmp_path / "ledger"

    def open_in(directory: Path, files: Files | None = None) -> Ledger:
        return opened(directory, files, spread_in(directory) if is_spread else None)

    files = RecordingFiles()
    ledger = open_in(root, files)
    old = [b"x" * 200] * 20
    ledger.append(1, old)
    ledger.sync()
    began = len(files.journal)
    ledger.reset(Entry(body=b"new", index=40, pos=9216, size=51, term=3))
    ledger.close()
    seen = set()
    for at in range(began, len(files.journal) + 1):
        image, twin = tmp_path / f"image{at}", tmp_path / f"twin{at}"
        image.mkdir()
        crash(files.journal, at, str(root), image, choose, choose.choice((0.0, 0.5, 1.0)))
        for part in ("data", "index"):
            (image / part).mkdir(exist_ok=True)
        shutil.copytree(image, twin)
        start = RecordingFiles()
        open_in(image, start).close()
        replay_onto(start, str(image), twin, choose)
        for directory in (image, twin):
            ledger = open_in(directory)
            found = bodies_of(ledger)
            assert found in (old, [b"new"])
            seen.add(len(found))
            ledger.close()
            assert list(directory.rglob("reset*")) == []
    assert seen == {1, 20}


# Term, vote and checkpoint.


def test_term_vote_and_checkpoint_are_read_back(tmp_path: Path) -> None:
    files = TermFiles(Files(), str(tmp_path))
    assert (files.load_term(), files.load_checkpoint()) == ((0, None), (-1, -1))
    files.save_term(3, "n1")
    files.save_checkpoint(267, 260)
    assert (files.load_term(), files.load_checkpoint()) == ((3, "n1"), (267, 260))
    files.save_term(4, None)
    assert files.load_term() == (4, None)
    assert (tmp_path / "currterm").read_text() == "currTerm=4\nvoteLeader=\n"


def test_a_crash_of_a_real_member_between_deletion_and_renaming_takes_no_vote(tmp_path: Path) -> None:
    """D3."""
    (tmp_path / "currterm.bak").write_text("voteLeader=n0\ncurrTerm=6\n")
    assert TermFiles(Files(), str(tmp_path)).load_term() == (6, "n0")
    (tmp_path / "currterm.tmp").write_text("voteLeader=n2\ncurrTerm=7\n")
    assert TermFiles(Files(), str(tmp_path)).load_term() == (7, "n2")


def test_a_damaged_term_is_refused_and_not_read_as_a_new_member(tmp_path: Path) -> None:
    (tmp_path / "currterm").write_bytes(b"\0\0\0\0")
    with pytest.raises(StoreRefused, match="currterm is damaged"):
        TermFiles(Files(), str(tmp_path)).load_term()


@pytest.mark.parametrize("seed", range(12))
def test_a_power_failure_takes_no_vote_that_was_stored(seed: int, tmp_path: Path) -> None:
    """D3: at any instruction the file has the last stored vote or the one that is being stored."""
    choose = random.Random(seed)
    root = tmp_path / "member"
    root.mkdir()
    files = RecordingFiles()
    terms = TermFiles(files, str(root))
    stored = [(0, 0)]
    for term in range(1, 6):
        terms.save_term(term, "n1")
        stored.append((len(files.journal), term))
    for at in range(len(files.journal) + 1):
        image = tmp_path / f"image{at}"
        image.mkdir()
        crash(files.journal, at, str(root), image, choose, choose.choice((0.0, 0.5, 1.0)))
        found, _ = TermFiles(Files(), str(image)).load_term()
        known = max(term for since, term in stored if since <= at)
        assert known <= found <= known + 1


# The record of a new leader.


async def test_the_record_that_opens_a_term_is_a_record_that_no_reader_sees(tmp_path: Path) -> None:
    """RocketMQ's members dispatch it, too: it must be a record of the commit log, and of a type without entries."""
    ledger = Ledger(Files(), str(tmp_path / "ledger"), 1 << 16)
    ledger.open()
    pos = ledger.next_pos(len(opening_record(0, 0, bytes(8))))
    ledger.append(7, [opening_record(pos + 48, 1_700_000_000_000, bytes(8))])
    entry = ledger.entry(0)
    assert is_whole_record(entry)
    fields = record.read_fields(entry.body, 0, len(entry.body))
    assert (fields.physical_offset, fields.store_timestamp) == (48, 1_700_000_000_000)
    store = DefaultMessageStore(StoreSettings(store_path_root_dir=str(tmp_path / "store")), now_ms=lambda: 0)
    await store.load()
    dispatched = store._dispatch.entry_of(scanned(fields, fields.physical_offset))
    store._dispatch.apply(dispatched)
    assert dispatched.queue is None
    assert store.reading.queues() == {}
    assert dispatched.properties.uniq_key is None
    assert dispatched.properties.keys is None
    await store.close()


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(0, 900), min_size=1, max_size=40),
    first=st.integers(0, 39),
    most_entries=st.integers(1, 40),
    most_bytes=st.integers(1, 3000),
    is_restarted=st.booleans(),
)
def test_a_batch_is_what_its_entries_are_one_by_one(
    sizes: list[int],
    first: int,
    most_entries: int,
    most_bytes: int,
    is_restarted: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    directory = tmp_path_factory.mktemp("ledger")
    ledger = opened(directory)
    ledger.append(1, [bytes([number]) * size for number, size in enumerate(sizes)])
    if is_restarted:  # without entries in memory
        ledger.close()
        ledger = opened(directory)
    first = min(first, ledger.end_index)
    batch = ledger.batch(first, most_entries, most_bytes)
    assert batch == [ledger.entry(first + number) for number in range(len(batch))]
    assert 1 <= len(batch) <= most_entries
    assert len(batch) == 1 or sum(entry.size for entry in batch) <= most_bytes
    following = first + len(batch)
    if not is_restarted and len(batch) < most_entries and following <= ledger.end_index:
        assert sum(entry.size for entry in batch) + ledger.entry(following).size > most_bytes
    ledger.close()


def test_a_batch_of_old_entries_is_read_at_once(tmp_path: Path) -> None:
    """A leader would spend much of its time on the reads of a member that catches up otherwise."""
    ledger = opened(tmp_path)
    ledger.append(1, [b"x" * 20] * 30)
    ledger.close()
    ledger = opened(tmp_path)
    assert [entry.index for entry in ledger.batch(3, 40, 10_000)] == list(range(3, 14))  # to the end of the data file
    assert [entry.index for entry in ledger.batch(14, 40, 10_000)] == [14, 15]  # to the end of the index file
    assert [entry.index for entry in ledger.batch(18, 5, 10_000)] == list(range(18, 23))
    assert [entry.index for entry in ledger.batch(18, 40, 68 * 4 + 67)] == list(range(18, 22))


def test_the_next_position_is_where_an_entry_goes(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.append(1, [b"a" * 900])
    for size in (20, 21, 300):
        pos = ledger.next_pos(size)
        ledger.append(1, [b"b" * size])
        assert ledger.entry(ledger.end_index).pos == pos
    assert ledger.entry(1).pos == 948
    assert ledger.entry(2).pos == 1024


def test_files_that_are_on_disk_need_not_stay_open(tmp_path: Path) -> None:
    """A member would have no descriptor left after some hundred files otherwise."""
    files = Files()
    pool = OpenFiles(files, 5)
    ledger = Ledger(
        files, str(tmp_path), DATA_BYTES, is_whole=lambda entry: True, index_file_bytes=INDEX_BYTES, pool=pool
    )
    ledger.open()
    for _ in range(40):
        ledger.append(1, [b"x" * 600])
        ledger.sync()
    assert len(ledger.data.files) == 40
    assert pool.count <= 5
    for _ in range(10):
        ledger.append(1, [b"x" * 600])
    assert pool.count >= 10, "what is not on disk stays open, as a failed write is told to open descriptors only"
    ledger.close()
