"""The ends of a ledger: how they move other than by an append.

    cut             at the end: entries that the leader does not have
    detach_first    at the beginning: the oldest data file, when retention takes it
    reset           both: the ledger is replaced by one that begins with another entry
    begin           both: a ledger without files gets its place behind an older log

The note of what is on disk (noting.py) is lowered before anything that it says goes.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from triomq.dledger.ledger import entry_format, recovery, replacing
from triomq.dledger.ledger.ledger_files import LedgerFiles
from triomq.dledger.ledger.recent_entries import RecentEntries
from triomq.dledger.rules.log import LogRefused
from triomq.dledger.wire.bodies import ENTRY_HEADER_BYTES, Entry
from triomq.store.disk.files import TEMPORARY
from triomq.store.disk.mapped_file import MappedFile

log = structlog.get_logger("triomq.dledger.ledger")


@dataclass(slots=True)
class End:
    """The last entry, and where the next one begins; -1 and the place where the ledger begins if there is none."""

    index: int
    term: int
    pos: int


class Ends:
    """Where a ledger begins and ends. `recent` are its entries in memory; the ledger moves `end` when it appends."""

    __slots__ = ("_disk", "_recent", "_told", "begin_index", "end", "must_begin_at")

    def __init__(self, disk: LedgerFiles, recent: RecentEntries) -> None:
        self._disk = disk
        self._recent = recent
        self._told = ""
        self.begin_index = -1
        self.end = End(-1, -1, 0)
        self.must_begin_at = -1
        """Where this ledger has to begin as long as an older log lies below it; -1: wherever its leader's does."""

    def use(self, found: recovery.Found) -> None:
        """Begin and end where the files do."""
        self.begin_index = found.begin_index
        self.end = End(found.end_index, found.end_term, found.end_pos)

    def cut(self, last: Entry | None) -> None:
        """Remove all entries behind this one, or all. Raises LogRefused with the ledger as before if the disk is full,
        and OSError, after which the ledger is broken."""
        disk = self._disk
        end = End(-1, -1, disk.data.first_start) if last is None else _end_behind(last)
        try:
            disk.noting.lower(end.index)
        except OSError as error:
            refused = disk.refused(error)
            if error.errno not in TEMPORARY:
                raise
            raise refused from error
        disk.noting.was_cut(end.index)
        self._recent.clear()
        self.end = end
        if last is None:
            self.begin_index = -1
        disk.cut(end.index, end.pos)

    def detach_first(self) -> MappedFile:
        """Remove the oldest data file, which is not the last one, and the index files that it leaves without entries.
        The caller unlinks the data file, and brings that to disk before it calls again. Raises OSError."""
        data, index = self._disk.data, self._disk.index
        file = data.detach_first()
        head = data.files[0].pread(0, ENTRY_HEADER_BYTES)
        self.begin_index = entry_format.read_header(head).entry_index
        while len(index.files) > 1 and index.files[0].end <= self.begin_index * entry_format.UNIT_BYTES:
            index.drop_first()
        return file

    def begin(self, pos: int) -> None:
        """Let a ledger without files begin at this position, the start of a file. Raises OSError."""
        disk = self._disk
        assert not disk.data.files
        file = disk.make_file(pos)
        disk.files.sync_directory(file.directory)
        self.end = End(-1, -1, pos)

    def reset(self, entry: Entry) -> None:
        """Replace everything by a ledger that begins with this entry. Raises LogRefused with the ledger as before, also
        if it could not begin there (`must_begin_at`), or within a file: such a ledger could not be opened again. The
        leader then compares again, until both have an entry in common or it sends its own first one.

        The first file of the new ledger is on disk under another name before any old one is removed; a start that
        finds it completes the change."""
        disk = self._disk
        disk.check_is_sound()
        self._check_may_begin_with(entry)
        try:
            disk.noting.lower(-1)
            replacing.prepare(disk.files, disk.directory, disk.directories, disk.data.file_size_bytes, entry)
        except OSError as error:
            raise disk.refused(error) from error
        disk.data.delete_all()
        disk.index.delete_all()
        self._recent.clear()
        replacing.finish(disk.files, disk.directory, disk.directories)
        recovery.load(disk.data, disk.directories)
        recovery.write_units(disk.index, entry.index, entry_format.unit_of(entry))
        self.begin_index = entry.index
        self.end = _end_behind(entry)
        disk.noting.was_cut(-1)

    def _check_may_begin_with(self, entry: Entry) -> None:
        """Raise LogRefused if a ledger here cannot begin with this entry."""
        if self.must_begin_at not in (-1, entry.pos):
            raise LogRefused(self._tell_difference(entry))
        if entry.pos % self._disk.data.file_size_bytes:
            raise LogRefused(f"entry {entry.index} at {entry.pos} is not the first of a file")
        if entry.index == 0 < entry.pos and self.must_begin_at < 0:
            log.warning(
                "messages in front of the ledger not found at this member; if the leader still has them, copy its "
                "commitlog, consumequeue and index before the first start of this member",
                ledger_begins_at=entry.pos,
            )

    def _tell_difference(self, entry: Entry) -> str:
        text = (
            f"the leader's entry {entry.index} is at {entry.pos}, but the older log of this member ends at "
            f"{self.must_begin_at}, so it is not the leader's. Stop this member, remove {self._disk.places}, and "
            "replace commitlog, consumequeue and index by the leader's"
        )
        if text != self._told:
            self._told = text
            log.error("entries refused by this member", reason=text)
        return text


def _end_behind(last: Entry) -> End:
    return End(last.index, last.term, last.pos + last.size)
