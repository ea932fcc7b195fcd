"""Repair of damage in the log: save the bytes under salvage/, and overwrite them with a valid record or cut them off.

Damage to what was synced is overwritten. If it reaches the end of a file, a blank record replaces it. Otherwise a
record of type rollback does, which enters neither queue nor index. Every reader, RocketMQ included, can then scan past
it. What lies behind a hole in the unsynced end of the log is only saved here (`save_tail`); recovery cuts it off.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import structlog

from triomq.protocol import record, stored_properties, sys_flag
from triomq.protocol.message_to_store import MessageToStore, Place
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout, file_name
from triomq.store.log.log_scan import LOST_TOPIC, Damage
from triomq.store.log.salvage import Salvage
from triomq.store.log.store_log import StoreLog

log = structlog.get_logger("triomq.store.recovery")

# Bounds of the saved damaged ranges: their number and their total size.
MAX_SAVED: Final = 1000
MAX_SAVED_TAILS: Final = 16
MAX_SAVED_BYTES: Final = 4 << 30
_SAVE_BYTES: Final = 1 << 20


class DamageRepair:
    """The repair of one store's log."""

    def __init__(self, files: Files, paths: Layout, commit_log: StoreLog) -> None:
        self._files = files
        self._log = commit_log
        self._salvage = Salvage(files, paths, ".bin", max_files=MAX_SAVED, max_bytes=MAX_SAVED_BYTES)
        self._tails = Salvage(files, paths, ".tail", max_files=MAX_SAVED_TAILS, max_bytes=MAX_SAVED_BYTES)

    def take_out(self, damage: Damage) -> None:
        """Save the damaged bytes and overwrite them. Raises OSError."""
        size = damage.end - damage.begin
        file = self._log.sequence.find(damage.begin)
        if file is None:
            return
        at = damage.begin - file.start
        saved = self._save(damage)
        if damage.end == file.end:
            file.clear_from(at)
            file.write(record.encode_blank(size), at)
        elif size > record.FIXED_BYTES + len(LOST_TOPIC):
            file.write(_lost_record(damage, size), at)
        log.error(
            "damaged range of the log removed; the messages after it are kept",
            physical_offset=damage.begin,
            size_bytes=size,
            reason=damage.reason,
            saved_as=saved,
        )

    def save_tail(self, begin: int, reason: str) -> Iterator[None]:
        """Save everything from `begin` to the end of the last file, in steps. Raises OSError.

        The saved file begins at `begin` and has holes where the log has some. One that an interrupted recovery saved is
        kept, since that recovery may have cut a part of the log already.
        """
        end = self._log.sequence.files[-1].end
        size = end - begin
        name = f"{file_name(begin)}-{end}"
        saved = self._tails.path(name)
        if not self._files.exists(saved):
            fd = self._tails.begin(name, size)
            try:
                yield from self._copy(fd, begin, end)
            except BaseException:
                self._tails.give_up(name, fd)
                raise
            self._tails.keep(name, fd)
        log.error(
            "log ends at a hole that a power failure left; what lies behind it was never synced and is removed",
            physical_offset=begin,
            size_bytes=size,
            reason=reason,
            saved_as=saved,
        )

    def _save(self, damage: Damage) -> str:
        """Save the damaged bytes and return the path of the file. Raises OSError.

        The file has holes where the bytes are zeros, as most of a damaged range often is. A file that an interrupted
        recovery saved is kept: that recovery may already have overwritten a part of the range in the log.
        """
        size = damage.end - damage.begin
        name = file_name(damage.begin)
        if self._files.exists(self._salvage.path(name)):
            return self._salvage.path(name)
        fd = self._salvage.begin(name, size)
        try:
            for _ in self._copy(fd, damage.begin, damage.end):
                pass
        except OSError:
            self._salvage.give_up(name, fd)
            raise
        return self._salvage.keep(name, fd)

    def _copy(self, fd: int, begin: int, end: int) -> Iterator[None]:
        """Write this range of the log into a file that begins with it, in steps. Zeros become holes. Raises OSError."""
        for file in self._log.files_between(begin, end):
            at = max(0, begin - file.start)
            stop = min(file.size_bytes, end - file.start)
            while at < stop and 0 <= (at := file.next_data(at)) < stop:
                piece = file.pread(at, min(_SAVE_BYTES, stop - at))
                if piece != bytes(len(piece)):
                    self._files.pwrite(fd, piece, file.start + at - begin)
                at += len(piece)
                yield


def _lost_record(damage: Damage, size: int) -> bytes:
    """Return a record of exactly `size` bytes that enters neither queue nor index."""
    text = damage.reason.encode()[: size - record.FIXED_BYTES - len(LOST_TOPIC)]
    body = text.ljust(size - record.FIXED_BYTES - len(LOST_TOPIC), b"\0")
    data = bytearray()
    # The next message's store time: recovery chooses its first file by the store time of the file's first record.
    time, host = damage.next_timestamp, bytes(8)
    message = MessageToStore(
        LOST_TOPIC.decode(),
        0,
        body,
        stored_properties.NONE,
        born_timestamp=time,
        born_host=host,
        store_host=host,
        sys_flag=sys_flag.TRANSACTION_ROLLBACK,
    )
    place = Place(physical_offset=damage.begin, queue_offset=0, store_timestamp=time)
    record.encode_into(data, LOST_TOPIC, message, place, b"")
    return bytes(data)
