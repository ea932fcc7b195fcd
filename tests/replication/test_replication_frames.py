"""The bytes of the replication port: compared with recordings of the real brokers, whole, in pieces and damaged."""

from __future__ import annotations

import os
from typing import Any

import pytest
from golden_data import golden_lines
from hypothesis import given
from hypothesis import strategies as st

from triomq.broker.replication.frames import (
    HEADER,
    ReportDecoder,
    Transfer,
    TransferBuffer,
    TransferDecoder,
    encode_heartbeat,
    encode_report,
    encode_transfers,
)
from triomq.protocol.errors import FrameError


@pytest.fixture(scope="session")
def units() -> list[dict[str, Any]]:
    return [unit for unit in golden_lines("ha", "units") if "hex" in unit]


def joined(transfers: list[Transfer]) -> list[Transfer]:
    """Join consecutive pieces into one."""
    whole: list[Transfer] = []
    for offset, data in transfers:
        if whole and data and whole[-1].data and whole[-1].physical_offset + len(whole[-1].data) == offset:
            whole[-1] = Transfer(whole[-1].physical_offset, whole[-1].data + data)
        else:
            whole.append(Transfer(offset, data))
    return whole


def test_recorded_units_are_read_and_written_alike(units: list[dict[str, Any]]) -> None:
    kinds = set()
    for unit in units:
        data = bytes.fromhex(unit["hex"])
        kinds.add(unit["unit"])
        if unit["unit"] == "slave report":
            assert ReportDecoder().feed(data) == [unit["fields"]["slave_offset"]]
            assert encode_report(unit["fields"]["slave_offset"]) == data
            continue
        offset, size = unit["fields"]["phys_offset"], unit["fields"]["body_size"]
        assert TransferDecoder().feed(data) == [Transfer(offset, data[12:])]
        assert len(data) == 12 + size
        written = encode_transfers(offset, data[12:], 32768) if size else encode_heartbeat(offset)
        assert written == data
    assert kinds == {"slave report", "transfer", "heartbeat"}


@pytest.mark.parametrize("size", [1, 7, 11, 13, 1000])
def test_a_recorded_conversation_may_come_in_any_pieces(units: list[dict[str, Any]], size: int) -> None:
    for sender in ("master", "slave"):
        said = b"".join(bytes.fromhex(unit["hex"]) for unit in units if unit["from"] == sender)
        pieces = [said[at : at + size] for at in range(0, len(said), size)]
        if sender == "master":
            decoder = TransferDecoder()
            found = [transfer for piece in pieces for transfer in decoder.feed(piece)]
            assert joined(found) == joined(TransferDecoder().feed(said))
        else:
            reports = ReportDecoder()
            assert [report for piece in pieces for report in reports.feed(piece)] == ReportDecoder().feed(said)


@given(st.binary(min_size=1, max_size=5000), st.integers(0, 1 << 60), st.integers(1, 3000), st.integers(1, 700))
def test_any_bytes_come_back(data: bytes, offset: int, batch_bytes: int, piece_bytes: int) -> None:
    said = encode_heartbeat(offset) + encode_transfers(offset, data, batch_bytes) + encode_heartbeat(offset + len(data))
    decoder = TransferDecoder()
    found = [t for at in range(0, len(said), piece_bytes) for t in decoder.feed(said[at : at + piece_bytes])]
    assert joined(found) == [Transfer(offset, b""), Transfer(offset, data), Transfer(offset + len(data), b"")]
    assert len(said) == len(data) + 12 * (2 + -(-len(data) // batch_bytes))


@pytest.mark.parametrize(("offset", "size"), [(0, -1), (-1, 5), (5, 1 << 30), (-(1 << 63), 0)])
def test_what_is_no_transfer_is_told(offset: int, size: int) -> None:
    with pytest.raises(FrameError, match="not a master"):
        TransferDecoder().feed(HEADER.pack(offset, size))


def test_a_negative_report_is_none() -> None:
    with pytest.raises(FrameError, match="-1"):
        ReportDecoder().feed(encode_report(5) + encode_report(-1))


@given(st.binary(max_size=3000), st.integers(1, 4000), st.integers(1, 3000), st.integers(0, 1 << 40))
def test_what_is_read_into_its_place_is_sent_as_if_it_had_been_copied_there(
    data: bytes, batch_bytes: int, log_bytes: int, offset: int
) -> None:
    buffer = TransferBuffer(batch_bytes, log_bytes)
    for _ in range(2):  # it is used again
        left = data
        for place in buffer.places:
            place[: len(left)] = left[: len(place)]
            left = left[len(place) :]
        taken = data[: len(data) - len(left)]
        step = min(batch_bytes, log_bytes)
        assert buffer.transfers(offset, len(taken)) == (encode_transfers(offset, taken, step) if taken else b"")


def test_a_buffer_has_no_more_places_than_the_kernel_fills_at_once() -> None:
    assert 1 <= len(TransferBuffer(1, 128 * 1024).places) <= os.sysconf("SC_IOV_MAX")
    assert [len(place) for place in TransferBuffer(32 * 1024, 128 * 1024).places] == [32 * 1024] * 4
    assert [len(place) for place in TransferBuffer(1 << 22, 128 * 1024).places] == [128 * 1024]
