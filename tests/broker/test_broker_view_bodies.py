"""How the dashboard shows a body: text, JSON or hex, and never more than its bounds."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triomq.broker.views.bodies import (
    MOST_BODY_BYTES,
    MOST_HEX_BYTES,
    MOST_JSON_CHARACTERS,
    MOST_JSON_DEPTH,
    hex_rows,
    indented,
    line_of,
    plain_begin,
    shown_body,
)
from triomq.broker.views.forms import broker_refusals
from triomq.dashboard.actions import ActionRefused
from triomq.protocol import compression, sys_flag
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import BodyError, RequestRefused

PACKED = sys_flag.COMPRESSED | sys_flag.COMPRESSION_ZLIB


def shown(body: bytes, flags: int = 0, form: str = "") -> dict[str, Any]:
    steps = shown_body(body, flags, form)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: dict[str, Any] = end.value
            return found


def pretty(text: str) -> str | None:
    steps = indented(text)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: str | None = end.value
            return found


def test_json_has_indents_and_stays_what_it_is() -> None:
    text = '{"a":1.50,"a":[ ],"b" : [1e999, "x, {\\"y\\": []}"], "c":{}}'
    lines = ["{", '  "a": 1.50,', '  "a": [],']
    lines += ['  "b": [', "    1e999,", '    "x, {\\"y\\": []}"', "  ],", '  "c": {}', "}"]
    assert pretty(text) == "\n".join(lines)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), VALUES, max_size=5), st.booleans())
def test_json_with_indents_has_the_same_value(value: dict[str, Any], is_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    found = pretty(text)
    if found is None:
        assert text.count("{") + text.count("[") > MOST_JSON_DEPTH
    else:
        assert json.loads(found) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "{",
        "{'a': 1}",
        "[" * 100_000,
        "[" * (MOST_JSON_DEPTH + 1) + "]" * (MOST_JSON_DEPTH + 1),
        "[" + "1," * MOST_JSON_CHARACTERS + "1]",
        "[" + "9" * 5000 + "]",
    ],
)
def test_what_is_not_json_or_too_much_is_shown_as_text(text: str) -> None:
    assert pretty(text) is None


def test_the_deepest_and_longest_json_is_made_in_steps() -> None:
    count = sum(1 for _ in indented("[" + "1," * (MOST_JSON_CHARACTERS // 2 - 2) + "1]"))
    assert count > 10
    assert pretty("[" * MOST_JSON_DEPTH + "]" * MOST_JSON_DEPTH) is not None


@pytest.mark.parametrize(
    ("body", "form", "forms"),
    [
        (b"", "text", ["text", "hex"]),
        (b"plain \xc3\xa9\n", "text", ["text", "hex"]),
        (b'{"a": 1}', "json", ["text", "json", "hex"]),
        (b"\xff\xfe", "hex", ["hex"]),
        (b"a\0b", "hex", ["hex"]),
        ("abc\u202etxt.exe".encode(), "hex", ["hex"]),
    ],
)
def test_a_body_is_shown_in_the_form_that_suits_it(body: bytes, form: str, forms: list[str]) -> None:
    found = shown(body)
    assert (found["form"], found["forms"], found["is_whole"]) == (form, forms, True)
    assert shown(body, form="nonsense")["form"] == form
    assert shown(body, form="hex")["text"] == hex_rows(body)


def test_a_long_body_is_shown_in_part_and_says_so() -> None:
    body = b"x" * (MOST_BODY_BYTES + 1)
    found = shown(body)
    assert (found["form"], len(found["text"]), found["is_whole"]) == ("text", MOST_BODY_BYTES, False)
    as_hex = shown(body[: MOST_HEX_BYTES + 1], form="hex")
    assert (as_hex["text"].count("\n") + 1, as_hex["is_whole"]) == (MOST_HEX_BYTES // 16, False)
    cut = b"x" * (MOST_BODY_BYTES - 1) + "é".encode() + b"x"
    assert shown(cut)["text"] == "x" * (MOST_BODY_BYTES - 1)


def test_hex_has_offset_bytes_and_characters() -> None:
    assert hex_rows(b"\0<b>" + b"a" * 13).split("\n") == [
        "00000000  00 3c 62 3e 61 61 61 61 61 61 61 61 61 61 61 61  .<b>aaaaaaaaaaaa",
        "00000010  61                                               a",
    ]


def test_a_list_shows_a_body_in_one_line() -> None:
    assert line_of(b"a\n  b", 0, 10) == "a b"
    assert line_of(b"0123456789abc", 0, 10) == "0123456789 …"
    assert line_of(b"\xff" * 4, 0, 10) == "ff ff ff …"
    assert line_of(b"\xff", 0, 10) == "ff"
    assert line_of(b"not packed", PACKED, 10).startswith("(damaged ZLIB body")


@pytest.mark.parametrize("kind", [sys_flag.COMPRESSION_ZLIB, sys_flag.COMPRESSION_LZ4, sys_flag.COMPRESSION_ZSTD])
def test_a_packed_body_is_unpacked_as_far_as_it_is_shown(kind: int) -> None:
    packed = compression.compress(b"x" * 50_000_000, kind)
    begin, is_whole = plain_begin(packed, sys_flag.COMPRESSED | kind, 100)
    assert (begin, is_whole) == (b"x" * 100, False)
    assert plain_begin(compression.compress(b"y", kind), sys_flag.COMPRESSED | kind, 100) == (b"y", True)
    with pytest.raises(BodyError, match="damaged"):
        compression.decompress_begin(b"nonsense" * 4, kind, 100)


def test_a_damaged_packed_body_is_shown_as_it_is_stored() -> None:
    found = shown(b"not packed", PACKED)
    assert (found["form"], found["text"]) == ("hex", hex_rows(b"not packed"))
    assert "damaged ZLIB" in found["error"]
    assert shown(zlib.compress(b"[1]"), PACKED)["text"] == "[\n  1\n]"
    with pytest.raises(BodyError, match="unknown compression type"):
        compression.decompress_begin(b"x", 0x400, 10)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (BodyError("damaged ZLIB body"), "damaged ZLIB body"),
        (RequestRefused(ResponseCode.SYSTEM_ERROR, "too long"), "too long"),
        (RequestRefused(ResponseCode.SYSTEM_ERROR, ""), "the broker refuses this"),
    ],
)
def test_what_the_broker_would_refuse_an_action_refuses_with_its_words(error: Exception, text: str) -> None:
    with pytest.raises(ActionRefused) as caught, broker_refusals():
        raise error
    assert str(caught.value) == text
