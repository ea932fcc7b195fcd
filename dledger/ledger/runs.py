"""Entries that are written at once, as the bytes that go into data and index files.

A leader appends many small entries; they become bytes here without an object for each."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from triomq.dledger.ledger import entry_format
from triomq.dledger.ledger.entry_format import BLANK_BYTES, UNIT_BYTES, pack_header, pack_unit
from triomq.dledger.wire.bodies import ENTRY_HEADER_BYTES, ENTRY_MAGIC, Entry
from triomq.protocol import record
from triomq.protocol.speedups import accelerated

LONGEST_ENTRY_BYTES: Final = 4_194_304
"""What RocketMQ's members can take, header included."""

_SIZE_AND_OFFSET: Final = struct.Struct(f">i{record.PHYSICAL_OFFSET_AT - 4}xq")


@dataclass(slots=True)
class Run:
    """Bytes for one data file, from position `at` on: entries that follow each other, the first with `first_index`, and
    their index units; or the blank that ends the file, without units."""

    at: int
    first_index: int
    data: bytes
    units: bytes

    @property
    def count(self) -> int:
        return len(self.units) // UNIT_BYTES

    def entry(self, index: int) -> Entry:
        """Return an entry of this run."""
        at = (index - self.first_index) * UNIT_BYTES
        pos, size = entry_format.place_of(self.units[at : at + UNIT_BYTES])
        return entry_format.decode(self.data[pos - self.at : pos - self.at + size])


def run_of(entries: list[Entry]) -> Run:
    """Return entries that follow each other in one file as a run."""
    data = b"".join(map(entry_format.encode, entries))
    return Run(entries[0].pos, entries[0].index, data, b"".join(map(entry_format.unit_of, entries)))


def entries_of_reference(
    records: bytes, at: int, index: int, term: int, pos: int, room: int
) -> tuple[bytes, bytes, int]:
    """Make entries of the records that lie one behind the other in `records` from `at` on: as many as are not too long
    and fit `room` bytes with a blank behind them. The first one has this index and this position. Return the entries,
    their index units, and where the rest of the records begins.

    Raises ValueError for a record that names another physical offset as its own, for one that is cut off, and for a
    place that no ledger has."""
    if not 0 <= at <= len(records) or min(index, pos, room) < 0 or max(index, pos, room) > (1 << 62) - 1:
        raise ValueError("a place is outside of the ledger")
    entries: list[bytes] = []
    units: list[bytes] = []
    stop = pos + room - BLANK_BYTES
    while at < len(records):
        size, named = _SIZE_AND_OFFSET.unpack_from(records, at) if at + record.FIXED_BYTES <= len(records) else (-1, 0)
        if not record.FIXED_BYTES <= size <= len(records) - at:
            raise ValueError(f"the record at {at} of {len(records)} bytes is cut off")
        whole = size + ENTRY_HEADER_BYTES
        if whole > LONGEST_ENTRY_BYTES or pos + whole > stop:
            break
        if named != pos + ENTRY_HEADER_BYTES:
            raise ValueError(f"the record for {named} would be written to {pos + ENTRY_HEADER_BYTES}")
        entries.append(pack_header(ENTRY_MAGIC, whole, index, term, pos, 0, 0, 0, size))
        entries.append(records[at : at + size])
        units.append(pack_unit(ENTRY_MAGIC, pos, whole, index, term))
        at += size
        index += 1
        pos += whole
    return b"".join(entries), b"".join(units), at


entries_of: Final = accelerated(entries_of_reference, "triomq.store")
