"""Finding the end of a ledger (DLedgerMmapFileStore.recover). docs/internals/dledger.md has the crash states.

The data files are the truth; index units are compared with them and written again where they differ. Scanning begins at
the file of the entry that the checkpoint names, before whose unit all others are on disk. It ends at the first bytes
that cannot be the next entry: a hole, a torn header, an entry with another position or a gap in the indexes, or one of
an older term, which is what a cut leaves behind the end. Behind the last index that is known to have been on disk, an
entry also ends the ledger if its body is not whole: no checksum covers it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from triomq.dledger.ledger import entry_format
from triomq.dledger.ledger.entry_format import Header
from triomq.dledger.wire.bodies import ENTRY_HEADER_BYTES, Entry
from triomq.store.disk.file_sequence import FileSequence
from triomq.store.disk.log_directories import LogDirectories
from triomq.store.disk.mapped_file import MappedFile
from triomq.store.errors import StoreRefused


@dataclass
class Found:
    """What a recovery found. `end_pos`: where the next entry begins, or its file's blank."""

    begin_index: int = -1
    end_index: int = -1
    end_term: int = -1
    end_pos: int = 0


def load(sequence: FileSequence, directories: LogDirectories) -> None:
    """Add the files of the directories. Raises StoreRefused, naming the file, where they cannot be one sequence."""
    for short in directories.load(sequence):
        short.extend()  # a crash came while it was made or cut: what it lacks was not in use
    for before, file in zip(sequence.files, sequence.files[1:], strict=False):
        if file.start != before.end:
            raise StoreRefused(f"{before.path} is not followed by a file for {before.end}. {_REMEDY}")


_REMEDY = "Restore it, or remove this member's directory and let the leader fill it again"


def recover(
    data: FileSequence,
    index: FileSequence,
    noted_end: int,
    is_whole: Callable[[Entry], bool],
    will_change: Callable[[str], None],
) -> Found:
    """Find the end, cut both sequences there, and mend the index. `noted_end`: the last index that was on disk, as far
    as the checkpoint knows; `is_whole` judges the bodies of later entries; `will_change` as in `cut`. Raises
    StoreRefused for damage in front of it, and OSError."""

    def mend(header: Header) -> None:
        write_units(index, header.entry_index, header.unit)

    found = begin(data)
    if data.files:
        at = _first_to_scan(data, index, noted_end)
        for position in range(at, len(data.files)):
            if not scan(data.files[position], index, found, noted_end, is_whole, mend):
                break
        last = data.files[-1]
        is_hole = last.start - found.end_pos > data.file_size_bytes
        if found.end_index < noted_end and (is_hole or found.end_index < 0):
            raise StoreRefused(
                f"{data.directory}: the entry at {found.end_pos} is damaged, behind index {found.end_index}, but"
                f" entries up to {noted_end} were on disk, and {last.path} is there. {_REMEDY}"
            )
    if found.end_index < 0:
        found.begin_index, found.end_pos = -1, max(0, data.first_start)
    elif found.begin_index < 0:
        raise StoreRefused(f"{data.files[0].path} does not begin with an entry. {_REMEDY}")
    cut(data, index, found.end_index, found.end_pos, will_change)
    return found


def begin(data: FileSequence) -> Found:
    """Return what is known before a scan: where the ledger begins."""
    if not data.files:
        return Found()
    first = _header_at(data.files[0], 0)
    return Found(first.entry_index if first.is_sound(data.first_start) else -1, end_pos=data.first_start)


def cut(
    data: FileSequence, index: FileSequence, end_index: int, end_pos: int, will_change: Callable[[str], None]
) -> None:
    """Remove everything behind an entry, data first. Files go from the last one backwards, so that a crash leaves no
    gap; `will_change` gets the directory of a data file before it goes. The first file stays also when it becomes
    empty: its name is where the ledger begins behind an older log. Raises OSError."""
    for sequence, end in ((data, end_pos), (index, (end_index + 1) * entry_format.UNIT_BYTES)):
        while len(sequence.files) > 1 and sequence.files[-1].start >= end:
            if sequence is data:
                will_change(sequence.files[-1].directory)
            sequence.files.pop().delete()
        last = sequence.last
        if last is not None and end < last.end:
            last.clear_from(max(0, end - last.start))


def _first_to_scan(data: FileSequence, index: FileSequence, noted_end: int) -> int:
    """Return the file that holds the last entry whose index unit is known to be on disk, at the latest the third last;
    the first one if nothing is known. Its first entry and the unit of that must be sound, or an older one's."""
    unit = unit_at(index, noted_end) if noted_end >= 0 else b""
    if len(unit) < entry_format.UNIT_BYTES:
        return 0
    pos, _ = entry_format.place_of(unit)
    at = min(max(0, len(data.files) - 3), max(0, (pos - data.first_start) // data.file_size_bytes))
    while at > 0:
        file = data.files[at]
        header = _header_at(file, 0)
        if header.is_sound(file.start) and unit_at(index, header.entry_index) == header.unit:
            break
        at -= 1
    return at


def scan(
    file: MappedFile,
    index: FileSequence,
    found: Found,
    noted_end: int,
    is_whole: Callable[[Entry], bool],
    differs: Callable[[Header], None],
) -> bool:
    """Read the entries of one file. `differs` gets the header of each whose index unit is another. Return whether the
    next file continues them."""
    at = 0
    while at + entry_format.BLANK_BYTES <= file.size_bytes:
        header = _header_at(file, at)
        if header.magic == entry_format.BLANK_MAGIC:
            # The end stays behind the last entry: the entry for which the rest of the file was filled may be gone.
            return True
        is_next = found.end_index < 0 or (header.entry_index == found.end_index + 1 and header.term >= found.end_term)
        if not header.is_sound(file.start + at) or not is_next or at + header.size > file.size_bytes:
            return False
        if header.entry_index > noted_end and not is_whole(entry_format.decode(file.read(at, header.size))):
            return False
        if unit_at(index, header.entry_index) != header.unit:
            differs(header)
        at += header.size
        found.end_index, found.end_term, found.end_pos = header.entry_index, header.term, file.start + at
    return False


def _header_at(file: MappedFile, at: int) -> Header:
    return entry_format.read_header(file.read(at, ENTRY_HEADER_BYTES).ljust(ENTRY_HEADER_BYTES, b"\0"))


def unit_at(index: FileSequence, entry_index: int) -> bytes:
    """Return the index unit of an entry; empty if there is no file for it."""
    return units_at(index, entry_index, 1)


def units_at(index: FileSequence, first_index: int, most: int) -> bytes:
    """Return the index units of an entry and of those behind it in the same file, at most `most` of them."""
    at = first_index * entry_format.UNIT_BYTES
    file = index.find(at)
    return file.pread(at - file.start, min(most * entry_format.UNIT_BYTES, file.end - at)) if file is not None else b""


def write_units(index: FileSequence, entry_index: int, units: bytes) -> None:
    """Write index units that follow each other; makes the files that they need. Raises OSError."""
    at = entry_index * entry_format.UNIT_BYTES
    while units:
        file = index.find(at)
        if file is None:
            if index.files and index.files[-1].end != at - at % index.file_size_bytes:
                index.delete_all()
            file = index.make(at)
        here = min(len(units), file.end - at)
        file.write(units[:here], at - file.start)
        units = units[here:]
        at += here
