"""pop show, release: what groups have received one by one and not acknowledged."""

from __future__ import annotations

from triomq.admin import bodies
from triomq.admin.cluster_view import QUERY_IN_FLIGHT, chosen_brokers
from triomq.admin.errors import NotFound, UsageError
from triomq.admin.session import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.admin.run import Run
    from triomq.protocol.json_frame import Response

RELEASE_IN_FLIGHT = 30_002
NOT_SUPPORTED = 3
ALL_QUEUES = -1
COLUMNS = {
    "group": "GROUP",
    "topic": "TOPIC",
    "brokerName": "BROKER",
    "queueId": "QUEUE",
    "inFlight": "IN FLIGHT",
    "ready": "READY",
    "oldestOffset": "OLDEST",
    "oldestAgeMs": "AGE MS",
    "nextOffset": "NEXT",
    "mostAttempts": "ATTEMPTS",
}


def pop_show(run: Run) -> None:
    items: list[dict[str, Any]] = []
    brokers = chosen_brokers(run)
    names = {address: name for name, address in brokers.items()}

    def read(address: str) -> None:
        body = bodies.loads(_asked(run, address, QUERY_IN_FLIGHT, _fields(run)).body)
        items.extend([_item(names[address], queue) for queue in body["queues"]])
        if body["leftOut"]:
            run.failed(f"{address} has {body['leftOut']} queues more: name a group or a topic")

    run.for_each(brokers.values(), read)
    run.out.table(COLUMNS, items)


def _item(broker_name: str, queue: dict[str, Any]) -> dict[str, Any]:
    has_oldest = queue["oldestOffset"] >= 0
    return {
        "group": queue["consumerGroup"],
        "topic": queue["topic"],
        "brokerName": broker_name,
        "queueId": queue["queueId"],
        "inFlight": queue["inFlight"],
        "ready": queue["ready"],
        "oldestOffset": queue["oldestOffset"] if has_oldest else None,
        "oldestAgeMs": queue["oldestAgeMs"] if has_oldest else None,
        "nextOffset": queue["nextOffset"],
        "mostAttempts": queue["mostAttempts"],
    }


def pop_release(run: Run) -> None:
    if run.has("queue") and not run.has("topic"):
        raise UsageError("--queue needs --topic")
    brokers = chosen_brokers(run)
    names = {address: name for name, address in brokers.items()}
    fields = {**_fields(run), "queueId": run.number("queue", ALL_QUEUES)}
    items = []

    def release(address: str) -> None:
        released = int(_asked(run, address, RELEASE_IN_FLIGHT, fields).fields.get("released", 0))
        items.append({"group": run.get("GROUP"), "brokerName": names[address], "released": released})

    run.for_each(brokers.values(), release)
    run.out.table({"group": "GROUP", "brokerName": "BROKER", "released": "RELEASED"}, items)


def _fields(run: Run) -> dict[str, Any]:
    wanted = {"consumerGroup": run.get("GROUP"), "topic": run.get("topic")}
    return {name: value for name, value in wanted.items() if value}


def _asked(run: Run, address: str, code: int, fields: dict[str, Any]) -> Response:
    try:
        return run.session.call(address, code, fields, timeout_seconds=15)
    except Refused as error:
        if error.code != NOT_SUPPORTED:
            raise
        raise NotFound(f"{address} does not tell what is in flight: it is not TrioMQ, or an older one") from None
