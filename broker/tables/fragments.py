"""Fragments: the text of a large table as its file contains it, kept in pieces, so that no change costs a walk over the
table.

Each entry has a text, and a block of `ENTRIES_IN_A_BLOCK` entries has the encoded bytes of theirs. A change makes one
entry and its block stale. `render` brings some of them up to date; it is called in steps, between which other tasks
run. So one step costs the same however large the table is, and the file can be written without joining it.

A full block whose entry is removed takes the next new one, and an empty one is dropped, so there are never more blocks
than the largest table needed. Only the event loop touches the fragments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import islice
from typing import Final, Generic, TypeVar

from triomq.protocol.bodies.fastjson_writer import quote

ENTRIES_IN_A_BLOCK: Final = 64
ENTRIES_IN_A_STEP: Final = 32
"""Entries that one step renders: half a millisecond for those of topics and groups."""
BLOCKS_IN_A_STEP: Final = 64
PATIENT_STEPS: Final = 16
"""While changes come as quickly as they are rendered, steps grow: by one after this number beyond those planned,
so that a file is written at last."""

Key = TypeVar("Key", bound=Hashable)


class _Block(Generic[Key]):
    __slots__ = ("data", "texts")

    def __init__(self) -> None:
        self.texts: dict[Key, str] = {}
        self.data: bytes | None = None


class Fragments(Generic[Key]):
    """`text_of` returns an entry's text as the file contains it, or None for a removed entry. `entries_in_a_step` is
    how many of them may take half a millisecond."""

    def __init__(self, text_of: Callable[[Key], str | None], entries_in_a_step: int = ENTRIES_IN_A_STEP) -> None:
        self._text_of = text_of
        self._entries_in_a_step = entries_in_a_step
        self._stale: dict[Key, None] = {}
        self._blocks: dict[_Block[Key], None] = {}
        self._block_of: dict[Key, _Block[Key]] = {}
        self._stale_blocks: dict[_Block[Key], None] = {}
        self._with_room: dict[_Block[Key], None] = {}
        self._steps = self._planned_steps = 0

    def touch(self, key: Key) -> None:
        """Note that the entry was added, changed or removed."""
        self._stale[key] = None

    def render(self) -> bool:
        """Do a step of the work that `pieces` has to do. Return whether there is more than another step of it."""
        if self._steps == 0:
            self._planned_steps = 1 + len(self._stale) // self._entries_in_a_step
        self._steps += 1
        growth = 1 + max(0, self._steps - self._planned_steps) // PATIENT_STEPS
        if self._stale:
            self._render_entries(growth * self._entries_in_a_step)
        else:
            self._render_blocks(growth * BLOCKS_IN_A_STEP)
        if len(self._stale) > self._entries_in_a_step or len(self._stale_blocks) > BLOCKS_IN_A_STEP:
            return True
        self._steps = 0
        return False

    def pieces(self) -> list[bytes]:
        """Return the encoded entries, with the commas between them: what `render` left is rendered now."""
        self._render_entries(len(self._stale))
        self._render_blocks(len(self._stale_blocks))
        found: list[bytes] = []
        for block in self._blocks:
            if found:
                found.append(b",\n")
            found.append(block.data or b"")
        return found

    def object(self) -> list[bytes]:
        """Return an object with all entries, one level deep."""
        pieces = self.pieces()
        return [b"{\n", *pieces, b"\n\t}"] if pieces else [b"{}"]

    def _render_entries(self, count: int) -> None:
        for key in list(islice(self._stale, count)):
            del self._stale[key]
            text = self._text_of(key)
            block = self._block_of.get(key)
            if text is None:
                if block is not None:
                    self._remove(key, block)
                continue
            if block is None:
                block = self._block_of[key] = self._room()
            block.texts[key] = text
            if len(block.texts) >= ENTRIES_IN_A_BLOCK:
                self._with_room.pop(block, None)
            self._stale_blocks[block] = None

    def _room(self) -> _Block[Key]:
        for block in self._with_room:
            return block
        new = _Block[Key]()
        self._blocks[new] = self._with_room[new] = None
        return new

    def _remove(self, key: Key, block: _Block[Key]) -> None:
        del self._block_of[key], block.texts[key]
        if block.texts:
            self._with_room[block] = self._stale_blocks[block] = None
            return
        del self._blocks[block]
        self._with_room.pop(block, None)
        self._stale_blocks.pop(block, None)

    def _render_blocks(self, count: int) -> None:
        for block in list(islice(self._stale_blocks, count)):
            del self._stale_blocks[block]
            block.data = ",\n".join(block.texts.values()).encode("utf-8", "replace")


def member(key: str, pretty: str) -> str:
    """Return the text of an entry of an object, from that of its value as if it stood alone."""
    return f"\t\t{quote(key)}:" + pretty.replace("\n", "\n\t\t")


def compact(pretty: list[bytes]) -> bytes:
    """Return the compact form of a config file's content, as it is sent. This is safe because a JSON string never holds
    a bare tab or line end."""
    return b"".join(pretty).replace(b"\n", b"").replace(b"\t", b"")
