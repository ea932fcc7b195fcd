"""The two ids of a message.

offsetMsgId (MessageDecoder.createMessageId): assigned by the broker, locates the record.

    store host address 4 or 16 | port int32 | physical offset int64        as upper-case hex: 32 or 56 characters

UNIQ_KEY (MessageClientIDSetter): assigned by the sender; opaque to brokers and consumers.

    address 4 or 16 | process id int16 | loader hash int32 | ms since the month began int32 | counter int16
"""

from __future__ import annotations

import struct
from datetime import datetime

from triomq.protocol.address import HostPort
from triomq.protocol.errors import ProtocolError


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """Return the offsetMsgId. `store_host` is packed (8 or 20 bytes)."""
    return f"{store_host.hex().upper()}{physical_offset & 0xFFFFFFFFFFFFFFFF:016X}"


def offset_message_id_bytes_reference(store_host_hex: bytes, physical_offset: int) -> bytes:
    """Return the offsetMsgId as ASCII bytes. `store_host_hex` is the packed host as upper-case hex digits."""
    return b"%b%016X" % (store_host_hex, physical_offset & 0xFFFFFFFFFFFFFFFF)


def parse_offset_message_id(text: str) -> tuple[HostPort, int]:
    """Return store host and physical offset. Raise ProtocolError for any other text."""
    try:
        raw = bytes.fromhex(text)
        if len(raw) not in (16, 28) or len(text) != 2 * len(raw):
            raise ValueError
        return HostPort.from_packed(raw[:-8]), int.from_bytes(raw[-8:], "big", signed=True)
    except ValueError:
        raise ProtocolError(f"{text!r} is not an offset message id (32 or 56 hex digits)") from None


def physical_offset_in(made: bytes) -> int:
    """Return the physical offset in an offset message id that `offset_message_id_bytes_reference` has made."""
    return int(made[-16:], 16)


class UniqKeyMaker:
    """Generates the UNIQ_KEYs of one process. Not thread-safe."""

    def __init__(self, host: bytes, process_id: int, loader_hash: int, counter: int = 0) -> None:
        """`host` is a packed address of 4 or 16 bytes, or random bytes if none is known. `loader_hash` tells several
        generators of one process apart."""
        if len(host) not in (4, 16):
            raise ValueError(f"an address has 4 or 16 bytes, not {len(host)}")
        self._prefix = (host + struct.pack(">HI", process_id & 0xFFFF, loader_hash & 0xFFFFFFFF)).hex().upper()
        self._counter = counter
        self._month_start_ms = 0
        self._month_end_ms = 0

    def make(self, now_ms: int) -> str:
        """Return a new id. `now_ms` is the wall clock in ms."""
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._month_start_ms = month_start_ms(now_ms)
            self._month_end_ms = month_start_ms(self._month_start_ms + 32 * 86_400_000)
        self._counter = (self._counter + 1) & 0xFFFF
        return f"{self._prefix}{(now_ms - self._month_start_ms) & 0xFFFFFFFF:08X}{self._counter:04X}"


def month_start_ms(now_ms: int) -> int:
    """Return the first millisecond of the month of `now_ms` in local time."""
    now = datetime.fromtimestamp(now_ms / 1000)
    return int(now.replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp() * 1000)
