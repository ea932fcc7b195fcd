"""Damage in the middle of the log: its bytes are saved under salvage/, and something walkable takes their place.

That is a blank record where the rest of a file is damaged, otherwise a record of type rollback, which enters neither
queue nor index, so that everybody can walk the log.
"""

from __future__ import annotations

from typing import Final

import structlog

from triomq.protocol import record, sys_flag
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout, file_name
from triomq.store.disk.mapped_file import MappedFile
from triomq.store.log.commit_log import CommitLog
from triomq.store.log.log_scan import LOST_TOPIC, Damage
from triomq.store.log.salvage import Salvage

log = structlog.get_logger("triomq.store.recovery")

# Damaged stretches that are kept aside.
MAX_SAVED: Final = 1000
MAX_SAVED_BYTES: Final = 4 << 30
_SAVE_BYTES: Final = 1 << 20


class DamageRepair:
    """Of one store."""

    def __init__(self, files: Files, paths: Layout, commit_log: CommitLog) -> None:
        self._files = files
        self._log = commit_log
        self._salvage = Salvage(files, paths, ".bin", max_files=MAX_SAVED, max_bytes=MAX_SAVED_BYTES)

    def take_out(self, damage: Damage) -> None:
        """Save the damaged bytes and write over them. Raises OSError."""
        size = damage.end - damage.begin
        file = self._log.sequence.find(damage.begin)
        if file is None:
            return
        at = damage.begin - file.start
        saved = self._save(damage, file)
        if damage.end == file.end:
            file.clear_from(at)
            file.write(record.encode_blank(size), at)
        elif size > record.FIXED_BYTES + len(LOST_TOPIC):
            file.write(_lost_record(damage, size), at)
        log.error(
            "damaged stretch of the log taken out; what is behind it was kept",
            physical_offset=damage.begin, size_bytes=size, reason=damage.reason, saved_as=saved,
        )  # fmt: skip

    def _save(self, damage: Damage, log_file: MappedFile) -> str:
        """Its bytes, in a file that has holes where they are zeros: most of a lost stretch often is. What a run saved
        that did not get further stays: the log may hold only a half of it by now."""
        size = damage.end - damage.begin
        name = file_name(damage.begin)
        if self._files.exists(self._salvage.path(name)):
            return self._salvage.path(name)
        fd = self._salvage.begin(name, size)
        try:
            for at in range(0, size, _SAVE_BYTES):
                piece = log_file.pread(damage.begin - log_file.start + at, min(_SAVE_BYTES, size - at))
                if piece != bytes(len(piece)):
                    self._files.pwrite(fd, piece, at)
        except OSError:
            self._salvage.give_up(name, fd)
            raise
        return self._salvage.keep(name, fd)


def _lost_record(damage: Damage, size: int) -> bytes:
    """A record of exactly `size` bytes that enters neither queue nor index."""
    text = damage.reason.encode()[: size - record.FIXED_BYTES - len(LOST_TOPIC)]
    body = text.ljust(size - record.FIXED_BYTES - len(LOST_TOPIC), b"\0")
    host = bytes(8)
    data = bytearray()
    # The next message's store time: recovery picks the file to begin with by the store time of its first record.
    time = damage.next_timestamp
    flags = sys_flag.TRANSACTION_ROLLBACK
    record.encode_into(
        data, LOST_TOPIC, queue_id=0, flag=0, queue_offset=0, physical_offset=damage.begin, sys_flags=flags,
        born_timestamp=time, born_host=host, store_timestamp=time, store_host=host, reconsume_times=0,
        prepared_transaction_offset=0, body=body, stored_properties=b"",
    )  # fmt: skip
    return bytes(data)
