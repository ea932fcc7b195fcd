"""Records of message traces, as clients of different versions write them."""

from __future__ import annotations

import pytest

from triomq.admin.commands.traces import traces_of
from triomq.protocol.address import HostPort
from triomq.protocol.message import MessageExt

CONSUMED = ["SubAfter", "request", "M1", "7", "true", "keys", "0", "1700000000000", "G"]
SENT = ["Pub", "1700000000000", "region", "P", "T", "M1", "tags", "keys", "store", "5", "3", "0", "O1", "true", "c"]


def found(*records: list[str]) -> list[tuple[str, str, int, int]]:
    message = MessageExt("RMQ_SYS_TRACE_TOPIC", "\x02".join("\x01".join(cells) for cells in records).encode())
    message.born_host = HostPort("10.0.0.1", 4711)
    traces = traces_of(message, "M1")
    assert {trace.client for trace in traces} <= {"10.0.0.1"}
    return [(trace.kind, trace.group, trace.time_ms, trace.cost_ms) for trace in traces]


@pytest.mark.parametrize("fields", [7, 8, 9, 10])
def test_a_record_of_a_consumption_has_time_and_group_since_it_has_nine_fields(fields: int) -> None:
    group, moment = ("G", 1_700_000_000_000) if fields >= 9 else ("null", 0)
    assert found([*CONSUMED, "more"][:fields]) == [("SubAfter", group, moment, 7)]


@pytest.mark.parametrize("fields", [13, 14, 15])
def test_a_record_of_a_send_has_the_offset_id_before_its_result_since_it_has_fourteen_fields(fields: int) -> None:
    cells = [*SENT[:12], "true"] if fields == 13 else SENT[:fields]
    assert found(cells) == [("Pub", "P", 1_700_000_000_000, 3)]


def test_records_of_other_messages_and_incomplete_ones_are_skipped() -> None:
    other = [*CONSUMED[:2], "M2", *CONSUMED[3:]]
    assert (
        len(found(other, CONSUMED, CONSUMED[:4], [*SENT[:1], "soon", *SENT[2:]], SENT[:12], ["SubBefore"], [""])) == 1
    )
