# What _quick.c offers: the same as its twins in store.index_file and store.consume_queue, whose names end with
# _in_python.
from mmap import mmap

def key_hash(topic: str, key: str, /) -> int: ...
def write_keys(
    slots: mmap | bytearray,
    dirty_pages: bytearray,
    entries: bytearray,
    slot_count: int,
    number: int,
    room: int,
    topic: str,
    uniq_key: str | None,
    keys: str | None,
    physical_offset: int,
    seconds: int,
    /,
) -> int: ...
def add_queue_entry(buffer: bytearray, physical_offset: int, size_bytes: int, tags_code: int, /) -> None: ...
