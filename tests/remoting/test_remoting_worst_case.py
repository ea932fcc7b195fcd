"""The model of the worst that N connections can do (benchmarks/worst_case.py): it follows the constants of the code,
and what real connections hold stays below it."""

from __future__ import annotations

import pytest
import trio
from test_remoting_memory import Bench
from test_remoting_waiting import CODE, Link, requests
from trio.testing import MockClock

from benchmarks import worst_case as model
from benchmarks.worst_case import RESPONSE_BYTES, worst_case
from triomq.protocol.command import new_request
from triomq.protocol.frame import MAX_FRAME_BYTES, encode_frame
from triomq.remoting.connection_settings import TIGHT_HIGH_WATER_BYTES
from triomq.remoting.memory import OVERDRAFT_BYTES
from triomq.remoting.poller import RECEIVE_BYTES

MIB = 1 << 20


def test_the_stages_share_the_budget() -> None:
    worst = worst_case(1000, 128 * MIB)
    assert worst.tables == 64 * MIB
    assert worst.frames == 32 * MIB + OVERDRAFT_BYTES
    assert worst.held == 32 * MIB
    assert worst_case(1, 128 * MIB).frames == MAX_FRAME_BYTES, "one connection has one frame"
    without_tables = worst_case(1000, 128 * MIB, table_bytes=0)
    assert without_tables.frames + without_tables.held == 128 * MIB + OVERDRAFT_BYTES


@pytest.mark.parametrize(
    ("name", "stage"),
    [
        ("OVERDRAFT_BYTES", "frames"),
        ("TIGHT_HIGH_WATER_BYTES", "beyond"),
        ("TIGHT_FREE_FRAME_BYTES", "beyond"),
        ("RECEIVE_BYTES", "beyond"),
        ("DEFAULT_HIGH_WATER_BYTES", "turn"),
        ("MAX_FRAME_BYTES", "turn"),
    ],
)
def test_a_bound_that_grows_grows_its_stage(monkeypatch: pytest.MonkeyPatch, name: str, stage: str) -> None:
    before = getattr(worst_case(100, 128 * MIB), stage)
    monkeypatch.setattr(model, name, 2 * getattr(model, name))
    assert getattr(worst_case(100, 128 * MIB), stage) > before


def held_bytes(link: Link) -> int:
    connection = link.connection
    return link.backlog_bytes + connection._decoder.held_bytes + connection._waiting.held_bytes


@pytest.mark.parametrize("connections", [10, 100])
async def test_what_connections_hold_stays_below_the_model(
    nursery: trio.Nursery, autojump_clock: MockClock, connections: int
) -> None:
    """Half of them leave responses unread, the others send as much as they may of long frames."""
    limit_bytes = 8 * MIB
    bench = Bench(nursery, limit_bytes)
    bench.response_bytes = RESPONSE_BYTES
    bench.memory.tables.account("tables").set(2 * MIB)
    links = [bench.connect() for _ in range(connections)]
    frame = encode_frame(new_request(CODE, body=bytes(2 * MIB)))
    peak_bytes = 0
    for link in links[::2]:
        link.stuck = True
        bench.read(link, requests(50))
        peak_bytes = max(peak_bytes, sum(map(held_bytes, links)))
    for begin in range(0, len(frame) - 1, RECEIVE_BYTES):
        piece = frame[begin : min(begin + RECEIVE_BYTES, len(frame) - 1)]
        for link in links[1::2]:
            if link.is_read:
                bench.read(link, piece)
        peak_bytes = max(peak_bytes, sum(map(held_bytes, links)))
    worst = worst_case(connections, limit_bytes, table_bytes=2 * MIB)
    assert bench.memory.is_tight
    assert max(link.backlog_bytes for link in links[-2::-2][:3]) < 2 * RESPONSE_BYTES + TIGHT_HIGH_WATER_BYTES
    assert peak_bytes <= worst.frames + worst.held + worst.beyond + worst.turn
    assert peak_bytes > limit_bytes // 2, "the scenario comes near"
