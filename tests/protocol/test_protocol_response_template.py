"""A response from a template equals, byte for byte, the same response encoded field by field."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triomq.protocol.command import JSON, MSGPACK, ROCKETMQ, RemotingCommand, new_response
from triomq.protocol.frame import decode_frame, encode_frame, encode_with
from triomq.protocol.response_template import ResponseTemplate, TemplatedResponse

CODECS = st.sampled_from([JSON, ROCKETMQ, MSGPACK])
NUMBERS = st.integers(0, 2**63 - 1)


@given(
    CODECS,
    st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8), max_size=3),
    st.lists(NUMBERS, min_size=3, max_size=3),
    st.one_of(st.none(), st.text(max_size=10)),
    st.binary(max_size=20),
    st.integers(0, 2**31 - 1),
)
def test_the_same_bytes(
    codec: int, constants: dict[str, str], numbers: list[int], remark: str | None, body: bytes, opaque: int
) -> None:
    names = ("first", "second", "third value")
    request = RemotingCommand(310, opaque=opaque, serialize_type=codec)
    values = tuple(b"%d" % number for number in numbers)
    template = ResponseTemplate(names, constants)
    answer = TemplatedResponse(template, request, 10, values, remark, body)
    fields = {**constants, **{name: str(number) for name, number in zip(names, numbers, strict=True)}}
    expected = new_response(request, 10, remark, body=body, ext_fields=fields)
    assert encode_frame(answer) == encode_frame(expected)
    size = len(body)
    assert encode_with(answer, size) + body == encode_with(expected, size) + body == encode_frame(expected)
    short = TemplatedResponse(template, request, 10, values)
    assert template.answer(request, 10, values) == (None if codec == MSGPACK else encode_frame(short))
    assert answer.ext_fields == fields


@pytest.mark.parametrize("codec", [JSON, ROCKETMQ])
def test_what_somebody_changes_is_what_leaves(codec: int) -> None:
    request = RemotingCommand(310, opaque=7, serialize_type=codec)
    answer = TemplatedResponse(ResponseTemplate(("id",), {"kind": "x"}), request, 0, (b"12",))
    fields = answer.ext_fields
    assert fields is not None
    fields["more"] = "y"
    assert decode_frame(encode_frame(answer)).ext_fields == {"kind": "x", "id": "12", "more": "y"}
    answer.ext_fields = {"only": "this"}
    assert decode_frame(encode_frame(answer)).ext_fields == {"only": "this"}


@given(st.dictionaries(st.text(min_size=1, max_size=300), st.text(min_size=1, max_size=700), max_size=5))
def test_long_texts_of_any_kind_are_cut_right(fields: dict[str, str]) -> None:
    command = RemotingCommand(10, serialize_type=ROCKETMQ, ext_fields=fields)
    assert decode_frame(encode_frame(command)).ext_fields == (fields or None)


@pytest.mark.parametrize("long_value", ["v" * 127, "v" * 128, "v" * 70_000, "ü" * 64, "é" + "v" * 300])
@pytest.mark.parametrize("other", ["plain", "ключ"])
def test_lengths_that_look_like_letters_do_no_harm(long_value: str, other: str) -> None:
    for fields in ({"a": long_value, other: "1"}, {other: "1", "a": long_value}, {"k" * 200: other, "b": long_value}):
        command = RemotingCommand(10, serialize_type=ROCKETMQ, ext_fields=fields)
        assert decode_frame(encode_frame(command)).ext_fields == fields
