"""A secret in a file of its own."""

from __future__ import annotations

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triomq.protocol.secret_text import MAX_SECRET_BYTES, SecretError, secret_of

FILE = stat.S_IFREG


@pytest.mark.parametrize(
    ("data", "secret"), [(b"a b", "a b"), (b" a\n", " a"), (b"a\r\n", "a"), ("päß\n".encode(), "päß")]
)
def test_one_newline_at_the_end_does_not_count(data: bytes, secret: str) -> None:
    assert secret_of(data, FILE | 0o600) == secret


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440, 0o660])
def test_the_owner_and_its_group_may_read_it(mode: int) -> None:
    assert secret_of(b"x", FILE | mode) == "x"


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o666, 0o777])
def test_others_may_not(mode: int) -> None:
    with pytest.raises(SecretError, match=f"permissions are {mode:04o}, .*chmod 600"):
        secret_of(b"x", FILE | mode)


@pytest.mark.parametrize(
    ("data", "mode", "reason"),
    [
        (b"", FILE, "empty"),
        (b"\n", FILE, "empty"),
        (b"a\nb", FILE, "more than one line"),
        (b"a\n\n", FILE, "more than one line"),
        (b"a\0b", FILE, "more than one line"),
        (b"\xff", FILE, "not UTF-8"),
        (b"x" * (MAX_SECRET_BYTES + 1), FILE, "longer than 65536 bytes"),
        (b"x", stat.S_IFIFO, "not a regular file"),
        (b"x", stat.S_IFDIR, "not a regular file"),
    ],
)
def test_what_is_not_a_secret_is_refused(data: bytes, mode: int, reason: str) -> None:
    with pytest.raises(SecretError, match=reason):
        secret_of(data, mode | 0o600)


@given(st.binary(max_size=200), st.integers(0, 0o777))
def test_no_error_quotes_the_file(data: bytes, mode: int) -> None:
    try:
        assert secret_of(data, FILE | mode).encode() in data
    except SecretError as error:
        assert len(data) < 8 or repr(data)[2:-1] not in str(error)
