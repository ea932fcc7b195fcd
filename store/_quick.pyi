# What _quick.c offers: the same as its twins in Python (store.index_file), whose names end with _in_python.
from mmap import mmap

def key_hash(topic: str, key: str, /) -> int: ...
def write_entry(
    slots: mmap | bytearray,
    dirty_pages: bytearray,
    entries: bytearray,
    slot_count: int,
    number: int,
    code: int,
    physical_offset: int,
    seconds: int,
    /,
) -> bool: ...
