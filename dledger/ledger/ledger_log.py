"""The ledger of a group as the log of a store (DLedgerCommitLog).

The physical offset of a message is the position of its entry plus 48: the record is the entry's body. What this member
appends as leader goes to the ledger with one call of `propose`, which asks the rules first; what it takes as follower
comes from the rules directly, and `on_changed` of the ledger moves the written end here. What is committed is set by
`store.quorum.Quorum`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from triomq.dledger.ledger.entry_format import BLANK_BYTES
from triomq.dledger.ledger.ledger import LONGEST_ENTRY_BYTES, Ledger
from triomq.dledger.ledger.syncs import SyncMark
from triomq.dledger.wire import codes
from triomq.dledger.wire.bodies import ENTRY_HEADER_BYTES
from triomq.store.disk.mapped_file import MappedFile
from triomq.store.errors import LogNotTaken
from triomq.store.log.store_log import StoreLog

Propose = Callable[[object, Callable[[int], None]], int]
"""(ticket, write) -> code: see Member.propose."""

_BLANK: Final = b"\xff\xff\xff\xff"


class LedgerLog(StoreLog):
    """The log over an unopened ledger. `propose` is set by the member of the group before anything is appended."""

    __slots__ = ("_known_files", "_ledger", "_syncing", "on_synced", "propose")

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger.data, ENTRY_HEADER_BYTES, needs_quorum=True)
        self._ledger = ledger
        self._known_files = 0
        self._syncing: SyncMark | None = None
        self.propose: Propose = _refuse
        self.on_synced: Callable[[], None] | None = None

    def load(self) -> None:
        """See StoreLog. A recovery reads up to what was known to be committed: later entries may be replaced."""
        ledger = self._ledger
        ledger.open()
        self.scan_stop = ledger.end_of(ledger.noted_committed)
        self.written_offset = self.next_offset = ledger.end_pos
        self._known_files = len(self.sequence.files)
        ledger.on_changed = self._changed

    # -- appending ----------------------------------------------------------------------------------------------------

    def fits(self, size_bytes: int) -> bool:
        """See StoreLog. A leader has no entries that members of RocketMQ cannot take."""
        size = size_bytes + ENTRY_HEADER_BYTES
        return size <= LONGEST_ENTRY_BYTES and size + BLANK_BYTES <= self.file_size_bytes

    def place_all(self, sizes_bytes: list[int]) -> list[int]:
        """See StoreLog. Each message of a batch is an entry of its own, and need not be in one file with the others."""
        pos = self.next_offset
        found: list[int] = []
        for size in sizes_bytes:
            found.append(self._place_at(pos, size))
            pos = found[-1] + size
        return found

    def place(self, size_bytes: int) -> int:
        """See StoreLog."""
        return self._place_at(self.next_offset, size_bytes)

    def _place_at(self, pos: int, size_bytes: int) -> int:
        room = self.file_size_bytes - pos % self.file_size_bytes
        if size_bytes + ENTRY_HEADER_BYTES + BLANK_BYTES > room:
            pos += room
        return pos + ENTRY_HEADER_BYTES

    def write_pending(self) -> None:
        """See StoreLog. Raises LogNotTaken with the reason."""
        if not self.tail:
            return
        code = self.propose(None, self._write)
        if code != codes.SUCCESS:
            raise LogNotTaken(f"the message was not stored: {_REASONS.get(code, f'code {code} of the group')}")

    def _write(self, term: int) -> None:
        tail = self.tail
        self.tail = bytearray()
        self._ledger.append_records(term, tail)

    def take_back(self) -> None:
        """See StoreLog. Nothing of the pending bytes has been written."""
        self.tail = bytearray()
        self.next_offset = self.written_offset

    def _changed(self) -> None:
        """Follow the ledger, to which the rules have written, or from which they have cut."""
        self.written_offset = self._ledger.end_pos
        if not self.tail:
            self.next_offset = self.written_offset
        if len(self.sequence.files) != self._known_files:
            self._known_files = len(self.sequence.files)
            self.unsynced_directories.add(self.sequence.directory)
        if self.on_written is not None:
            self.on_written()

    # -- ends ---------------------------------------------------------------------------------------------------------

    def set_end(self, offset: int) -> None:
        """See StoreLog. Entries behind the committed end stay."""
        self.committed_offset = offset

    def may_end_at(self, offset: int) -> bool:
        """See StoreLog: an entry or a blank begins there, or the ledger ends there."""
        file = self.sequence.find(offset)
        if offset == self.written_offset or file is None:
            return offset == self.written_offset
        return self._ledger.begins_at(offset) or self.is_filler(file.read(offset - file.start, 8), file.end - offset)

    def cut(self, offset: int) -> None:
        """See StoreLog."""
        self.set_end(offset)

    def repair_refusal(self) -> str | None:
        """See StoreLog. All members have the same bytes."""
        return (
            "The members of a group have the same bytes, so this copy is not repaired: remove the directory"
            f" {self.sequence.directory.removesuffix('/data')} of this member, and the leader fills it again"
        )

    def detach_first(self) -> MappedFile:
        """See StoreLog."""
        file = self._ledger.detach_first()
        self._known_files = len(self.sequence.files)
        return file

    def directory_for(self, offset: int) -> str:
        """See StoreLog."""
        return self.sequence.directory

    # -- syncs --------------------------------------------------------------------------------------------------------

    def begin_sync(self) -> int:
        """See StoreLog."""
        self._syncing = self._ledger.sync_began(instead_of=self._syncing)
        return self.written_offset

    def end_sync(self, target: int) -> int:
        """See StoreLog. The rules count what is on disk with SYNC_FLUSH."""
        mark, self._syncing = self._syncing, None
        assert mark is not None
        self._ledger.sync_ended(mark)
        if self.on_synced is not None:
            self.on_synced()
        return target if mark.is_whole else self._ledger.end_of(self._ledger.synced_index)

    def sync_failed(self) -> None:
        """See StoreLog. A member that cannot sync does not lead."""
        self._ledger.broke()

    # -- scanning -----------------------------------------------------------------------------------------------------

    def scan_start(self, offset: int) -> int:
        """See StoreLog."""
        if not self._ledger.begins_at(offset) and self._ledger.begins_at(offset - ENTRY_HEADER_BYTES):
            return offset - ENTRY_HEADER_BYTES
        return offset

    def is_filler(self, head: bytes, room: int) -> bool:
        """See StoreLog: the blank of a data file."""
        return head[:4] == _BLANK and room == int.from_bytes(head[4:8], "big")


def _refuse(ticket: object, write: Callable[[int], None]) -> int:
    return codes.LEADER_NOT_READY


_REASONS: Final = {
    codes.NOT_LEADER: "this broker does not lead its group",
    codes.LEADER_NOT_READY: "this broker is about to lead its group",
    codes.LEADER_TRANSFERRING: "this broker hands over the leadership of its group",
    codes.LEADER_PENDING_FULL: "too many messages wait for a quorum of the group",
    codes.DISK_FULL: "the disk takes no entries",
}
