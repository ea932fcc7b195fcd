"""The records of a stopped broker's log, read only: of a plain one, or of a member of a group, whose ledger may have an
older plain log below it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from triomq.dledger.ledger import entry_format, replacing
from triomq.dledger.ledger.data_directories import data_settings, member_directory, plain_settings
from triomq.dledger.ledger.records import TERM_TOPIC, is_whole_record
from triomq.dledger.ledger.term_files import TermFiles
from triomq.dledger.wire.bodies import ENTRY_HEADER_BYTES
from triomq.protocol import record
from triomq.protocol.record import RecordFields
from triomq.store.config import StoreSettings
from triomq.store.disk.file_sequence import FileSequence
from triomq.store.disk.layout import Layout
from triomq.store.disk.ledgers import has_files
from triomq.store.disk.log_directories import log_directories
from triomq.store.disk.mapped_file import MappedFile, OpenFiles
from triomq.store.errors import StoreError, StoreRefused
from triomq.store.log.log_scan import LogScan
from triomq.store.upkeep.offline import OfflineLog, ReadOnlyFiles

_OPEN_FILES = 64


@dataclass(frozen=True, slots=True)
class Found:
    """One record, whole: its bytes and its fields."""

    data: bytes
    fields: RecordFields


class Source(Protocol):
    """The records of a log, in its order. `left_out` is complete when `records` has ended: sentences about what was
    not read."""

    left_out: list[str]

    @property
    def range(self) -> tuple[int, int]:
        """The physical offsets between which the records lie, about."""
        ...

    def records(self) -> Iterator[Found]:
        """Yield every record. Raises StoreError for damage that cannot be passed, OSError."""
        ...

    def close(self) -> None: ...


class PlainSource:
    """The log of a plain broker. Damaged ranges are left out, as a start of it would leave them out."""

    def __init__(self, settings: StoreSettings) -> None:
        self._offline = OfflineLog.plain(settings)
        self.left_out = list(self._offline.problems)
        files = self._offline.log.sequence.files
        if not files:
            raise StoreRefused(f"{', '.join(Layout(settings).commit_logs)} has no log of a plain broker")
        self.range = (files[0].start, files[-1].likely_end)
        self.end = files[-1].end

    def records(self) -> Iterator[Found]:
        log = self._offline.log
        scan = LogScan(log, max(0, log.min_offset), check_crc=True)
        for found in scan.records():
            data = log.record_at(found.physical_offset)
            if data is not None:
                yield Found(data, record.read_fields(data, 0, len(data)))
        for damage in scan.damages:
            self.left_out.append(f"damaged from {damage.begin} to {damage.end} of the log: {damage.reason}")

    def close(self) -> None:
        self._offline.close()


class MemberSource:
    """The log of a member: the older plain log, if it has one, and then its ledger."""

    def __init__(self, settings: StoreSettings, self_id: str) -> None:
        files = ReadOnlyFiles()
        plain = plain_settings(settings, member_directory(Layout(settings).root, self_id), files)
        paths = log_directories(Layout(plain)).every
        has_older = any(has_files(files, path) for path in paths)
        ledger = LedgerSource(settings, self_id, is_begun=has_older)
        self._sources: list[PlainSource | LedgerSource] = [ledger]
        self.range = ledger.range
        self.left_out: list[str] = []
        try:
            if has_older:
                self._add_older(plain)
        except BaseException:
            self.close()
            raise

    def _add_older(self, plain: StoreSettings) -> None:
        """Read the older log first. Raises StoreRefused if the ledger does not continue it, as a start does."""
        older = PlainSource(plain)
        self._sources.insert(0, older)
        begin, end = self.range
        if older.end != begin:
            raise StoreRefused(
                f"the plain log in {', '.join(Layout(plain).commit_logs)} ends at {older.end}, but the ledger begins "
                f"at {begin}: it is not the one that this member began with. Restore that, or move the plain files away"
            )
        self.range = (older.range[0], end)

    def records(self) -> Iterator[Found]:
        for source in self._sources:
            yield from source.records()
            self.left_out += source.left_out

    def close(self) -> None:
        for source in self._sources:
            source.close()


class LedgerSource:
    """The ledger of a member, up to the last entry that it knew to be committed. The records with which leaders opened
    their terms are not messages, and left out."""

    def __init__(self, settings: StoreSettings, self_id: str, *, is_begun: bool) -> None:
        """`is_begun`: an older log lies below it, so it may have no entries. Raises StoreRefused."""
        root = Layout(settings).root
        files = ReadOnlyFiles()
        directory = member_directory(root, self_id)
        data = log_directories(Layout(data_settings(settings, directory, files)))
        self._pool = OpenFiles(files, _OPEN_FILES)
        size = settings.mapped_file_size_commit_log_bytes
        self._data = FileSequence(self._pool, data.paths[0], size, holds_log=True)
        data.load(self._data)
        if not self._data.files:
            raise StoreRefused(f"{', '.join(data.paths)} has no ledger; --self names the member as dLegerSelfId does")
        if replacing.waiting(files, directory, data):
            raise StoreRefused(f"{directory}: its leader was replacing this ledger; start the member and stop it again")
        self._committed = TermFiles(files, directory).load_checkpoint()[1]
        if self._committed < 0 and not (is_begun and self._is_empty()):
            raise StoreRefused(f"{directory}/checkpoint does not say what is committed; start the member and stop it")
        self._last = self._term = -1
        self._is_begun = False
        self.left_out: list[str] = []
        self.range = (self._data.files[0].start, self._data.files[-1].likely_end)

    def _is_empty(self) -> bool:
        """Return whether it has no entry yet."""
        return not self._data.files[0].pread(0, ENTRY_HEADER_BYTES).strip(b"\0")

    def records(self) -> Iterator[Found]:
        behind = 0
        for file in self._data.files:
            for index, body in self._entries(file):
                if index > self._committed:
                    behind += 1
                    continue
                fields = record.read_fields(body, 0, len(body))
                if fields.topic != TERM_TOPIC:
                    yield Found(body, fields)
        if self._last < self._committed:
            raise StoreError(
                f"{self._data.directory}: no entry {self._last + 1} can be read, but entries up to {self._committed} "
                "are committed; convert another member"
            )
        if behind:
            self.left_out.append(
                f"{behind} entries behind index {self._committed}: this member did not know that they were committed. "
                "Convert a member that knew, or start the group, wait until its members agree, and stop it"
            )

    def _entries(self, file: MappedFile) -> Iterator[tuple[int, bytes]]:
        """Yield index and body of the entries of one file, as long as each one follows the one before."""
        at = 0
        while at + ENTRY_HEADER_BYTES <= file.size_bytes:
            head = file.pread(at, ENTRY_HEADER_BYTES)
            if len(head) < ENTRY_HEADER_BYTES:
                return
            header = entry_format.read_header(head)
            is_next = not self._is_begun or (header.entry_index == self._last + 1 and header.term >= self._term)
            if not header.is_sound(file.start + at) or not is_next or at + header.size > file.size_bytes:
                return
            entry = entry_format.decode(file.pread(at, header.size))
            if not is_whole_record(entry):
                return
            self._is_begun = True
            self._last = header.entry_index
            self._term = header.term
            yield header.entry_index, entry.body
            at += header.size

    def close(self) -> None:
        self._pool.close_all()
