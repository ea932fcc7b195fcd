"""The two ids of a message.

offsetMsgId (MessageDecoder.createMessageId): made by the broker, says where the record lies.

    store host address 4 or 16 | port int32 | physical offset int64        as upper-case hex: 32 or 56 characters

UNIQ_KEY (MessageClientIDSetter): made by the sender, an opaque string to everybody else.

    address 4 or 16 | process id int16 | loader hash int32 | ms since the month began int32 | counter int16
"""

from __future__ import annotations

import struct
from datetime import datetime
from typing import Final, NamedTuple

from triomq.protocol.address import HostPort
from triomq.protocol.errors import ProtocolError

_TAIL_BYTES: Final = 12


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """`store_host` is packed (8 or 20 bytes)."""
    return f"{store_host.hex().upper()}{physical_offset & 0xFFFFFFFFFFFFFFFF:016X}"


def offset_message_id_bytes_reference(store_host_hex: bytes, physical_offset: int) -> bytes:
    """The same in bytes; `store_host_hex` is the packed host as upper-case hex digits."""
    return b"%b%016X" % (store_host_hex, physical_offset & 0xFFFFFFFFFFFFFFFF)


def parse_offset_message_id(text: str) -> tuple[HostPort, int]:
    """Store host and physical offset. Raises ProtocolError when the text is no such id."""
    try:
        raw = bytes.fromhex(text)
        if len(raw) not in (16, 28) or len(text) != 2 * len(raw):
            raise ValueError
        return HostPort.from_packed(raw[:-8]), int.from_bytes(raw[-8:], "big", signed=True)
    except ValueError:
        raise ProtocolError(f"{text!r} is not an offset message id (32 or 56 hex digits)") from None


class UniqKey(NamedTuple):
    """Parts of a UNIQ_KEY; `time_in_month_ms` counts from the start of the sender's month, local time."""

    ip: str
    process_id: int
    loader_hash: int
    time_in_month_ms: int
    counter: int

    def nearly_born_ms(self, now_ms: int) -> int:
        """When it was made, as MessageClientIDSetter.getNearlyTimeFromID guesses: this month, or the last one when that
        would be in the future."""
        start = month_start_ms(now_ms)
        if start + self.time_in_month_ms >= now_ms:
            start = month_start_ms(start - 1)
        return start + self.time_in_month_ms


def parse_uniq_key(text: str) -> UniqKey:
    """Raises ProtocolError when the text was not made by a RocketMQ client."""
    try:
        raw = bytes.fromhex(text)
        if len(raw) not in (16, 28) or len(text) != 2 * len(raw):
            raise ValueError
    except ValueError:
        raise ProtocolError(f"{text!r} is not a message id of a client (32 or 56 hex digits)") from None
    process_id, loader_hash, time_in_month_ms, counter = struct.unpack(">HiiH", raw[-_TAIL_BYTES:])
    ip = HostPort.from_packed(raw[:-_TAIL_BYTES] + bytes(4)).ip
    return UniqKey(ip, process_id, loader_hash, time_in_month_ms, counter)


class UniqKeyMaker:
    """Makes UNIQ_KEYs for one process. Not shared between threads."""

    __slots__ = ("_counter", "_month_end_ms", "_month_start_ms", "_prefix")

    def __init__(self, host: bytes, process_id: int, loader_hash: int, counter: int = 0) -> None:
        """`host` is a packed address of 4 or 16 bytes (a random one will do where none is known); `loader_hash` tells
        two makers of one process apart."""
        if len(host) not in (4, 16):
            raise ValueError(f"an address has 4 or 16 bytes, not {len(host)}")
        self._prefix = (host + struct.pack(">HI", process_id & 0xFFFF, loader_hash & 0xFFFFFFFF)).hex().upper()
        self._counter = counter
        self._month_start_ms = 0
        self._month_end_ms = 0

    def make(self, now_ms: int) -> str:
        """A new id."""
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._month_start_ms = month_start_ms(now_ms)
            self._month_end_ms = month_start_ms(self._month_start_ms + 32 * 86_400_000)
        self._counter = (self._counter + 1) & 0xFFFF
        return f"{self._prefix}{(now_ms - self._month_start_ms) & 0xFFFFFFFF:08X}{self._counter:04X}"


def month_start_ms(now_ms: int) -> int:
    """The first millisecond of the local month of `now_ms`."""
    now = datetime.fromtimestamp(now_ms / 1000)
    return int(now.replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp() * 1000)
