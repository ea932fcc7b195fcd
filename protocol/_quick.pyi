# What _quick.c offers: the same as its twins in Python, whose names end with _in_python.
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

R = TypeVar("R")

def read_binary_header(data: bytes, start: int, end: int, /) -> tuple[int, int, int, int, int, bytes] | None: ...
def read_json_header(data: bytes, start: int, end: int, /) -> tuple[int, str, int, int, int, bytes] | None: ...
def read_header(
    entries: bytes,
    record: Callable[..., R],
    attributes: tuple[str, ...],
    names: tuple[bytes, ...],
    kinds: bytes,
    defaults: tuple[Any, ...],
    /,
) -> R | None: ...
def text_to_store(
    text: str, cluster: str, /
) -> tuple[bytes, bool, int, str | None, str | None] | None: ...
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
def string_hash(text: str, start: int = 0, /) -> int: ...
def offset_message_id_bytes(store_host_hex: bytes, physical_offset: int, /) -> bytes: ...
def fill_binary(
    names: tuple[bytes, ...],
    values: Sequence[bytes | int],
    code: int,
    language: int,
    version: int,
    opaque: int,
    flag: int,
    remark: bytes,
    body: bytes,
    /,
) -> bytes: ...
def fill_json(pieces: tuple[bytes, ...], values: Sequence[bytes | int], body: bytes, /) -> bytes: ...
