"""The bloom filter of SQL92 groups: which bits of an ext unit's bit map belong to a group (RocketMQ: BloomFilter).

At dispatch every filter that matches a message sets its bits in the bit map stored beside the consume queue entry. A
pull whose bits are not all set need not read the message. For a false positive rate of f percent and n groups:

    k = ceil(log(f/100) / log(0.5))           bits for each group
    m = ceil(n * log2(100/f) * log2(e))       length of the map, rounded up to whole bytes

The k positions of the text "group#topic" come from the first 64 bits of its MurmurHash3 (x64, 128 bits, seed 0): with
its low and high half as signed h1 and h2, position i is (h1 + i*h2) in 32 bit arithmetic, inverted when negative,
modulo m. Bit p is in byte p/8 under the mask 1 << (p mod 8).
"""

from __future__ import annotations

from math import ceil, e, log, log2

from triomq.protocol.bodies.consumer_filter import BloomFilterData
from triomq.protocol.java import to_int32

_MASK = (1 << 64) - 1
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


class BloomFilter:
    """The layout of the bit maps of one broker."""

    def __init__(self, error_percent: int, group_count: int) -> None:
        if not 0 < error_percent < 100 or group_count < 1:
            raise ValueError(f"a bloom filter needs groups and 1..99 % errors, not {group_count} and {error_percent}")
        self.bits_per_group = ceil(log(error_percent / 100) / log(0.5))
        bits = ceil(group_count * log2(100 / error_percent) * log2(e))
        self.bit_count = (bits + 7) // 8 * 8

    @property
    def size_bytes(self) -> int:
        """Return the number of bytes of a bit map."""
        return self.bit_count // 8

    def positions(self, group: str, topic: str) -> BloomFilterData:
        """Return the bits that stand for the group on the topic."""
        hashed = murmur3_64(f"{group}#{topic}".encode())
        low = to_int32(hashed)
        high = to_int32(hashed >> 32)
        places = []
        for number in range(1, self.bits_per_group + 1):
            place = to_int32(low + number * high)
            places.append((~place if place < 0 else place) % self.bit_count)
        return BloomFilterData(bit_num=self.bit_count, bit_pos=places)

    def fits(self, data: BloomFilterData | None) -> bool:
        """Return True for positions computed with this layout."""
        return data is not None and data.bit_num == self.bit_count and len(data.bit_pos) == self.bits_per_group


def set_bits(bit_map: bytearray, data: BloomFilterData) -> None:
    """Set a group's bits in a bit map."""
    for place in data.bit_pos:
        bit_map[place >> 3] |= 1 << (place & 7)


def has_bits(bit_map: bytes, data: BloomFilterData) -> bool:
    """Return False if the group's bits are certainly not all set in the bit map."""
    return all(bit_map[place >> 3] & 1 << (place & 7) for place in data.bit_pos)


def murmur3_64(data: bytes) -> int:
    """Return the first 64 bits of MurmurHash3 x64 128 with seed 0, as an unsigned little-endian number."""
    h1 = h2 = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        h1 ^= _mix_k1(int.from_bytes(data[at : at + 8], "little"))
        h1 = (_rotate(h1, 27) + h2 & _MASK) * 5 + 0x52DCE729 & _MASK
        h2 ^= _mix_k2(int.from_bytes(data[at + 8 : at + 16], "little"))
        h2 = (_rotate(h2, 31) + h1 & _MASK) * 5 + 0x38495AB5 & _MASK
    rest = data[whole:]
    if len(rest) > 8:
        h2 ^= _mix_k2(int.from_bytes(rest[8:], "little"))
    if rest:
        h1 ^= _mix_k1(int.from_bytes(rest[:8], "little"))
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    return _final_mix(h1) + _final_mix(h2) & _MASK


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _mix_k1(k1: int) -> int:
    return _rotate(k1 * _C1 & _MASK, 31) * _C2 & _MASK


def _mix_k2(k2: int) -> int:
    return _rotate(k2 * _C2 & _MASK, 33) * _C1 & _MASK


def _final_mix(value: int) -> int:
    value ^= value >> 33
    value = value * 0xFF51AFD7ED558CCD & _MASK
    value ^= value >> 33
    value = value * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
