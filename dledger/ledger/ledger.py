"""The ledger of one member on disk: data and index files, as DLedger 0.3.1.2 writes them.

    <directory>/data/<20 digits>    entries and blanks; the name is the position of the first byte. They may also be
                                    in several directories elsewhere (`LogDirectories`)
    <directory>/index/<20 digits>   32 bytes for each entry; the name is the index of the first one times 32
    <directory>/reset-<20 digits>   ours: the first file of a ledger that replaces this one (see `reset`)

It fulfils `rules.log.Log`. Changes are written before the call returns; `synced_index` says what a power failure
cannot take, and only `sync` raises it. What a sync covers is decided before it begins. A disk that is full refuses a
change and leaves the ledger as it was; one that fails makes it broken, and nothing is taken until a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from triomq.dledger.ledger import entry_format, recovery, replacing
from triomq.dledger.ledger.noting import Noting
from triomq.dledger.ledger.recent_entries import RecentEntries
from triomq.dledger.ledger.records import is_whole_record, opening_record
from triomq.dledger.ledger.runs import LONGEST_ENTRY_BYTES, Run, entries_of, run_of
from triomq.dledger.rules.log import LogRefused, PositionMismatch
from triomq.dledger.wire.bodies import ENTRY_HEADER_BYTES, Entry
from triomq.store.disk.file_sequence import FileSequence
from triomq.store.disk.files import TEMPORARY, Files
from triomq.store.disk.log_directories import LogDirectories
from triomq.store.disk.mapped_file import MappedFile, OpenFiles

log = structlog.get_logger("triomq.dledger.ledger")

INDEX_FILE_BYTES = 167_772_160


@dataclass
class _End:
    """Where a ledger ends."""

    index: int
    term: int
    pos: int


class Ledger:
    """The entries of one member. Only its owner's thread touches it."""

    __slots__ = (
        "_broken",
        "_changed_in",
        "_data",
        "_directory",
        "_end",
        "_files",
        "_index",
        "_is_full",
        "_is_whole",
        "_pool",
        "_recent",
        "_told",
        "begin_index",
        "directories",
        "must_begin_at",
        "noting",
        "on_changed",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        data_file_bytes: int,
        *,
        is_whole: Callable[[Entry], bool] = is_whole_record,
        index_file_bytes: int = INDEX_FILE_BYTES,
        pool: OpenFiles | None = None,
        directories: LogDirectories | None = None,
    ) -> None:
        """`pool` bounds the open files together with those of others; by default the ledger has a pool of its own. The
        data files are in `directories`, by default in `<directory>/data`."""
        self._files = files
        self._is_whole = is_whole
        self._directory = directory
        self._pool = pool or OpenFiles(files, 64)
        self.directories = directories or LogDirectories([f"{directory}/data"], [])
        self._data = FileSequence(self._pool, self.directories.paths[0], data_file_bytes, holds_log=True)
        self._changed_in = ""
        self._index = FileSequence(self._pool, f"{directory}/index", index_file_bytes)
        self._end = _End(-1, -1, 0)
        self._broken = False
        self._is_full = False
        self.noting = Noting(files, directory, self._data, self._index)
        self._told = ""
        self.begin_index = -1
        self.must_begin_at = -1
        """Where this ledger has to begin as long as an older log lies below it; -1: wherever its leader's does."""
        self._recent = RecentEntries()
        self.on_changed: Callable[[], None] = lambda: None
        """Called when entries were written or removed."""

    def open(self) -> None:
        """Recover. Everything that is left is synced, so that it counts as copied. Raises StoreRefused and OSError."""
        for path in (self._directory, *self.directories.paths, self._index.directory):
            self._files.make_lasting_directories(path)
        replacing.finish(self._files, self._directory, self.directories)
        recovery.load(self._data, self.directories)
        recovery.load(self._index, LogDirectories([self._index.directory], []))
        noted_index = self.noting.load()
        found = recovery.recover(self._data, self._index, noted_index, self._is_whole, self._will_change)
        self.begin_index = found.begin_index
        self._end = _End(found.end_index, found.end_term, found.end_pos)
        for file in (*self._data.files, *self._index.files):
            self._files.datasync(file.fd())
        replacing.sync_directories(self._files, self._directory, self.directories)
        self.noting.synced_index = found.end_index

    def keep_no_entries_in_memory(self) -> None:
        """There are no followers that are about to get what is appended."""
        self._recent.most_bytes = 0

    def view(self, found: recovery.Found) -> None:
        """Use what a program that only reads has found in the files, instead of `open`."""
        self.begin_index = found.begin_index
        self._end = _End(found.end_index, found.end_term, found.end_pos)

    @property
    def index(self) -> FileSequence:
        """The index files."""
        return self._index

    def close(self) -> None:
        self._pool.close_all()

    # Reading.

    @property
    def data(self) -> FileSequence:
        """The data files."""
        return self._data

    @property
    def places(self) -> str:
        """The directories of the ledger, for sentences."""
        inside = f"{self._directory}/"
        others = (path for path in self.directories.every if not path.startswith(inside))
        return " and ".join((self._directory, *others))

    @property
    def end_index(self) -> int:
        return self._end.index

    @property
    def end_term(self) -> int:
        return self._end.term

    @property
    def end_pos(self) -> int:
        """Where the next entry begins, unless it does not fit the file."""
        return self._end.pos

    def next_pos(self, body_bytes: int) -> int:
        """Return the position of the next entry if its body is that long. Raises LogRefused."""
        return self._place(self._end.pos, body_bytes + ENTRY_HEADER_BYTES)

    @property
    def can_append(self) -> bool:
        """See rules.log.Log. A disk that was full is tried again: nothing lies behind the end, and zeros change that
        in no way."""
        if self._is_full and not self._is_broken:
            try:
                file_size = self._data.file_size_bytes
                self._write_data(self._end.pos, bytes(min(file_size - self._end.pos % file_size, 4096)))
                recovery.write_units(self._index, self._end.index + 1, bytes(entry_format.UNIT_BYTES))
                self._is_full = False
            except OSError as error:
                self._broken = error.errno not in TEMPORARY
        return not self._is_broken and not self._is_full

    def entry(self, index: int) -> Entry:
        """Return an entry between begin and end."""
        assert self.begin_index <= index <= self._end.index
        recent = self._recent.get(index)
        if recent is not None:
            return recent
        pos, size = entry_format.place_of(recovery.unit_at(self._index, index))
        file = self._data.find(pos)
        assert file is not None
        return entry_format.decode(file.pread(pos - file.start, size))

    def batch(self, first: int, most_entries: int, most_bytes: int) -> list[Entry]:
        """See rules.log.Log. A member that catches up gets all that it lacks from the files: entries of one file are
        read at once."""
        assert self.begin_index <= first <= self._end.index
        most_entries = min(most_entries, self._end.index + 1 - first)
        if self._recent.get(first) is not None:
            return self._recent.batch(first, most_entries, most_bytes)
        run = self._run_on_disk(first, most_entries, most_bytes)
        return [run.entry(index) for index in range(first, first + run.count)]

    def _run_on_disk(self, first: int, most_entries: int, most_bytes: int) -> Run:
        """Read entries that follow each other in one file, at least one."""
        units = recovery.units_at(self._index, first, most_entries)
        start, size = entry_format.place_of(units[: entry_format.UNIT_BYTES])
        end = start + size
        count = 1
        for pos, size in entry_format.places_of(units[entry_format.UNIT_BYTES :]):
            if pos != end or pos + size - start > most_bytes:
                break
            end += size
            count += 1
        file = self._data.find(start)
        assert file is not None
        data = file.pread(start - file.start, end - start)
        return Run(start, first, data, units[: count * entry_format.UNIT_BYTES])

    def end_of(self, index: int) -> int:
        """Return the position behind an entry between begin and end; where the ledger begins for the index before."""
        if index < self.begin_index or index < 0:
            return max(0, self._data.first_start)
        if index == self._end.index:
            return self._end.pos
        recent = self._recent.get(index)
        if recent is not None:
            return recent.pos + recent.size
        pos, size = entry_format.place_of(recovery.unit_at(self._index, index))
        return pos + size

    @property
    def begin_pos(self) -> int:
        """The position of the first entry, which need not be the start of its file."""
        return self.entry(self.begin_index).pos

    def begins_at(self, pos: int) -> bool:
        """Return whether an entry begins at this position."""
        file = self._data.find(pos)
        if file is None or pos + ENTRY_HEADER_BYTES > min(file.end, self._end.pos):
            return False
        return entry_format.read_header(file.pread(pos - file.start, ENTRY_HEADER_BYTES)).is_sound(pos)

    # Writing.

    def append_records(self, term: int, records: bytes | bytearray) -> None:
        """Append records that lie one behind the other, each as an entry of a leader at the position that the record
        itself names. Raises LogRefused."""
        data = bytes(records)
        index, pos = self._end.index + 1, self._end.pos
        runs: list[Run] = []
        at = 0
        while at < len(data):
            room = self._next_file(pos) - pos
            entries, units, end = entries_of(data, at, index, term, pos, room)
            if end == at:  # the next one goes to the next file, or is too long
                place = self._place(pos, int.from_bytes(data[at : at + 4], "big") + ENTRY_HEADER_BYTES)
                runs.append(Run(pos, index, entry_format.blank(place - pos), b""))
                pos = place
                continue
            runs.append(Run(pos, index, entries, units))
            index += runs[-1].count
            pos += len(entries)
            at = end
        self._write(runs, term)
        for run in runs:
            self._recent.add(run)

    def append_opening(self, term: int, now_ms: int, host: bytes) -> None:
        """Append the record that opens a term: see records.py. Raises LogRefused."""
        at = self.next_pos(len(opening_record(0, 0, host))) + ENTRY_HEADER_BYTES
        self.append(term, [opening_record(at, now_ms, host)])

    def append(self, term: int, bodies: list[bytes]) -> None:
        """Append entries of a leader. Raises LogRefused."""
        entries = []
        index, pos = self._end.index, self._end.pos
        for body in bodies:
            index += 1
            size = len(body) + ENTRY_HEADER_BYTES
            pos = self._place(pos, size)
            entries.append(Entry(body=body, index=index, pos=pos, size=size, term=term))
            pos += size
        self._write_entries(entries)

    def write(self, entries: list[Entry]) -> None:
        """Append a leader's entries. Raises LogRefused, and PositionMismatch before anything is written.

        An entry may be at the start of the next file although it had room: a member of RocketMQ continues there when it
        has filled a file for an entry that it lost."""
        pos = self._end.pos
        for entry in entries:
            if entry.pos not in (self._place(pos, entry.size), self._next_file(pos)):
                raise PositionMismatch(f"entry {entry.index} is at {entry.pos}, here it would be at {pos}")
            pos = entry.pos + entry.size
        self._write_entries(entries)

    def _write_entries(self, entries: list[Entry]) -> None:
        """Write entries whose positions are right. Raises LogRefused."""
        runs: list[Run] = []
        begin, pos = 0, self._end.pos
        for number, entry in enumerate(entries):
            if entry.pos != pos:
                if number > begin:
                    runs.append(run_of(entries[begin:number]))
                runs.append(Run(pos, entry.index, entry_format.blank(entry.pos - pos), b""))
                begin = number
            pos = entry.pos + entry.size
        runs.append(run_of(entries[begin:]))
        self._write(runs, entries[-1].term)

    def _place(self, pos: int, size: int) -> int:
        """Return where an entry goes that follows `pos`: there, or at the start of the next file."""
        file_size = self._data.file_size_bytes
        if size > min(LONGEST_ENTRY_BYTES, file_size - entry_format.BLANK_BYTES):
            raise LogRefused(f"an entry of {size} bytes is longer than members of RocketMQ can take")
        left = file_size - pos % file_size
        return pos if size + entry_format.BLANK_BYTES <= left else self._next_file(pos)

    def _next_file(self, pos: int) -> int:
        file_size = self._data.file_size_bytes
        return pos - pos % file_size + file_size

    def _write(self, runs: list[Run], last_term: int) -> None:
        """Write runs, the last of which has entries. Raises LogRefused with the ledger as before."""
        if self._is_broken:
            raise LogRefused("an earlier write or sync failed: restart this member")
        before = self._end
        try:
            for run in runs:
                self._write_data(run.at, run.data)
            recovery.write_units(self._index, runs[0].first_index, b"".join([run.units for run in runs]))
        except OSError as error:
            self._take_back(before, error)
            raise LogRefused(f"{self._directory}: {error}") from error
        self._is_full = False
        last = runs[-1]
        self._end = _End(last.first_index + last.count - 1, last_term, last.at + len(last.data))
        if before.index < 0:
            self.begin_index = runs[0].first_index
        self.on_changed()

    def _write_data(self, at: int, data: bytes) -> None:
        file = self._data.find(at)
        if file is None:
            file = self._make_file(at)
        file.write(data, at - file.start)

    def _make_file(self, at: int) -> MappedFile:
        directory = self.directories.for_file(at // self._data.file_size_bytes)
        self._will_change(directory)
        return self._data.make(at, directory)

    def _will_change(self, directory: str) -> None:
        """Note that a data file is to be made or removed there. If the one before was in another directory, that change
        is on disk first: a start would be refused after a power failure that takes the earlier one only, since it
        would find a gap, or a file twice. Raises OSError."""
        if self._changed_in not in ("", directory):
            self._files.sync_directory(self._changed_in)
        self._changed_in = directory

    def _take_back(self, before: _End, error: OSError) -> None:
        """Remove what a failed write has left. A disk that cannot even do that is broken."""
        self._is_full = True
        self._broken = error.errno not in TEMPORARY
        try:
            recovery.cut(self._data, self._index, before.index, before.pos, self._will_change)
        except OSError:
            self._broken = True

    # Removing.

    def cut(self, end_index: int) -> None:
        """Remove all entries behind an index. Raises LogRefused with the ledger as before if the disk is full, and
        OSError, after which the ledger is broken."""
        if end_index >= self._end.index:
            return
        try:
            self.noting.lower(end_index)
        except OSError as error:
            if error.errno not in TEMPORARY:
                self._broken = True
                raise
            self._is_full = True
            raise LogRefused(f"{self._directory}: {error}") from error
        if end_index < self.begin_index:
            end = _End(-1, -1, self._data.first_start)
        else:
            last = self.entry(end_index)
            end = _End(end_index, last.term, last.pos + last.size)
        self.noting.was_cut(end.index)
        self._recent.clear()
        self._end = end
        if end.index < 0:
            self.begin_index = -1
        try:
            recovery.cut(self._data, self._index, end.index, end.pos, self._will_change)
        except OSError:
            self._broken = True
            raise
        self.on_changed()

    def detach_first(self) -> MappedFile:
        """Remove the oldest data file, which is not the last one, and the index files that it leaves without entries.
        The caller unlinks the data file, and brings that to disk before it calls again. Raises OSError."""
        file = self._data.detach_first()
        head = self._data.files[0].pread(0, ENTRY_HEADER_BYTES)
        self.begin_index = entry_format.read_header(head).entry_index
        while len(self._index.files) > 1 and self._index.files[0].end <= self.begin_index * entry_format.UNIT_BYTES:
            self._index.drop_first()
        self.on_changed()
        return file

    def begin(self, pos: int) -> None:
        """Let a ledger without files begin at this position, the start of a file. Raises OSError."""
        assert not self._data.files
        file = self._make_file(pos)
        self._files.sync_directory(file.directory)
        self._end = _End(-1, -1, pos)

    def reset(self, entry: Entry) -> None:
        """Replace everything by a ledger that begins with this entry. Raises LogRefused with the ledger as before, also
        if it could not begin there (`must_begin_at`), or within a file: such a ledger could not be opened again. The
        leader then compares again, until both have an entry in common or it sends its own first one.

        The first file of the new ledger is on disk under another name before any old one is removed; a start that
        finds it completes the change."""
        if self._is_broken:
            raise LogRefused("an earlier write or sync failed: restart this member")
        if self.must_begin_at not in (-1, entry.pos):
            raise LogRefused(self._tell_difference(entry))
        if entry.pos % self._data.file_size_bytes:
            raise LogRefused(f"entry {entry.index} at {entry.pos} is not the first of a file")
        self._warn_of_missing(entry)
        try:
            self.noting.lower(-1)
            replacing.prepare(self._files, self._directory, self.directories, self._data.file_size_bytes, entry)
        except OSError as error:
            self._is_full = True
            self._broken = error.errno not in TEMPORARY
            raise LogRefused(f"{self._directory}: {error}") from error
        self._data.delete_all()
        self._index.delete_all()
        self._recent.clear()
        replacing.finish(self._files, self._directory, self.directories)
        recovery.load(self._data, self.directories)
        recovery.write_units(self._index, entry.index, entry_format.unit_of(entry))
        self._end = _End(entry.index, entry.term, entry.pos + entry.size)
        self.begin_index = entry.index
        self.noting.was_cut(-1)
        self.on_changed()

    def _tell_difference(self, entry: Entry) -> str:
        text = (
            f"the leader's entry {entry.index} is at {entry.pos}, but the older log of this member ends at "
            f"{self.must_begin_at}, so it is not the leader's. Stop this member, remove {self.places}, and replace "
            "commitlog, consumequeue and index by the leader's"
        )
        if text != self._told:
            self._told = text
            log.error("entries refused by this member", reason=text)
        return text

    def _warn_of_missing(self, entry: Entry) -> None:
        if entry.index == 0 < entry.pos and self.must_begin_at < 0:
            log.warning(
                "messages in front of the ledger not found at this member; if the leader still has them, copy its "
                "commitlog, consumequeue and index before the first start of this member",
                ledger_begins_at=entry.pos,
            )

    # On disk.

    @property
    def _is_broken(self) -> bool:
        return self._broken or self.noting.has_failed

    @property
    def synced_index(self) -> int:
        """See rules.log.Log."""
        return self.noting.synced_index

    @property
    def noted_committed(self) -> int:
        """The committed index of the last checkpoint; -1 if it is not of this ledger."""
        return self.noting.committed(self.begin_index, self._end.index)

    def sync(self) -> None:
        """Bring all entries to disk, and raise `synced_index`. Raises OSError; the ledger is broken then."""
        pending = self.noting.begin_sync(self._end.index)
        pending.run()
        self.noting.end_sync(pending)

    def save_checkpoint(self, committed: int) -> None:
        """Sync everything and note the end: a recovery reads neither units nor bodies of what is before it. Raises
        OSError like `sync`."""
        pending = self.noting.begin_checkpoint(self._end.index, committed)
        pending.run()
        self.noting.end_checkpoint(pending, committed)
        self._files.sync_directory(self._directory)
