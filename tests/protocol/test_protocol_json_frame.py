"""The codec of programs without an event loop reads and writes what the other one does, and refuses the rest."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triomq.protocol import command, frame, json_frame
from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.errors import FrameError
from triomq.protocol.frame import decode_frame, encode_frame
from triomq.protocol.json_frame import Request, decode_response, encode_request

FIELDS = st.dictionaries(st.text(min_size=1), st.text(), max_size=5)


@given(
    code=st.integers(0, 65535),
    opaque=st.integers(0, 2**31 - 1),
    fields=FIELDS,
    body=st.binary(max_size=200),
    is_oneway=st.booleans(),
)
def test_a_request_is_the_frame_that_the_brokers_decoder_reads(
    code: int, opaque: int, fields: dict[str, str], body: bytes, is_oneway: bool
) -> None:
    read = decode_frame(encode_request(Request(code, fields, body, is_oneway=is_oneway), opaque))
    assert (read.code, read.opaque, read.body, read.version) == (code, opaque, body, command.VERSION)
    assert dict(read.ext_fields or {}) == fields
    assert (read.is_response, read.is_oneway) == (False, is_oneway)


@given(
    request=st.builds(new_request, st.integers(0, 65535)),
    code=st.integers(0, 65535),
    remark=st.none() | st.text(),
    fields=st.none() | FIELDS,
    body=st.binary(max_size=200),
)
def test_a_response_is_read_as_the_broker_wrote_it(
    request: RemotingCommand, code: int, remark: str | None, fields: dict[str, str] | None, body: bytes
) -> None:
    request.opaque = 7
    read = decode_response(encode_frame(new_response(request, code, remark, ext_fields=fields, body=body))[4:])
    assert (read.code, read.opaque, read.remark, read.body) == (code, 7, remark or "", body)
    assert read.fields == (fields or {})
    assert read.is_response
    assert not decode_response(encode_frame(request)[4:]).is_response


def test_both_codecs_have_the_same_limit() -> None:
    assert json_frame.MAX_FRAME_BYTES == frame.MAX_FRAME_BYTES


@given(
    st.binary(max_size=300)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["code", "flag", "remark", "extFields"]), inner)
        ),
    ).map(lambda header: framed(json.dumps(header)))
)
def test_bytes_that_are_no_response_raise_frame_error_and_nothing_else(data: bytes) -> None:
    with suppress(FrameError):
        response = decode_response(data)
        assert isinstance(response.remark, str)
        assert isinstance(response.fields, dict)


def framed(header: str) -> bytes:
    return len(header.encode()).to_bytes(4, "big") + header.encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x01\x00\x00\x02{}",
        b"\x00\x00\x00\x09{}",
        framed("[]"),
        framed("{}"),
        framed('{"code":"0"}'),
        framed('{"code":0,"remark":[1]}'),
        framed('{"code":0,"extFields":["a"]}'),
        framed('{"code":0,"opaque":"1"}'),
        framed("[" * 100_000),
    ],
)
def test_a_response_needs_a_json_header_with_a_code(data: bytes) -> None:
    with pytest.raises(FrameError):
        decode_response(data)
