"""The frames of the replication port: a slave's reports, a master's transfers (RocketMQ: HAConnection, HAClient).

    slave -> master    report      physical offset 8                     the slave has the log up to there
    master -> slave    transfer    physical offset 8 | size 4 | bytes    log bytes from there; size 0: a heartbeat

All numbers are signed and big endian. There is no handshake, no version, and no checksum beyond those of the records. A
transfer carries log bytes as they lie in the files, padding included, so it may begin and end anywhere, but it never
crosses a file. Nothing here reads, writes or waits.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from triomq.protocol.errors import FrameError

REPORT: Final = struct.Struct(">q")
HEADER: Final = struct.Struct(">qi")
MAX_SENT_BYTES: Final = 4 * 1024 * 1024 - HEADER.size
"""RocketMQ's slaves read into a buffer of 4 MiB, into which a transfer must fit."""
MAX_TAKEN_BYTES: Final = 64 * 1024 * 1024
"""A larger size is invalid. Transfers are processed in pieces as they arrive, so a large one costs no memory."""
_MAX_PLACES: Final = 512
"""The kernel reads into at most 1024 places at once."""


class Transfer(NamedTuple):
    """Log bytes at `physical_offset`; without log bytes it is a heartbeat."""

    physical_offset: int
    data: bytes


def encode_report(physical_offset: int) -> bytes:
    """Return a slave's report."""
    return REPORT.pack(physical_offset)


def encode_heartbeat(physical_offset: int) -> bytes:
    """Return a heartbeat: a transfer without log bytes."""
    return HEADER.pack(physical_offset, 0)


def encode_transfers(physical_offset: int, data: bytes, batch_bytes: int) -> bytes:
    """Return `data`, from one log file, as consecutive transfers of at most `batch_bytes` each."""
    step = max(1, min(batch_bytes, MAX_SENT_BYTES))
    if len(data) <= step:
        return HEADER.pack(physical_offset, len(data)) + data
    view = memoryview(data)
    parts: list[bytes | memoryview] = []
    for at in range(0, len(data), step):
        part = view[at : at + step]
        parts.append(HEADER.pack(physical_offset + at, len(part)))
        parts.append(part)
    return b"".join(parts)


class TransferBuffer:
    """A buffer for consecutive transfers. Log bytes are read directly into its `places`, and the headers are written
    once the number of bytes is known. So the bytes are copied once on their way from the file to the socket."""

    def __init__(self, batch_bytes: int, log_bytes: int) -> None:
        """Make room for transfers of at most `batch_bytes` each, together at most `log_bytes`."""
        self.batch_bytes = batch_bytes
        self._step = max(1, min(batch_bytes, log_bytes, MAX_SENT_BYTES))
        self._bytes = memoryview(bytearray(min(log_bytes // self._step, _MAX_PLACES) * (HEADER.size + self._step)))
        begins = range(HEADER.size, len(self._bytes), HEADER.size + self._step)
        self.places = [self._bytes[begin : begin + self._step] for begin in begins]

    def transfers(self, physical_offset: int, log_bytes: int) -> memoryview:
        """Return the frames for bytes that were read from one log file; valid until the next read."""
        end = 0
        for at in range(0, log_bytes, self._step):
            size = min(self._step, log_bytes - at)
            HEADER.pack_into(self._bytes, end, physical_offset + at, size)
            end += HEADER.size + size
        return self._bytes[:end]


class ReportDecoder:
    """Master's side: bytes in, reported offsets out."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes | bytearray) -> list[int]:
        """Return the reports that are now complete, oldest first. Raises FrameError for a negative one."""
        data = self._rest + data
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        reports = [offset for (offset,) in REPORT.iter_unpack(data[:whole])]
        if reports and min(reports) < 0:
            raise FrameError(f"a slave reported the offset {min(reports)}")
        return reports


class TransferDecoder:
    """Slave's side: bytes in, transfers out. A transfer that continues the previous one without a gap is joined to it.
    The part of a transfer that has arrived is returned at once, so only an incomplete header is kept."""

    def __init__(self) -> None:
        self._head = b""
        self._physical_offset = 0
        self._left = 0

    def feed(self, data: bytes | bytearray) -> list[Transfer]:
        """Return the transfers in these bytes, in order. Raises FrameError for an invalid size."""
        found: list[Transfer] = []
        run: list[memoryview] = []
        run_begin = run_end = -1
        view = memoryview(data)
        at = 0
        while at < len(data):
            if self._left == 0:
                at = self._take_head(data, at)
                if len(self._head) < HEADER.size:
                    break
                self._open()
                if self._left == 0:
                    _close_run(found, run, run_begin)
                    run_end = -1
                    found.append(Transfer(self._physical_offset, b""))
                continue
            part = view[at : at + self._left]
            if self._physical_offset != run_end:
                _close_run(found, run, run_begin)
                run_begin = self._physical_offset
            run.append(part)
            at += len(part)
            self._left -= len(part)
            self._physical_offset += len(part)
            run_end = self._physical_offset
        _close_run(found, run, run_begin)
        return found

    def _take_head(self, data: bytes | bytearray, at: int) -> int:
        """Complete the header from `data`; return where its bytes end."""
        missing = HEADER.size - len(self._head)
        self._head += data[at : at + missing]
        return at + missing

    def _open(self) -> None:
        """Open the transfer whose header is now complete; its log bytes follow."""
        self._physical_offset, self._left = HEADER.unpack(self._head)
        self._head = b""
        if not 0 <= self._left <= MAX_TAKEN_BYTES or self._physical_offset < 0:
            raise FrameError(
                f"a transfer of {self._left} bytes at {self._physical_offset}: the peer on the HA port is not a master"
            )


def _close_run(found: list[Transfer], run: list[memoryview], begin: int) -> None:
    if run:
        found.append(Transfer(begin, bytes(run[0]) if len(run) == 1 else b"".join(run)))
        run.clear()
