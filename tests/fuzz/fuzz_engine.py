"""A small fuzzer: it mutates a corpus, keeps inputs that reach new code, and stops after a given time.

The seed decides every mutation, so a run is repeatable; how far it gets depends on the machine.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable

MAX_INPUT_BYTES = 4096
MAX_CORPUS_INPUTS = 2000
_INTERESTING = [0, 1, 2, 0x1F, 0x20, 0x22, 0x2C, 0x30, 0x5C, 0x7B, 0x7D, 0x7E, 0x7F, 0x80, 0xFF]


class Mutator:
    """Makes new inputs from those of a corpus. `words` are typical pieces of such inputs."""

    def __init__(self, seed: str, words: Iterable[bytes] = ()) -> None:
        self._random = random.Random(seed)
        self._words = list(words)

    def mutate(self, corpus: list[bytes]) -> bytes:
        """Apply one to five changes to an input of the corpus; the result has at most MAX_INPUT_BYTES."""
        data = bytearray(self._random.choice(corpus))
        for _ in range(self._random.choice((1, 1, 1, 2, 3, 5))):
            self._change(data, corpus)
        return bytes(data[:MAX_INPUT_BYTES])

    def _change(self, data: bytearray, corpus: list[bytes]) -> None:
        at = self._random.randint(0, len(data))
        end = min(len(data), at + self._random.choice((1, 1, 2, 4, 16, 64)))
        kind = self._random.randrange(7)
        if kind == 0:
            data[at:end] = b""
        elif kind == 1:
            data[at:at] = bytes(data[at:end]) * self._random.choice((1, 2, 8))
        elif kind == 2 and at < len(data):
            data[at] ^= 1 << self._random.randrange(8)
        elif kind == 3 and at < len(data):
            data[at] = self._random.choice(_INTERESTING)
        elif kind == 4 and at < len(data):
            data[at] = (data[at] + self._random.choice((-1, 1))) & 0xFF
        elif kind == 5 and self._words:
            word = self._random.choice(self._words)
            data[at : at + self._random.choice((0, len(word)))] = word
        else:
            other = self._random.choice(corpus)
            start = self._random.randint(0, len(other))
            data[at:end] = other[start : start + self._random.choice((1, 4, 16, 256))]


class Coverage:
    """The code that inputs have reached so far. `hits`: one byte per basic block, set when it runs, cleared here."""

    def __init__(self, hits: bytearray | memoryview) -> None:
        self._hits = hits
        self._reached = 0
        self._empty = bytes(len(hits))

    def grew(self) -> bool:
        """Return whether code has run since the last call that had never run before."""
        now = int.from_bytes(self._hits, "little")
        self._hits[:] = self._empty
        is_new = now | self._reached != self._reached
        self._reached |= now
        return is_new

    def clear(self) -> None:
        """Forget what ran since the last call, such as at the start of a process."""
        self._hits[:] = self._empty

    @property
    def blocks(self) -> int:
        return self._reached.bit_count()


def fuzz(
    target: Callable[[bytes], None],
    corpus: list[bytes],
    mutator: Mutator,
    coverage: Coverage,
    until: float,
    remember: Callable[[bytes], None],
) -> int:
    """Run `target` on the corpus and on mutations of it until the monotonic clock says `until`. Inputs that reach new
    code join `corpus`. `remember` sees each input before it runs. Return the number of inputs."""
    count = 0
    for data in list(corpus):
        remember(data)
        target(data)
        count += 1
    coverage.grew()
    while time.monotonic() < until:
        data = mutator.mutate(corpus)
        remember(data)
        target(data)
        count += 1
        if coverage.grew() and len(corpus) < MAX_CORPUS_INPUTS:
            corpus.append(data)
    return count


def only_new(target: Callable[[bytes], None], inputs: Iterable[bytes], coverage: Coverage) -> list[bytes]:
    """Return those inputs that reach code which none before them reaches."""
    found = []
    for data in inputs:
        coverage.clear()
        target(data)
        if coverage.grew():
            found.append(data)
    return found
