"""Tables in JSON whose keys are MessageQueues, as either reader of fastjson's dialect returns them."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def queue_items(table: dict[Any, Any]) -> list[tuple[tuple[str, str, int], Any]]:
    """Return ((topic, broker name, queue id), value) of a map whose keys are MessageQueues. Raises BodyError."""
    found = []
    for key, value in table.items():
        if isinstance(key, str):
            key = _decoded(key)
        if isinstance(key, dict):
            found.append(((key["topic"], key["brokerName"], int(key["queueId"])), value))
        else:
            found.append(((key.topic, key.broker_name, key.queue_id), value))
    return found


def _decoded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        from triomq.protocol.bodies.fastjson_reader import loads

        return loads(text.encode())
