"""fastjson's dialect: what is accepted, what is written, and what is refused."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triomq.protocol.bodies import fastjson_reader
from triomq.protocol.bodies.fastjson import dumps, dumps_pretty, dumps_standard, loads, loads_lenient
from triomq.protocol.bodies.fastjson_writer import double_text, java_set_order
from triomq.protocol.errors import BodyError
from triomq.protocol.message_queue import MessageQueue

QUEUE = MessageQueue("T", "b-a", 0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"a",1:"b"}', {0: "a", 1: "b"}),
        ('{"0":"a"}', {"0": "a"}),
        ("{-1:0}", {-1: 0}),
        ('{{"brokerName":"b-a","queueId":0,"topic":"T"}:5}', {QUEUE: 5}),
        ('{{"x":1}:5}', {frozenset({("x", 1)}): 5}),
        ('{{"brokerName":"b-a","queueId":"0","topic":"T"}:5}', None),
        ("{a:'x\\'y', b :5L, c:[1,2,], d:1.5F}", {"a": "x'y", "b": 5, "c": [1, 2], "d": 1.5}),
        ("[1e3, .5, -0.25, NaN, undefined, null, true, false]", [1000.0, 0.5, -0.25, None, None, None, True, False]),
        ("/* c */ {// d\n'a':1}", {"a": 1}),
        ("'\\x41\\u0042\\101'", None),
        ("'\\x41\\u0042\\1'", "AB\x01"),
        ("{'a':'\\ud83d\\ude00\\ud83d'}", {"a": "\U0001f600\ufffd"}),
        ('\ufeff{"a":1}', {"a": 1}),
        ("{}", {}),
        ("[]", []),
    ],
)
def test_fastjsons_dialect_is_read(text: str, value: Any) -> None:
    if value is None:
        loads(text.encode())  # accepted, with an unspecified value
    else:
        assert loads(text.encode()) == value
        assert loads_lenient(text.encode()) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":{"x":1},"b":{"$ref":"$.a"}}', {"a": {"x": 1}, "b": {"x": 1}}),
        ('{"a":[{"x":1}],"b":[{"$ref":"$.a[0]"}]}', {"a": [{"x": 1}], "b": [{"x": 1}]}),
        ('{"a":{"1.2@x":[5]},"b":{"$ref":"$.a.1\\\\.2\\\\@x"}}', {"a": {"1.2@x": [5]}, "b": [5]}),
        ('{"a":{7:[5]},"b":{"$ref":"$.a.7"},"c":{"$ref":"$.b"}}', {"a": {7: [5]}, "b": [5], "c": [5]}),
        ('{"a":{"k":[5]},"b":{"$ref":"$[\\"a\\"][\'k\']"}}', {"a": {"k": [5]}, "b": [5]}),
        ('{"a":{"$ref":"$.b"},"b":1}', {"a": 1, "b": 1}),
        ('{"$ref":5}', {"$ref": 5}),
    ],
)
def test_references_within_a_document_are_resolved(text: str, value: Any) -> None:
    assert loads(text.encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"a":{"$ref":"$"}}',
        '{"a":{"$ref":".."}}',
        '{"a":{"b":{"$ref":"$.a"}}}',
        '[{"$ref":"$[1]"},{"$ref":"$[0]"}]',
        '{"a":[{"$ref":"$.b"}],"b":[{"$ref":"$.a"}]}',
        '{"a":{"$ref":"$.nothing"}}',
        '{"a":{"$ref":"a"}}',
        '{"a":{"$ref":"$a"}}',
    ],
)
def test_references_that_lead_nowhere(text: str) -> None:
    with pytest.raises(BodyError, match="reference"):
        loads(text.encode())


def test_references_cannot_explode() -> None:
    def level(number: int) -> str:
        return f'"l{number}":[' + ",".join([f'{{"$ref":"$.l{number + 1}"}}'] * 10) + "]"

    levels = ",".join(level(number) for number in range(8))
    with pytest.raises(BodyError, match="expand"):
        loads(f'{{{levels},"l8":["$ref"]}}'.encode())


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "character 0"),
        ("{", "character 1"),
        ('{"a":', "character 5"),
        ('{"a":1', "character 6"),
        ('{"a" 1}', "character 5"),
        ('{"a":1}x', "character 7"),
        ("[1 2]", "character 3"),
        ('"abc', "character 4"),
        ('"\\q"', "character 2"),
        ('"\\u12g4"', "character 2"),
        ("[1x]", "character 1"),
        ("[tru]", "character 1"),
        ("{0x10:1}", "character 1"),
        ("{a:1e400}", "beyond the range of doubles at character 8"),
        ("{0:" + "9" * 50 + "}", "character 3"),
    ],
)
def test_refusals_name_the_place(text: str, place: str) -> None:
    with pytest.raises(BodyError, match=place):
        loads(text.encode())


@pytest.mark.parametrize("start", ["[", '{"a":', "{0:", "{{", "{["])
def test_nesting_is_bounded(start: str) -> None:
    with pytest.raises(BodyError, match="nested deeper"):
        loads(start.encode() * 100_000)


def test_bytes_that_are_not_utf8_are_refused_with_their_place() -> None:
    with pytest.raises(BodyError, match="byte 6"):
        loads(b'{"a":"\xff"}')


@given(st.binary())
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (loads, loads_lenient):
        with contextlib.suppress(BodyError):
            read(data)


@given(st.text("{}[]:,\"'\\0123456789.eE+-truefalsn$ef./* \tLx", max_size=60))
def test_any_json_like_text_is_read_or_refused(text: str) -> None:
    for read in (loads, loads_lenient):
        with contextlib.suppress(BodyError):
            read(text.encode())


texts = st.text().filter(lambda text: text != "$ref")
numbers = st.integers(-(2**63), 2**63 - 1)
queues = st.builds(MessageQueue, texts, texts, st.integers(-(2**31), 2**31 - 1))
scalars = texts | numbers | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    scalars | st.none(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(texts, inner)
        | st.dictionaries(numbers, inner)
        | st.dictionaries(queues, inner)
    ),
    max_leaves=30,
)


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


@given(values)
def test_what_is_written_reads_back(value: Any) -> None:
    expected = without_nulls(value)
    assert loads(dumps(value)) == expected
    assert loads_lenient(dumps(value)) == expected
    assert loads(dumps_pretty(value)) == expected


@given(st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(texts | numbers, inner), max_leaves=30))
def test_standard_text_is_standard_json(value: Any) -> None:
    def text_keys(item: Any) -> Any:
        if isinstance(item, dict):
            return {str(key): text_keys(member) for key, member in item.items()}
        return [text_keys(part) for part in item] if isinstance(item, list) else item

    written = dumps_standard(value)
    assert written.isascii()
    assert json.loads(written) == text_keys(value)


@given(st.text())
def test_texts_have_no_raw_control_characters(text: str) -> None:
    written = dumps(text).decode()
    assert json.loads(written) == text
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029]", written)


def test_texts_are_escaped_as_fastjson_does() -> None:
    assert dumps('a"b\\c/d') == b'"a\\"b\\\\c/d"'
    assert dumps("\x01\x02\b\t\n\f\r\x1f\x7f\u2028") == b'"\\u0001\\u0002\\b\\t\\n\\f\\r\\u001F\\u007F\\u2028"'
    assert dumps("ä体\U0001f600") == '"ä体\U0001f600"'.encode()
    assert dumps_standard("ä\U0001f600") == b'"\\u00E4\\uD83D\\uDE00"'


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (0.17, "0.17"),
        (0.016666666666666666, "0.016666666666666666"),
        (0.001, "0.001"),
        (0.00099, "9.9E-4"),
        (1e-5, "1.0E-5"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (1e10, "1.0E10"),
        (-1.5e300, "-1.5E300"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("nan"), "null"),
        (float("inf"), "null"),
    ],
)
def test_double_text(number: float, text: str) -> None:
    assert double_text(number) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_double_text_reads_back(number: float) -> None:
    text = double_text(number)
    assert float(text) == number
    assert re.fullmatch(r"-?(\d+\.\d+|[1-9]\.\d+E-?\d+)", text)


def test_sets_come_in_java_order() -> None:
    assert java_set_order({"TagB", "TagA"}) == ["TagA", "TagB"]
    assert java_set_order({2598920, 2598919}) == [2598919, 2598920]
    assert dumps(frozenset({QUEUE})) == b'[{"brokerName":"b-a","queueId":0,"topic":"T"}]'


def test_the_pretty_form_has_fastjsons_tabs_and_line_ends() -> None:
    value = {"offsetTable": {"%RETRY%G@G": {0: 1}, "T@G": {0: 5, 1: 7}}, "e": {}, "bits": [1, 2], "l": ["a", {"b": 1}]}
    assert dumps_pretty(value).decode() == (
        '{\n\t"offsetTable":{\n\t\t"%RETRY%G@G":{0:1\n\t\t},\n\t\t"T@G":{0:5,1:7\n\t\t}\n\t},\n\t"e":{},\n'
        '\t"bits":[1,2],\n\t"l":[\n\t\t"a",\n\t\t{\n\t\t\t"b":1\n\t\t}\n\t]\n}'
    )


def test_what_has_no_json_form() -> None:
    with pytest.raises(TypeError, match="object"):
        dumps({"a": object()})
    assert dumps(b"\x01\x02") == b'"AQI="'
    assert dumps({"a": None, "b": [None]}) == b'{"b":[null]}'


def test_depth_limit_is_what_the_reader_says() -> None:
    depth = fastjson_reader.MAX_DEPTH
    nested = "[" * depth + "]" * depth
    assert loads_lenient(nested.encode()) == json.loads(nested)
    with pytest.raises(BodyError):
        loads_lenient(f"[{nested}]".encode())
