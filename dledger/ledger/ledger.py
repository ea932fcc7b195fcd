"""The ledger of one member on disk: data and index files, as DLedger 0.3.1.2 writes them.

    <directory>/data/<20 digits>    entries and blanks; the name is the position of the first byte. They may also be
                                    in several directories elsewhere (`LogDirectories`)
    <directory>/index/<20 digits>   32 bytes for each entry; the name is the index of the first one times 32
    <directory>/reset-<20 digits>   ours: the first file of a ledger that replaces this one (replacing.py)

It fulfils `rules.log.Log`. Changes are written before the call returns; `synced_index` says what a power failure
cannot take, and only `sync` raises it. What a sync covers is decided before it begins (noting.py). A disk that is full
refuses a change and leaves the ledger as it was; one that fails makes it broken, and nothing is taken until a restart.

Here a ledger is opened, read and appended to. How it is cut, loses its oldest file or is replaced: ends.py.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from triomq.dledger.ledger import entry_format, recovery, replacing
from triomq.dledger.ledger.ends import End, Ends
from triomq.dledger.ledger.ledger_files import LedgerFiles
from triomq.dledger.ledger.recent_entries import RecentEntries
from triomq.dledger.ledger.records import is_whole_record, opening_record
from triomq.dledger.ledger.runs import LONGEST_ENTRY_BYTES, Run, entries_of, run_of
from triomq.dledger.rules.log import LogRefused, PositionMismatch
from triomq.dledger.wire.bodies import ENTRY_HEADER_BYTES, Entry
from triomq.store.disk.files import Files
from triomq.store.disk.log_directories import LogDirectories
from triomq.store.disk.mapped_file import MappedFile, OpenFiles

INDEX_FILE_BYTES = 167_772_160


class Ledger:
    """The entries of one member. Only its owner's thread touches it."""

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
        own = LogDirectories([f"{directory}/data"], [])
        disk = LedgerFiles(
            files, directory, data_file_bytes, index_file_bytes, pool or OpenFiles(files, 64), directories or own
        )
        self._disk = disk
        self._is_whole = is_whole
        self._recent = RecentEntries()
        self.data = disk.data
        """The data files."""
        self.index = disk.index
        """The index files."""
        self.directories = disk.directories
        self.noting = disk.noting
        self.ends = Ends(disk, self._recent)
        self.on_changed: Callable[[], None] = lambda: None
        """Called when entries were written or removed."""

    def open(self) -> None:
        """Recover. Everything that is left is synced, so that it counts as copied. Raises StoreRefused and OSError."""
        disk = self._disk
        for path in (disk.directory, *disk.directories.paths, disk.index.directory):
            disk.files.make_lasting_directories(path)
        replacing.finish(disk.files, disk.directory, disk.directories)
        recovery.load(disk.data, disk.directories)
        recovery.load(disk.index, LogDirectories([disk.index.directory], []))
        noted_index = disk.noting.load()
        found = recovery.recover(disk.data, disk.index, noted_index, self._is_whole, disk.will_change)
        self.ends.use(found)
        for file in (*disk.data.files, *disk.index.files):
            disk.files.datasync(file.fd())
        replacing.sync_directories(disk.files, disk.directory, disk.directories)
        disk.noting.synced_index = found.end_index

    def keep_no_entries_in_memory(self) -> None:
        """There are no followers that are about to get what is appended."""
        self._recent.most_bytes = 0

    def view(self, found: recovery.Found) -> None:
        """Use what a program that only reads has found in the files, instead of `open`."""
        self.ends.use(found)

    def close(self) -> None:
        self._disk.pool.close_all()

    # Reading.

    @property
    def places(self) -> str:
        """The directories of the ledger, for sentences."""
        return self._disk.places

    @property
    def begin_index(self) -> int:
        return self.ends.begin_index

    @property
    def end_index(self) -> int:
        return self.ends.end.index

    @property
    def end_term(self) -> int:
        return self.ends.end.term

    @property
    def end_pos(self) -> int:
        """Where the next entry begins, unless it does not fit the file."""
        return self.ends.end.pos

    def next_pos(self, body_bytes: int) -> int:
        """Return the position of the next entry if its body is that long. Raises LogRefused."""
        return self._place(self.ends.end.pos, body_bytes + ENTRY_HEADER_BYTES)

    @property
    def can_append(self) -> bool:
        """See rules.log.Log. A disk that was full is tried again: nothing lies behind the end, and zeros change that
        in no way."""
        disk, end = self._disk, self.ends.end
        if disk.is_full and not disk.has_failed:
            try:
                file_size = disk.data.file_size_bytes
                disk.write_data(end.pos, bytes(min(file_size - end.pos % file_size, 4096)))
                recovery.write_units(disk.index, end.index + 1, bytes(entry_format.UNIT_BYTES))
                disk.is_full = False
            except OSError as error:
                disk.refused(error)
        return not disk.has_failed and not disk.is_full

    def entry(self, index: int) -> Entry:
        """Return an entry between begin and end."""
        assert self.begin_index <= index <= self.ends.end.index
        recent = self._recent.get(index)
        if recent is not None:
            return recent
        pos, size = entry_format.place_of(recovery.unit_at(self.index, index))
        file = self.data.find(pos)
        assert file is not None
        return entry_format.decode(file.pread(pos - file.start, size))

    def batch(self, first: int, most_entries: int, most_bytes: int) -> list[Entry]:
        """See rules.log.Log. A member that catches up gets all that it lacks from the files: entries of one file are
        read at once."""
        assert self.begin_index <= first <= self.ends.end.index
        most_entries = min(most_entries, self.ends.end.index + 1 - first)
        if self._recent.get(first) is not None:
            return self._recent.batch(first, most_entries, most_bytes)
        run = self._run_on_disk(first, most_entries, most_bytes)
        return [run.entry(index) for index in range(first, first + run.count)]

    def _run_on_disk(self, first: int, most_entries: int, most_bytes: int) -> Run:
        """Read entries that follow each other in one file, at least one."""
        units = recovery.units_at(self.index, first, most_entries)
        start, size = entry_format.place_of(units[: entry_format.UNIT_BYTES])
        end = start + size
        count = 1
        for pos, size in entry_format.places_of(units[entry_format.UNIT_BYTES :]):
            if pos != end or pos + size - start > most_bytes:
                break
            end += size
            count += 1
        file = self.data.find(start)
        assert file is not None
        data = file.pread(start - file.start, end - start)
        return Run(start, first, data, units[: count * entry_format.UNIT_BYTES])

    def end_of(self, index: int) -> int:
        """Return the position behind an entry between begin and end; where the ledger begins for the index before."""
        if index < self.begin_index or index < 0:
            return max(0, self.data.first_start)
        if index == self.ends.end.index:
            return self.ends.end.pos
        recent = self._recent.get(index)
        if recent is not None:
            return recent.pos + recent.size
        pos, size = entry_format.place_of(recovery.unit_at(self.index, index))
        return pos + size

    @property
    def begin_pos(self) -> int:
        """The position of the first entry, which need not be the start of its file."""
        return self.entry(self.begin_index).pos

    def begins_at(self, pos: int) -> bool:
        """Return whether an entry begins at this position."""
        file = self.data.find(pos)
        if file is None or pos + ENTRY_HEADER_BYTES > min(file.end, self.ends.end.pos):
            return False
        return entry_format.read_header(file.pread(pos - file.start, ENTRY_HEADER_BYTES)).is_sound(pos)

    # Writing.

    def append_records(self, term: int, records: bytes | bytearray) -> None:
        """Append records that lie one behind the other, each as an entry of a leader at the position that the record
        itself names. Raises LogRefused."""
        data = bytes(records)
        index, pos = self.ends.end.index + 1, self.ends.end.pos
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
        index, pos = self.ends.end.index, self.ends.end.pos
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
        pos = self.ends.end.pos
        for entry in entries:
            if entry.pos not in (self._place(pos, entry.size), self._next_file(pos)):
                raise PositionMismatch(f"entry {entry.index} is at {entry.pos}, here it would be at {pos}")
            pos = entry.pos + entry.size
        self._write_entries(entries)

    def _write_entries(self, entries: list[Entry]) -> None:
        """Write entries whose positions are right. Raises LogRefused."""
        runs: list[Run] = []
        begin, pos = 0, self.ends.end.pos
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
        file_size = self.data.file_size_bytes
        if size > min(LONGEST_ENTRY_BYTES, file_size - entry_format.BLANK_BYTES):
            raise LogRefused(f"an entry of {size} bytes is longer than members of RocketMQ can take")
        left = file_size - pos % file_size
        return pos if size + entry_format.BLANK_BYTES <= left else self._next_file(pos)

    def _next_file(self, pos: int) -> int:
        file_size = self.data.file_size_bytes
        return pos - pos % file_size + file_size

    def _write(self, runs: list[Run], last_term: int) -> None:
        """Write runs, the last of which has entries. Raises LogRefused with the ledger as before."""
        disk, before = self._disk, self.ends.end
        disk.check_is_sound()
        try:
            disk.write(runs)
        except OSError as error:
            refused = disk.refused(error)
            with suppress(OSError):  # a disk that cannot even do that is broken
                disk.cut(before.index, before.pos)
            raise refused from error
        disk.is_full = False
        last = runs[-1]
        self.ends.end = End(last.first_index + last.count - 1, last_term, last.at + len(last.data))
        if before.index < 0:
            self.ends.begin_index = runs[0].first_index
        self.on_changed()

    # Ends.

    def cut(self, end_index: int) -> None:
        """See rules.log.Log. Raises LogRefused with the ledger as before if the disk is full, and OSError, after which
        the ledger is broken."""
        if end_index < self.ends.end.index:
            self.ends.cut(self.entry(end_index) if end_index >= self.ends.begin_index else None)
            self.on_changed()

    def detach_first(self) -> MappedFile:
        """Remove the oldest data file: see Ends. Raises OSError."""
        file = self.ends.detach_first()
        self.on_changed()
        return file

    def reset(self, entry: Entry) -> None:
        """See rules.log.Log, and Ends. Raises LogRefused with the ledger as before."""
        self.ends.reset(entry)
        self.on_changed()

    # On disk.

    @property
    def synced_index(self) -> int:
        """See rules.log.Log."""
        return self.noting.synced_index

    @property
    def noted_committed(self) -> int:
        """The committed index of the last checkpoint; -1 if it is not of this ledger."""
        return self.noting.committed(self.begin_index, self.ends.end.index)

    def sync(self) -> None:
        """Bring all entries to disk, and raise `synced_index`. Raises OSError; the ledger is broken then."""
        pending = self.noting.begin_sync(self.ends.end.index)
        pending.run()
        self.noting.end_sync(pending)

    def save_checkpoint(self, committed: int) -> None:
        """Sync everything and note the end: a recovery reads neither units nor bodies of what is before it. Raises
        OSError like `sync`."""
        pending = self.noting.begin_checkpoint(self.ends.end.index, committed)
        pending.run()
        self.noting.end_checkpoint(pending, committed)
        self._disk.files.sync_directory(self._disk.directory)
