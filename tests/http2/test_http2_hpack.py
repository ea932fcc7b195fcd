"""Header blocks: against the hpack library, in every form, and blocks that are none."""

from __future__ import annotations

import pytest
from hpack import Decoder, Encoder
from hpack.huffman import HuffmanEncoder
from hpack.huffman_constants import REQUEST_CODES, REQUEST_CODES_LENGTH
from hpack.table import HeaderTable
from hypothesis import given
from hypothesis import strategies as st

from triomq.http2.errors import ErrorCode, HeaderFault
from triomq.http2.hpack import (
    ENTRY_OVERHEAD_BYTES,
    MALFORMED,
    MAX_FIELD_LIST_BYTES,
    STATIC_TABLE,
    TABLE_BYTES,
    Field,
    HeaderDecoder,
    encode_fields,
    encode_number,
)
from triomq.http2.huffman import decode_huffman

names = st.sampled_from([b"x-mq-client-id", b"authorization", b":path", b"grpc-timeout", b"x-a", b"x-b", b"te"])
values = st.binary(max_size=40).map(lambda value: value.hex().encode())
fields = st.lists(st.tuples(names, values), max_size=12)
huffman = HuffmanEncoder(REQUEST_CODES, REQUEST_CODES_LENGTH)


@given(st.lists(st.tuples(fields, st.booleans()), max_size=8))
def test_blocks_of_another_encoder_are_read_in_turn(blocks: list[tuple[list[Field], bool]]) -> None:
    encoder, decoder = Encoder(), HeaderDecoder()
    for block, is_huffman in blocks:
        assert decoder.decode(encoder.encode(block, huffman=is_huffman)) == block


@given(st.lists(st.tuples(fields, st.integers(0, TABLE_BYTES)), max_size=8))
def test_a_table_whose_size_changes_stays_the_same_on_both_sides(blocks: list[tuple[list[Field], int]]) -> None:
    encoder, decoder = Encoder(), HeaderDecoder()
    for block, size in blocks:
        encoder.header_table_size = size
        assert decoder.decode(encoder.encode(block)) == block


@given(fields)
def test_another_decoder_reads_what_is_written(block: list[Field]) -> None:
    decoder = Decoder()
    assert [tuple(field) for field in decoder.decode(encode_fields(block), raw=True)] == block
    assert len(decoder.header_table.dynamic_entries) == 0


def test_the_static_table_is_that_of_the_protocol() -> None:
    assert tuple(HeaderTable.STATIC_TABLE) == STATIC_TABLE


@given(st.binary())
def test_every_text_survives_huffman_s_code(text: bytes) -> None:
    assert decode_huffman(huffman.encode(text)) == text


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",  # the end-of-string symbol
        b"\x1f\xff",  # eight ones of padding and more
        b"\x18",  # a, then zeros
    ],
)
def test_a_huffman_string_that_ends_otherwise_is_refused(data: bytes) -> None:
    with pytest.raises(HeaderFault, match="Huffman"):
        decode_huffman(data)


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # index 0
        b"\xbe",  # the newest field of an empty table
        b"\xff\x80\x80\x80\x80\x80\x01",  # a number without end
        b"\xff",  # half a number
        b"\x40",  # no name
        b"\x40\x03ab",  # half a name
        b"\x40\x01a",  # no value
        b"\x82\x20",  # a size behind a field
        b"\x20\x20\x20",  # three sizes
        b"\x3f\xe2\x1f",  # a table of 4097 bytes
    ],
)
def test_a_block_that_is_none_is_refused(block: bytes) -> None:
    with pytest.raises(HeaderFault) as caught:
        HeaderDecoder().decode(block)
    assert caught.value.code is ErrorCode.COMPRESSION_ERROR


def test_the_longest_table_may_be_asked_for() -> None:
    assert HeaderDecoder().decode(b"\x3f\xe1\x1f\x82") == [(b":method", b"GET")]


def test_a_small_block_that_names_a_long_field_again_and_again_is_refused() -> None:
    value = b"v" * 3000
    block = b"\x40\x01a" + encode_number(len(value), 0x7F, 0) + value
    size = 1 + len(value) + ENTRY_OVERHEAD_BYTES
    times = MAX_FIELD_LIST_BYTES // size
    assert len(HeaderDecoder().decode(block + b"\xbe" * (times - 1))) == times
    with pytest.raises(HeaderFault) as caught:
        HeaderDecoder().decode(block + b"\xbe" * times)
    assert caught.value.code is ErrorCode.ENHANCE_YOUR_CALM


def test_the_table_holds_no_more_than_its_size() -> None:
    decoder = HeaderDecoder()
    for n in range(1000):
        decoder.decode(b"\x40\x01a\x04%04d" % n)
    held = TABLE_BYTES // (5 + ENTRY_OVERHEAD_BYTES)
    assert decoder.decode(encode_number(61 + held, 0x7F, 0x80)) == [(b"a", b"%04d" % (1000 - held))]
    with pytest.raises(HeaderFault, match="has no field"):
        decoder.decode(encode_number(62 + held, 0x7F, 0x80))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (b"Big", b""),
        (b"", b"x"),
        (b"a b", b""),
        (b"a\r", b""),
        (b"a", b"x\ny"),
        (b"a", b"\0"),
        (b"a", b" x"),
        (b"a", b"x\t"),
        (b"a:b", b""),
    ],
)
def test_a_field_that_http_forbids_is_marked_and_takes_its_place_in_the_table(name: bytes, value: bytes) -> None:
    encoder, decoder = Encoder(), HeaderDecoder()
    block: list[Field] = [(b"x-a", b"1"), (name, value), (b"x-b", b"2")]
    for _ in range(2):  # as text, then by their indexes
        found = decoder.decode(encoder.encode(block))
        assert [found[0], found[2]] == [block[0], block[2]]
        assert found[1][0] == MALFORMED and found[1][1]


@given(st.binary(max_size=64))
def test_any_bytes_are_a_block_or_a_fault(block: bytes) -> None:
    try:
        found = HeaderDecoder().decode(block)
    except HeaderFault:
        return
    assert sum(len(name) for name, _ in found) <= MAX_FIELD_LIST_BYTES
