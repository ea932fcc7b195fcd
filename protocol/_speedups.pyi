"""The C functions of protocol/, when they are built; see speedups.py. Parameters are positional only."""

from typing import Any, TypeVar

from triomq.protocol.entries import UsualFrame
from triomq.protocol.stored_properties import Noted

T = TypeVar("T")

SOURCE_CRC: int
MESSAGE_MAGIC: int
FIXED_BYTES: int
BORN_HOST_V6: int
STORE_HOST_V6: int
COMPRESSED: int
MAX_TOPIC_BYTES: int
MAX_PROPERTIES_BYTES: int
JSON: int
ROCKETMQ: int
JAVA: int
MAX_FIELDS: int
MAX_PROPERTIES: int
MAX_VALUES: int

def read_frames(data: bytes, at: int, longest: int, longest_header: int, /) -> tuple[int, list[UsualFrame]]: ...
def read_header(
    entries: bytes,
    record: type[Any] | None,
    columns: tuple[tuple[str, ...], tuple[bytes, ...], bytes, tuple[Any, ...], bytes],
    /,
) -> Any: ...
def read_properties(stored: bytes, wanted: tuple[str, ...], /) -> Noted: ...
def properties_with(stored: bytes, added: dict[str, str], wanted: tuple[str, ...], /) -> tuple[bytes, Noted] | None: ...
def properties_to_store(
    text: str, cluster: str, wanted: tuple[str, ...], /
) -> tuple[bytes, str | None, Noted] | None: ...
def write_record(
    tail: bytearray,
    topic: bytes,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flags: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: bytes,
    crc: int,
    stored_properties: bytes,
    /,
) -> int: ...
def take_messages(
    data: bytes, at: int, kind: type[T], slots: tuple[Any, ...], broker_name: str | None, /
) -> tuple[int, list[T]]: ...
def string_hash(text: str, start: int = 0, /) -> int: ...
def offset_message_id_bytes(store_host_hex: bytes, physical_offset: int, /) -> bytes: ...
def fill_binary(
    names: tuple[bytes, ...],
    values: tuple[bytes | int, ...],
    code: int,
    version: int,
    opaque: int,
    flag: int,
    remark: bytes,
    body: bytes | int,
    /,
) -> bytes: ...
def fill_json(pieces: tuple[bytes, ...], values: tuple[bytes | int, ...], body: bytes | int, /) -> bytes: ...
