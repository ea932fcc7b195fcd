"""The ledger of a group as the log of a store (DLedgerCommitLog).

The physical offset of a message is the position of its entry plus 48: the record is the entry's body. What this member
appends as leader goes to the ledger with one call of `propose`, which asks the rules first; what it takes as follower
comes from the rules directly, and `on_changed` of the ledger moves the written end here. What is committed is set by
`store.writing.quorum.Quorum`. The ladder, down to the disk and back:

    leader                                              follower

    Committing.commit          at the end of a turn     Requests               a push of the leader
      LedgerLog.write_pending                             Member               the rules compare
        GroupMember.propose    `propose`                    Ledger.write       data and index
          Member.propose       may it?                        LedgerLog._changed
            LedgerLog._write                                    Quorum.written
              Ledger.append_records
                LedgerLog._changed  `on_changed`
                  Quorum.written    `on_written`

    then the turn's pushes leave, and when a quorum has answered (with the next push, for a follower):

    GroupMember
      GroupRoles.committed     `Owner`                  the same
        Quorum.committed
          Committing.commit_to from memory to queues      Quorum.run           from the log to queues
                               and index; puts are                             and index
                               answered

What stands in backquotes is a callback: the ledger knows no log, the log no member, and the rules no disk.

A broker that was a plain one before has an older log below the ledger (DLedgerCommitLog's dividedCommitlogOffset):

    plain files: records, filler | ledger files: entries
                                 ^ where the ledger begins: the start of a file

The older log is recovered as a plain one, by the first start as a member. Then a filler ends its last file, and the
first file of the ledger is made behind it; from then on no plain file is written, and all of them count as committed.
Retention deletes them first. `sequence` has the files of both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from triomq.dledger.ledger.entry_format import BLANK_BYTES
from triomq.dledger.ledger.ledger import Ledger
from triomq.dledger.ledger.runs import LONGEST_ENTRY_BYTES
from triomq.dledger.ledger.syncs import SyncMark
from triomq.dledger.wire import codes
from triomq.dledger.wire.bodies import ENTRY_HEADER_BYTES
from triomq.protocol import record
from triomq.store.disk.mapped_file import MappedFile
from triomq.store.errors import LogNotTaken, StoreRefused
from triomq.store.log.commit_log import CommitLog
from triomq.store.log.store_log import StoreLog

Propose = Callable[[object, Callable[[int], None]], int]
"""(ticket, write) -> code: see Member.propose."""

_BLANK: Final = b"\xff\xff\xff\xff"
_NOT_BEGUN: Final = 1 << 62


class LedgerLog(StoreLog):
    """The log over an unopened ledger. `propose` is set by the member of the group before anything is appended."""

    def __init__(self, ledger: Ledger, older: CommitLog | None = None) -> None:
        """`older` is the plain log below the ledger, unopened; it may have no files."""
        super().__init__(ledger.data, ledger.directories, ENTRY_HEADER_BYTES, needs_quorum=True)
        # A leader has no entries that members of RocketMQ cannot take.
        self.longest_record_bytes = min(LONGEST_ENTRY_BYTES, self.file_size_bytes - BLANK_BYTES) - ENTRY_HEADER_BYTES
        self._ledger = ledger
        self._older = older
        self._begin = 0
        """Records before this offset are those of the older log: all of them, if the ledger has not begun."""
        self._known_files = 0
        self._known_last: MappedFile | None = None
        self._syncing: SyncMark | None = None
        self.propose: Propose = _refuse
        self.on_synced: Callable[[], None] | None = None

    def load(self) -> None:
        """See StoreLog. A recovery reads up to what was known to be committed: later entries may be replaced."""
        ledger = self._ledger
        ledger.open()
        if self._older is not None:
            self._load_older(self._older)
        if self._begin != _NOT_BEGUN:
            self.scan_stop = ledger.end_of(ledger.noted_committed)
        self.written_offset = self.next_offset = ledger.end_pos
        self._join()
        ledger.on_changed = self._changed

    def view(self) -> None:
        """Read both logs up to the end of the ledger, whose files a program that only reads has loaded. Raises
        StoreRefused, as `load` does."""
        if self._older is not None:
            self._place_older(self._older)
        self._join()
        self.scan_stop = self._ledger.end_pos if self._begin != _NOT_BEGUN else -1
        last = self.sequence.last
        self.set_end(last.end if last is not None else 0)

    def _load_older(self, older: CommitLog) -> None:
        older.load()
        self._place_older(older)

    def _place_older(self, older: CommitLog) -> None:
        last = older.sequence.last
        if last is None:
            return
        begin = self._ledger.data.first_start
        if begin >= 0 and begin != last.end:
            raise StoreRefused(
                f"{last.path} ends at {last.end}, but the ledger in {self._ledger.data.directory} begins at {begin}: "
                "the older log is not the one that this member began with. Restore that, or move the plain files out "
                f"of {last.directory}: their messages can then no longer be read"
            )
        self._begin = begin if begin >= 0 else _NOT_BEGUN
        self._ledger.ends.must_begin_at = begin

    def _join(self) -> None:
        """Have the files of both logs in `sequence`."""
        data = self._ledger.data
        self._known_files, self._known_last = len(data.files), data.last
        self.sequence = (
            data if self._older is None or not self._older.sequence.files else data.behind(self._older.sequence)
        )

    def recovered(self) -> None:
        """See StoreLog. Ends an older log and begins the ledger behind it. What a crash leaves of that is a plain log,
        which may end with a filler, until the file of the ledger is there; then the plain log is on disk."""
        last = self._older.sequence.last if self._older is not None else None
        if self._begin != _NOT_BEGUN or last is None:
            return
        assert self._older is not None and last.start <= self.committed_offset <= last.end
        if self.committed_offset < last.end:
            last.write(record.encode_blank(last.end - self.committed_offset), self.committed_offset - last.start)
        self._older.sync()
        self._ledger.ends.begin(last.end)
        self._begin = self._ledger.ends.must_begin_at = self.scan_stop = last.end
        self.committed_offset = self.written_offset = self.next_offset = last.end
        self._join()
        self.unsynced_directories.update(file.directory for file in self._ledger.data.files)

    # -- appending ----------------------------------------------------------------------------------------------------

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
        data = self._ledger.data
        if len(data.files) != self._known_files or data.last is not self._known_last:
            self._join()
            self.unsynced_directories.update(file.directory for file in data.files)
        if self.on_written is not None:
            self.on_written()

    # -- ends ---------------------------------------------------------------------------------------------------------

    def set_end(self, offset: int) -> None:
        """See StoreLog. Entries behind the committed end stay."""
        self.committed_offset = offset

    def may_end_at(self, offset: int) -> bool:
        """See StoreLog: an entry or a blank begins there, or the ledger ends there. An older log does not end any more
        when the ledger has begun."""
        if offset < self._begin:
            return self._begin == _NOT_BEGUN and self._older is not None and self._older.may_end_at(offset)
        file = self.sequence.find(offset)
        if offset == self.written_offset or file is None:
            return offset == self.written_offset
        return self._ledger.begins_at(offset) or self.is_filler(file.read(offset - file.start, 8), file.end - offset)

    def cut(self, offset: int) -> None:
        """See StoreLog. Raises StoreRefused if an older log does not reach the ledger that has begun behind it."""
        if offset < self._begin:
            self._cut_older(offset)
        self.set_end(offset)

    def _cut_older(self, offset: int) -> None:
        assert self._older is not None
        if self._begin != _NOT_BEGUN:
            raise StoreRefused(
                f"the older log in {self._older.sequence.directory} is damaged from {offset} on, and the ledger begins "
                f"at {self._begin}: copy its files from another member, which has the same bytes"
            )
        files = self._older.sequence
        file = files.find(offset)
        if file is not None and file.start == offset:  # RocketMQ keeps an empty last file, and begins behind it
            files.truncate(file.end)
            file.clear_from(0)
        else:
            files.truncate(offset)
        self._join()

    def repair_refusal(self, offset: int) -> str | None:
        """See StoreLog. All members have the same bytes, but only those of the ledger come from the leader."""
        if offset < self._begin:
            return None
        return (
            "The members of a group have the same bytes, so this copy is not repaired: remove"
            f" {self._ledger.places} of this member, and the leader fills it again"
        )

    def detach_first(self) -> MappedFile:
        """See StoreLog. The files of an older log go first; behind the last of them the ledger may begin anywhere."""
        if self._older is not None and self._older.sequence.files:
            file = self._older.sequence.detach_first()
            if not self._older.sequence.files:
                self._ledger.ends.must_begin_at = -1
        else:
            file = self._ledger.detach_first()
        self._join()
        return file

    # -- syncs --------------------------------------------------------------------------------------------------------

    def begin_sync(self) -> int:
        """See StoreLog."""
        self._syncing = self._ledger.noting.sync_began(self._ledger.end_index, self._syncing)
        return self.written_offset

    def end_sync(self, target: int) -> int:
        """See StoreLog. The rules count what is on disk with SYNC_FLUSH."""
        mark, self._syncing = self._syncing, None
        assert mark is not None
        self._ledger.noting.sync_ended(mark)
        if self.on_synced is not None:
            self.on_synced()
        return target if mark.is_whole else self._ledger.end_of(self._ledger.synced_index)

    def sync_failed(self) -> None:
        """See StoreLog. A member that cannot sync does not lead."""
        self._ledger.noting.has_failed = True

    # -- scanning -----------------------------------------------------------------------------------------------------

    def scan_start(self, offset: int) -> int:
        """See StoreLog."""
        if not self._ledger.begins_at(offset) and self._ledger.begins_at(offset - ENTRY_HEADER_BYTES):
            return offset - ENTRY_HEADER_BYTES
        return offset

    def header_bytes_at(self, offset: int) -> int:
        """See StoreLog."""
        return self.header_bytes if offset >= self._begin else 0

    def is_filler(self, head: bytes, room: int) -> bool:
        """See StoreLog: the blank of a data file, or the filler of an older log."""
        if head[:4] == _BLANK:
            return room == int.from_bytes(head[4:8], "big")
        return super().is_filler(head, room)


def _refuse(ticket: object, write: Callable[[int], None]) -> int:
    return codes.LEADER_NOT_READY


_REASONS: Final = {
    codes.NOT_LEADER: "this broker does not lead its group",
    codes.LEADER_NOT_READY: "this broker is about to lead its group",
    codes.LEADER_TRANSFERRING: "this broker hands over the leadership of its group",
    codes.LEADER_PENDING_FULL: "too many messages wait for a quorum of the group",
    codes.DISK_FULL: "the disk takes no entries",
}
