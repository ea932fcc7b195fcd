"""queryCq: the entries of a consume queue as they are on the broker's disk."""

from __future__ import annotations

from triomq.admin import bodies
from triomq.admin.java_text import plain, pretty_json
from triomq.admin.routes import any_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.admin.run import Run

LINE = "=" * 38


def query_cq(run: Run) -> None:
    topic = run.get("t")
    address = run.get("b") or any_address(run.session.route(topic)["brokerDatas"][0])
    fields = {
        "topic": topic,
        "queueId": run.number("q", 0),
        "index": run.number("i", 0),
        "count": run.number("c", 10),
        "consumerGroup": run.get("g") or None,
    }
    body = bodies.loads(run.session.call(address, 321, fields).body)
    if body.get("subscriptionData"):
        run.out.line("Subscription data: ")
        run.out.line(pretty_json(_subscription(body["subscriptionData"])))
        run.out.line(LINE)
    if body.get("filterData") is not None:
        run.out.line("Filter data: ")
        run.out.line(body["filterData"])
        run.out.line(LINE)
    run.out.line("Queue data: ")
    run.out.line(f"max: {body['maxQueueIndex']}, min: {body['minQueueIndex']}")
    run.out.line(LINE)
    for index, entry in enumerate(body.get("queueData") or [], fields["index"] or 0):  # type: ignore[arg-type]
        run.out.line(f"idx: {index}")
        run.out.line(_entry_text(entry))
        run.out.line(LINE)
    run.out.item(**body)


def _subscription(data: dict[str, Any]) -> dict[str, Any]:
    """Sort members by name; keep the sets on one line."""
    return {key: tuple(value) if key in ("codeSet", "tagsSet") else value for key, value in sorted(data.items())}


def _entry_text(entry: dict[str, Any]) -> str:
    """Return the text of ConsumeQueueData.toString."""
    texts = [f"{name}='{plain(entry.get(name))}'" for name in ("extendDataJson", "bitMap")]
    return (
        f"ConsumeQueueData{{physicOffset={entry['physicOffset']}, physicSize={entry['physicSize']}, "
        f"tagsCode={entry['tagsCode']}, {', '.join(texts)}, eval={plain(entry.get('eval', False))}, "
        f"msg='{plain(entry.get('msg'))}'}}"
    )
