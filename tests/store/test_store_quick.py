"""The index's functions in C do what their twins in Python do."""

from __future__ import annotations

import struct
import sys
from types import ModuleType

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from quick_twins import quick

from protocol.java import string_hash
from store import index_file

any_text = st.text(st.characters(exclude_categories=[]), max_size=40)


@pytest.fixture(scope="module")
def c() -> ModuleType:
    return quick("store")


@given(any_text, any_text)
@example("", "\U0001f600" * 20)
def test_key_hash(c: ModuleType, topic: str, key: str) -> None:
    assert c.key_hash(topic, key) == index_file.key_hash_in_python(topic, key)


def test_a_hash_without_an_absolute_value_is_0(c: ModuleType) -> None:
    rest = (2**31 - 31**5 * string_hash("t#")) % 2**32
    key = ""
    for place in (31**4, 31**3, 31**2, 31, 1):
        key += chr(rest // place)
        rest %= place
    assert c.key_hash("t", key) == index_file.key_hash_in_python("t", key) == 0


@given(
    st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), st.integers(0, 2**31 - 1)), max_size=20),
    st.integers(1, 8),
    st.binary(min_size=80, max_size=80),
)
def test_write_entry(c: ModuleType, entries: list[tuple[int, int, int]], slot_count: int, garbage: bytes) -> None:
    files = [(bytearray(garbage), bytearray(1), bytearray()) for _ in range(2)]
    for number, (code, offset, seconds) in enumerate(entries, 1):
        answers = [
            function(*file, slot_count, number, code, offset, seconds)
            for function, file in zip((c.write_entry, index_file.write_entry_in_python), files, strict=True)
        ]
        assert answers[0] is answers[1]
        assert files[0] == files[1]


def test_what_lies_outside_is_refused(c: ModuleType) -> None:
    slots, pages, entries = bytearray(44), bytearray(1), bytearray()
    watched = [slots, pages, entries]
    before = [sys.getrefcount(each) for each in watched]
    wrong = [(2, 1, IndexError), (0, 1, IndexError), (1, -1, IndexError), (1, 2**31, struct.error)]
    for slot_count, code, error in wrong:
        with pytest.raises(error):
            c.write_entry(slots, pages, entries, slot_count, 1, code, 0, 0)
    with pytest.raises(BufferError):
        c.write_entry(bytes(44), pages, entries, 1, 1, 0, 0, 0)
    with pytest.raises(TypeError):
        c.write_entry(slots, b"", entries, 1, 1, 0, 0, 0)
    assert not entries
    assert slots == bytearray(44)
    slots += b"not held"
    assert [sys.getrefcount(each) for each in watched] == before
