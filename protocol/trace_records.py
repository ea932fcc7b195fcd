"""Records of the message trace: who sent and who consumed each message (RocketMQ 4.9.7: TraceDataEncoder).

    Pub \\1 time \\1 region \\1 group \\1 topic \\1 message id \\1 tags \\1 keys \\1 store host \\1 body bytes
        \\1 cost ms \\1 message type \\1 offset message id \\1 success \\2
    SubBefore \\1 time \\1 region \\1 group \\1 request id \\1 message id \\1 retries \\1 keys \\2
    SubAfter \\1 request id \\1 message id \\1 cost ms \\1 success \\1 keys \\1 context code \\1 time \\1 group \\2
    EndTransaction \\1 time \\1 region \\1 group \\1 topic \\1 message id \\1 tags \\1 keys \\1 store host
        \\1 message type \\1 transaction id \\1 state \\1 from check \\2

Absent texts are written as "null", as Java does.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

PUB = "Pub"
SUB_BEFORE = "SubBefore"
SUB_AFTER = "SubAfter"
END_TRANSACTION = "EndTransaction"
DEFAULT_REGION = "DefaultRegion"
FIELD_END = "\x01"
LINE_END = "\x02"
MAX_BODY_BYTES = 128_000

NORMAL_MESSAGE, HALF_MESSAGE, COMMITTED_MESSAGE, DELAYED_MESSAGE = 0, 1, 2, 3
"""Message types (RocketMQ: MessageType ordinals)."""
CONTEXT_CODES = {"SUCCESS": 0, "TIME_OUT": 1, "EXCEPTION": 2, "RETURNNULL": 3, "FAILED": 4}
"""How a consumer's call ended (RocketMQ: ConsumeReturnType ordinals)."""


class TraceLine:
    """One event: its text, and the keys by which it can be found (message id and keys)."""

    __slots__ = ("keys", "text")

    def __init__(self, text: str, keys: tuple[str, ...]) -> None:
        self.text = text
        self.keys = keys


def line(*fields: object) -> str:
    """Return fields as TraceDataEncoder writes them."""
    return FIELD_END.join(_text(field) for field in fields) + LINE_END


def _text(field: object) -> str:
    if field is None:
        return "null"
    if isinstance(field, bool):
        return "true" if field else "false"
    return str(field)


def keys_of(message_id: str | None, keys: str | None) -> tuple[str, ...]:
    """Return what a message is found by: its id, and its keys, which blanks separate."""
    return tuple(key for key in (message_id, *(keys or "").split(" ")) if key)


def pack(lines: Iterable[TraceLine]) -> list[tuple[str, set[str]]]:
    """Return lines as bodies of at most MAX_BODY_BYTES, with the keys of each."""
    packed: list[tuple[str, set[str]]] = []
    texts: list[str] = []
    keys: set[str] = set()
    size_bytes = 0
    for one in lines:
        length = len(one.text.encode())
        if texts and size_bytes + length > MAX_BODY_BYTES:
            packed.append(("".join(texts), keys))
            texts = []
            keys = set()
            size_bytes = 0
        texts.append(one.text)
        keys.update(one.keys)
        size_bytes += length
    if texts:
        packed.append(("".join(texts), keys))
    return packed


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
    for text in body.decode("utf-8", "replace").split(LINE_END):
        cells = text.split(FIELD_END)
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
