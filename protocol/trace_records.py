"""Records of the message trace (TraceDataEncoder): fields end with \\x01, records with \\x02."""

from __future__ import annotations

PUB = "Pub"
SUB_AFTER = "SubAfter"


class TraceRecord:
    """One message that was sent (PUB) or consumed (SUB_AFTER); times in ms."""

    __slots__ = ("cost_ms", "group", "is_good", "kind", "time_ms")

    def __init__(self, kind: str, group: str, time_ms: int, cost_ms: int, *, is_good: bool) -> None:
        self.kind = kind
        self.group = group
        self.time_ms = time_ms
        self.cost_ms = cost_ms
        self.is_good = is_good


def records_of(body: bytes, msg_id: str) -> list[TraceRecord]:
    """Return the records of one message in a body. Incomplete ones are left out: the body comes from a client."""
    found = []
    for text in body.decode("utf-8", "replace").split("\x02"):
        cells = text.split("\x01")
        try:
            if cells[0] == PUB and cells[5] == msg_id:
                good = cells[13] if len(cells) >= 14 else cells[12]
                found.append(TraceRecord(PUB, cells[3], int(cells[1]), int(cells[10]), is_good=good == "true"))
            elif cells[0] == SUB_AFTER and cells[2] == msg_id:
                moment, group = (int(cells[7]), cells[8]) if len(cells) >= 9 else (0, "null")
                found.append(TraceRecord(SUB_AFTER, group, moment, int(cells[3]), is_good=cells[4] == "true"))
        except (IndexError, ValueError):
            continue
    return found
