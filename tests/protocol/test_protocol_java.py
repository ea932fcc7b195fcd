"""Java's arithmetic, and when two messages are equal."""

from __future__ import annotations

import pytest

from triomq.protocol.java import to_int32
from triomq.protocol.message import Message


@pytest.mark.parametrize(
    ("number", "wrapped"),
    [
        (0, 0),
        (2**31 - 1, 2**31 - 1),
        (2**31, -(2**31)),
        (2**32, 0),
        (2**33 + 5, 5),
        (-1, -1),
        (-(2**31) - 1, 2**31 - 1),
    ],
)
def test_a_number_wraps_to_32_bits(number: int, wrapped: int) -> None:
    assert to_int32(number) == wrapped


def test_messages_are_equal_if_they_are_of_one_class_and_hold_the_same() -> None:
    one, same, other = Message("T", b"a", tags="x"), Message("T", b"a", tags="x"), Message("T", b"b", tags="x")
    assert one == same and one != other and one != "T"
