"""JSON headers that only a hostile peer sends."""

from __future__ import annotations

import pytest

from triomq.protocol.errors import FrameError
from triomq.protocol.json_header import read_json_header


@pytest.mark.parametrize(
    "header",
    [b'{"code":10,"extFields":' + b'{"a":' * 100_000, b"[" * 100_000, b'{"x":' + b"[" * 100_000],
    ids=["ext-fields", "array", "unknown-member"],
)
def test_endless_nesting_is_a_frame_error(header: bytes) -> None:
    with pytest.raises(FrameError, match="the JSON header cannot be read"):
        read_json_header(header)
