"""Positions: one queue offset per queue, and their JSON form in checkpoints and options.

    {"topic": {"broker-a": {"0": 23, "1": 42}}}

In options -2 stands for the earliest and -1 for the latest offset, as in Spark's Kafka source.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from triomq.protocol.message_queue import MessageQueue
from triomq.spark.errors import OptionError

EARLIEST: Final = -2
LATEST: Final = -1

MAX_QUEUES_SHOWN: Final = 8

Positions = dict[MessageQueue, int]
"""Queue -> queue offset of the next message."""

Range = tuple[MessageQueue, int, int]
"""The offsets [begin, end) of a queue."""


def to_tree(positions: Mapping[MessageQueue, int]) -> dict[str, dict[str, dict[str, int]]]:
    """Return nested plain dicts in a fixed order, ready for json."""
    tree: dict[str, dict[str, dict[str, int]]] = {}
    for queue in sorted(positions):
        tree.setdefault(queue.topic, {}).setdefault(queue.broker_name, {})[str(queue.queue_id)] = positions[queue]
    return tree


def from_tree(tree: Any, what: str = "offsets") -> Positions:
    """The inverse of `to_tree`. `what` names the origin of the tree in the OptionError for one that is malformed."""
    positions: Positions = {}
    for topic, brokers in _members(tree, what):
        for broker, queues in _members(brokers, f"{what}: topic {topic!r}"):
            for queue_id, offset in _members(queues, f"{what}: topic {topic!r}, broker {broker!r}"):
                if type(offset) is not int or not queue_id.isdigit():
                    raise OptionError(
                        f'{what}: {topic}/{broker}: expected "queue id": offset, not {queue_id!r}: {offset!r}'
                    )
                positions[MessageQueue(topic, broker, int(queue_id))] = offset
    return positions


def parse(text: str, option: str) -> Any:
    """Parse the JSON text of an option. Raises OptionError naming it."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"option {option}: not JSON ({error}): {text[:80]!r}") from None


def _members(tree: Any, what: str) -> list[tuple[str, Any]]:
    if not isinstance(tree, dict):
        raise OptionError(f'{what}: expected {{"topic": {{"broker": {{"queue id": offset}}}}}}, found {tree!r}')
    return list(tree.items())


def limited(start: Positions, latest: Positions, max_rows: int) -> Positions:
    """Return `latest`, pulled back so that at most `max_rows` messages (and at least one) follow `start`, shared among
    the queues in proportion to their backlog. Queues that are not in `start` begin at 0."""
    backlog = {queue: max(end - start.get(queue, 0), 0) for queue, end in latest.items()}
    total = sum(backlog.values())
    if total <= max_rows:
        return latest
    shares = {queue: backlog[queue] * max_rows // total for queue in backlog}
    left = max_rows - sum(shares.values())
    for queue in sorted(backlog, key=lambda queue: (shares[queue] - backlog[queue] * max_rows / total, queue)):
        if left <= 0:
            break
        if shares[queue] < backlog[queue]:
            shares[queue] += 1
            left -= 1
    return {queue: start.get(queue, 0) + shares[queue] if backlog[queue] else latest[queue] for queue in latest}


def split(ranges: list[Range], min_parts: int, max_offsets: int | None = None) -> list[Range]:
    """Cut ranges (queue, begin, end) into parts of at most `max_offsets` offsets, and into at least `min_parts`, if
    there are that many messages. The longest ranges are cut most; empty ones are dropped."""
    ranges = [item for item in ranges if item[2] > item[1]]
    if max_offsets is not None:
        ranges = [part for item in ranges for part in _cut(item, -(-(item[2] - item[1]) // max_offsets))]
    total = sum(end - begin for _, begin, end in ranges)
    if len(ranges) >= min_parts or not total:
        return ranges
    return [part for item in ranges for part in _cut(item, -(-(item[2] - item[1]) * min_parts // total))]


def _cut(item: Range, count: int) -> list[Range]:
    """Cut one range into `count` parts of nearly the same length, none of them empty."""
    queue, begin, end = item
    count = min(max(count, 1), end - begin)
    edges = [begin + (end - begin) * number // count for number in range(count + 1)]
    return [(queue, edges[number], edges[number + 1]) for number in range(count)]


def resolve(
    wanted: Mapping[MessageQueue, int] | None,
    queues: list[MessageQueue],
    default: int,
    option: str,
    bound: Callable[[MessageQueue, int], int],
) -> Positions:
    """Return the offsets of `queues` from an option that names all of them; None: it names none, and all have the
    default. `bound(queue, EARLIEST or LATEST)` returns the actual offset. Raises OptionError for a queue that is not
    read, and for one that is read and not named."""
    if wanted is None:
        wanted = {}
    else:
        for queue in wanted:
            if queue not in queues:
                raise OptionError(f"option {option}: {_name(queue)} is not a queue that is read")
        check_named([queue for queue in queues if queue not in wanted], option, "-2 means earliest, -1 latest")
    positions: Positions = {}
    for queue in queues:
        offset = wanted.get(queue, default)
        positions[queue] = bound(queue, offset) if offset in (EARLIEST, LATEST) else offset
    return positions


def check_named(missing: list[MessageQueue], option: str, hint: str) -> None:
    """Raise OptionError if an option that must name each queue leaves these out."""
    if missing:
        names = ", ".join(_name(queue) for queue in missing[:MAX_QUEUES_SHOWN])
        more = f" and {len(missing) - MAX_QUEUES_SHOWN} more" if len(missing) > MAX_QUEUES_SHOWN else ""
        raise OptionError(
            f"option {option}: it leaves out {names}{more}; name each queue that is read ({hint}), or read fewer "
            "queues with assign"
        )


def _name(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"
