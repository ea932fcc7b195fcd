"""Java arithmetic that stored data depends on.

Tag codes, index slots and queue positions are results of Java's 32-bit arithmetic (String.hashCode, int overflow), so
they are part of the file format.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from triomq.protocol.speedups import accelerated


def to_int32(number: int) -> int:
    """Wrap to a signed 32-bit integer as Java's (int) cast does."""
    number &= 0xFFFFFFFF
    return number - 0x100000000 if number & 0x80000000 else number


def string_hash_reference(text: str, start: int = 0) -> int:
    """Return Java's String.hashCode: signed 32 bits, over UTF-16 units (a surrogate pair counts as two).

    `start` continues from the hash of a prefix: string_hash(a + b) == string_hash(b, string_hash(a)).
    """
    value = start & 0xFFFFFFFF
    if text.isascii():
        for unit in text.encode("ascii"):
            # 31 * value, without the 37-bit product, for which compiled code would have to allocate an object
            value = ((value << 5) - value + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for at in range(0, len(units), 2):
            value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - 0x100000000 if value & 0x80000000 else value


string_hash: Final = accelerated(string_hash_reference)


@lru_cache(maxsize=4096)
def cached_string_hash(text: str) -> int:
    """Return `string_hash(text)` from a cache, for recurring texts: tags, topics."""
    return string_hash(text)
