"""queryMsgTraceById: who sent a message, and who consumed it."""

from __future__ import annotations

from triomq.admin.commands.messages import messages_of_key
from triomq.admin.java_text import date_time, hash_ordered, iso_time, string_hash
from triomq.protocol.trace_records import records_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triomq.admin.run import Run
    from triomq.protocol.message import MessageExt

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
LAYOUT = "%-10s %-20s %-20s %-20s %-10s %-10s"


class Trace:
    """One record: Pub (sent) or SubAfter (consumed)."""

    __slots__ = ("client", "cost_ms", "group", "kind", "status", "time_ms")

    def __init__(self, kind: str, group: str, client: str, time_ms: int, cost_ms: int, is_good: bool) -> None:
        self.kind = kind
        self.group = group
        self.client = client
        self.time_ms = time_ms
        self.cost_ms = cost_ms
        self.status = "success" if is_good else "failed"

    def line(self) -> str:
        shown = "Pub" if self.kind == "Pub" else "Sub"
        return LAYOUT % (shown, self.group, self.client, date_time(self.time_ms), f"{self.cost_ms}ms", self.status)


def query_msg_trace_by_id(run: Run) -> None:
    msg_id = run.get("i")
    messages = messages_of_key(run, run.get("t") or TRACE_TOPIC, msg_id, 64)
    traces = [trace for message in messages for trace in traces_of(message, msg_id)]
    consumed: dict[str, list[Trace]] = {}
    for trace in traces:
        run.out.item(
            msgId=msg_id,
            type=trace.kind,
            group=trace.group,
            clientHost=trace.client,
            timestamp=trace.time_ms,
            time=iso_time(trace.time_ms),
            costTime=trace.cost_ms,
            status=trace.status,
        )
        if trace.kind == "Pub":
            run.out.header(LAYOUT % ("#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"))
            run.out.line(trace.line() + "\n")
        else:
            consumed.setdefault(trace.group, []).append(trace)
    for group in hash_ordered(consumed, [string_hash(group) for group in consumed]):
        run.out.header(LAYOUT % ("#Type", "#ConsumerGroup", "#ClientHost", "#ConsumerTime", "#CostTimes", "#Status"))
        run.out.line("\n".join([trace.line() for trace in consumed[group]]) + "\n")


def traces_of(message: MessageExt, msg_id: str) -> list[Trace]:
    """Return the records of one message in a message of the trace topic."""
    client = str(message.born_host).rpartition(":")[0].strip("[]")
    return [
        Trace(record.kind, record.group, client, record.time_ms, record.cost_ms, record.is_good)
        for record in records_of(bytes(message.body), msg_id)
    ]
