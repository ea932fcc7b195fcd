"""The Huffman code of HPACK (RFC 7541, appendix B): reading it.

The code is canonical: codes of one length are consecutive numbers in the order of their symbols, and the first code of
a length follows the last shorter one. So the lengths are the whole table. They are here by length: the bytes that have
a code of that length, in order. The end-of-string symbol 256 has thirty bits, all of them ones.

The decoder is a machine that takes four bits at a time. A state is an inner node of the tree of codes. It is made when
the first string arrives.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from triomq.http2.errors import HeaderFault

_EOS: Final = 256
_LONGEST_PADDING: Final = 7
_BY_LENGTH: Final[dict[int, bytes]] = {
    5: b"012aceiost",
    6: b" %-./3456789=A_bdfghlmnpru",
    7: b":BCDEFGHIJKLMNOPQRSTUVWYjkqvwxyz",
    8: b"&*,;XZ",
    10: b'!"()?',
    11: b"'+|",
    12: b"#>",
    13: b"\x00$@[]~",
    14: b"^}",
    15: b"<`{",
    19: bytes.fromhex("5cc3d0"),
    20: bytes.fromhex("808283a2b8c2e0e2"),
    21: bytes.fromhex("99a1a7acb0b1b3d1d8d9e3e5e6"),
    22: bytes.fromhex("8184858688929a9ca0a3a4a9aaadb2b5b9babbbdbec4c6e4e8e9"),
    23: bytes.fromhex("0187898a8b8c8d8f93959697989b9d9ea5a6a8aeafb4b6b7bcbfc5e7ef"),
    24: bytes.fromhex("098e9091949fabced7e1eced"),
    25: bytes.fromhex("c7cfeaeb"),
    26: bytes.fromhex("c0c1c8c9cacdd2d5dadbeef0f2f3ff"),
    27: bytes.fromhex("cbccd3d4d6dddedff1f4f5f6f7f8fafbfcfdfe"),
    28: bytes.fromhex("020304050607080b0c0e0f1011121314151718191a1b1c1d1e1f7fdcf9"),
    30: b"\n\r\x16",
}

_NOTHING: Final = 0
_SYMBOL: Final = 1
_END: Final = 2
"""What four bits complete: nothing, one symbol (the shortest code has five bits), the end-of-string symbol."""


class Machine:
    """Three tables by 16 * state + four bits: 16 * the next state, what the bits complete, and its byte. `may_end`: 16
    * each state in which a string may end."""

    def __init__(self, steps: list[tuple[int, int, bytes]], may_end: frozenset[int]) -> None:
        self.steps = [following for following, _, _ in steps]
        self.kinds = bytes([kind for _, kind, _ in steps])
        self.symbols = [symbol for _, _, symbol in steps]
        self.may_end = may_end


def decode_huffman(data: bytes) -> bytes:
    """Return the text. Raise HeaderFault if the end is not padded with up to seven ones, or the end symbol occurs."""
    machine: Machine = _machine()
    steps, kinds, symbols = machine.steps, machine.kinds, machine.symbols
    state = 0
    found: list[bytes] = []
    for position in range(len(data)):
        byte = data[position]
        place = state + (byte >> 4)
        kind = kinds[place]
        if kind == _SYMBOL:
            found.append(symbols[place])
        elif kind == _END:
            raise HeaderFault("a Huffman string has an end-of-string symbol")
        place = steps[place] + (byte & 15)
        kind = kinds[place]
        if kind == _SYMBOL:
            found.append(symbols[place])
        elif kind == _END:
            raise HeaderFault("a Huffman string has an end-of-string symbol")
        state = steps[place]
    if state not in machine.may_end:
        raise HeaderFault("the end of a Huffman string is not padded with ones")
    return b"".join(found)


@cache
def _machine() -> Machine:
    children: list[list[int]] = [[0, 0]]  # node -> its two children; negative: -1 - symbol
    code = previous = 0
    for length in sorted(_BY_LENGTH):
        code <<= length - previous
        previous = length
        symbols = [*_BY_LENGTH[length], _EOS] if length == max(_BY_LENGTH) else list(_BY_LENGTH[length])
        for symbol in symbols:
            _grow(children, code, length, symbol)
            code += 1
    steps = [_step(children, state, bits) for state in range(len(children)) for bits in range(16)]
    padding, node = [0], 0
    for _ in range(_LONGEST_PADDING):
        node = children[node][1]
        padding.append(node << 4)
    return Machine(steps, frozenset(padding))


def _grow(children: list[list[int]], code: int, length: int, symbol: int) -> None:
    """Add the path of one code to the tree."""
    node = 0
    for place in range(length - 1, 0, -1):
        bit = code >> place & 1
        if not children[node][bit]:
            children.append([0, 0])
            children[node][bit] = len(children) - 1
        node = children[node][bit]
    children[node][code & 1] = -1 - symbol


def _step(children: list[list[int]], state: int, bits: int) -> tuple[int, int, bytes]:
    """Return 16 * the state behind these bits, what they complete, and its byte."""
    node = state
    kind, symbol = _NOTHING, b""
    for place in (3, 2, 1, 0):
        node = children[node][bits >> place & 1]
        if node < 0:
            if node == -1 - _EOS:
                return 0, _END, b""
            kind, symbol = _SYMBOL, bytes([-1 - node])
            node = 0
    return node << 4, kind, symbol
