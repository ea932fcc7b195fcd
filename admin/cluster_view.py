"""What several verbs ask about a whole cluster: its masters, its groups, their progress and their members."""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress

from triomq.admin import bodies
from triomq.admin.errors import AdminError, NotFound, Unreachable, UsageError
from triomq.admin.messages import Queue, offset_at, pull
from triomq.admin.routes import RETRY_PREFIX, all_topics, any_address, queue_items
from triomq.admin.session import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

    from triomq.admin.run import Run

QueueKey = tuple[str, str, int]
OFFLINE = 206
QUERY_IN_FLIGHT = 30_001


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def broker_table(run: Run) -> dict[str, dict[int, str]]:
    """Return the addresses of every broker name by broker id."""
    names = run.session.cluster_info().get("brokerAddrTable", {})
    return {name: run.session.broker_addresses(name) for name in sorted(names)}


def master_table(run: Run) -> dict[str, str]:
    """Return the address of the master by broker name. Raises NotFound without any."""
    table = {name: addresses[0] for name, addresses in broker_table(run).items() if 0 in addresses}
    if not table:
        raise NotFound("no NameServer knows a master: is a broker running, and does it name these NameServers?")
    return table


def responding_masters(run: Run) -> dict[str, str]:
    """Return the masters that respond to GET_BROKER_RUNTIME_INFO, by name; report the others as a part that failed.
    Raises Unreachable if none responds."""
    responding: dict[str, str] = {}
    lost: list[str] = []
    for name, address in master_table(run).items():
        try:
            run.session.request(address, 28)
        except Unreachable as error:
            lost.append(f"broker {name!r}: {error}")
        else:
            responding[name] = address
    if not responding:
        raise Unreachable("; ".join(lost))
    for text in lost:
        run.failed(text)
    return responding


@contextmanager
def left_out_if_lost(run: Run, masters: dict[str, str] | None, name: str) -> Iterator[None]:
    """Report a master that responds no more as a part that failed, and ask it no further; raise Unreachable if all
    masters are wanted (None)."""
    try:
        yield
    except Unreachable as error:
        if masters is None:
            raise
        del masters[name]
        run.failed(f"broker {name!r}: {error}")


def chosen_brokers(run: Run) -> dict[str, str]:
    """Return the brokers of --broker, names or addresses, else all masters."""
    masters = master_table(run)
    wanted = run.every("broker")
    for name in wanted:
        if name not in masters and ":" not in name:
            raise NotFound(f"no master {name!r} is registered: there are {', '.join(masters)}")
    return {name: masters.get(name, name) for name in wanted} or masters


def chosen_members(run: Run) -> list[tuple[str, int | None, str]]:
    """Return (broker name, broker id, address) of those that --broker names, else of all, slaves included. A broker
    that is given as HOST:PORT has that as its name, and no id. Raises NotFound."""
    every = [(name, number, address) for name, table in broker_table(run).items() for number, address in table.items()]
    if not every:
        raise NotFound("no NameServer knows a broker: is one running, and does it name these NameServers?")
    chosen: list[tuple[str, int | None, str]] = []
    for wanted in run.every("broker"):
        found = [each for each in every if wanted in (each[0], f"{each[0]}/{each[1]}")]
        if not found and ":" not in wanted:
            known = ", ".join(sorted({name for name, _, _ in every}))
            raise NotFound(f"no broker {wanted!r} is registered: there are {known}")
        chosen += found or [(wanted, None, wanted)]
    return chosen or list(every)


def group_names(run: Run, masters: dict[str, str] | None = None) -> list[str]:
    """Return the groups that brokers know, all masters or these, and those with a retry topic."""
    found = {topic.removeprefix(RETRY_PREFIX) for topic in all_topics(run.session) if topic.startswith(RETRY_PREFIX)}
    for name, address in list((master_table(run) if masters is None else masters).items()):
        with left_out_if_lost(run, masters, name):
            found |= set(bodies.loads(run.session.call(address, 201).body).get("subscriptionGroupTable", {}))
    return sorted(found)


def progress(
    run: Run, group: str, topic: str | None = None, *, masters: dict[str, str] | None = None
) -> dict[QueueKey, dict[str, Any]]:
    """Return GET_CONSUME_STATS of all masters, or of these, by queue; empty for a group without offsets. A request with
    a topic in it would also get the queues of a topic that the group never read.
    """
    found: dict[QueueKey, dict[str, Any]] = {}
    for name, address in list((master_table(run) if masters is None else masters).items()):
        # A broker that refuses does not know the group or the topic.
        with left_out_if_lost(run, masters, name), suppress(Refused):
            body = bodies.loads(run.session.call(address, 208, {"consumerGroup": group}).body)
            found.update(queue_items(body.get("offsetTable", {})))
    return {queue: found[queue] for queue in sorted(found) if topic in (None, queue[0])}


def add_in_flight(
    run: Run, progress_of: dict[str, dict[QueueKey, dict[str, Any]]], masters: dict[str, str] | None = None
) -> None:
    """Set `inFlight` and `ready` in the progress of groups, in the rows of queues from which they receive single
    messages (POP). A broker that does not tell leaves them out: RocketMQ's, or one that wants an administrator."""
    for name, address in list((master_table(run) if masters is None else masters).items()):
        queues: list[dict[str, Any]] = []
        with left_out_if_lost(run, masters, name):
            queues = _in_flight(run, address, list(progress_of))
        for queue in queues:
            rows = progress_of.get(queue["consumerGroup"], {})
            row = rows.get((queue["topic"], name, queue["queueId"]))
            if row is not None:
                row.update(inFlight=queue["inFlight"], ready=queue["ready"])


def _in_flight(run: Run, address: str, groups: list[str]) -> list[dict[str, Any]]:
    """Return QUERY_IN_FLIGHT of these groups, and maybe of others."""
    fields = {"consumerGroup": groups[0]} if len(groups) == 1 else {}
    response = run.session.request(address, QUERY_IN_FLIGHT, fields, timeout_seconds=15)
    if response.code != 0:
        return []
    body = bodies.loads(response.body)
    if body.get("leftOut") and len(groups) > 1:  # more than fit into one response
        return [queue for group in groups for queue in _in_flight(run, address, [group])]
    queues: list[dict[str, Any]] = body.get("queues", [])
    return queues


def backlog(row: dict[str, Any]) -> int:
    """Return how many messages wait in a queue; 0 for an offset beyond the end, which hides no backlog of others. With
    POP these are the ones in flight and ready: what was acknowledged behind the offset does not wait."""
    if "inFlight" in row:
        return int(row["inFlight"]) + int(row["ready"])
    return max(0, int(row["brokerOffset"]) - int(row["consumerOffset"]))


def behind_ms(run: Run, queue: QueueKey, row: dict[str, Any], now: int) -> int | None:
    """Return the age of the last message that a group has read of a queue, if there are later ones; of the first that
    waits, if it has read none; 0 without a backlog, None if it is unknown."""
    if backlog(row) == 0:
        return 0
    last = int(row.get("lastTimestamp", 0)) or _store_time(run, queue, int(row["consumerOffset"]))
    return max(0, now - last) if last else None


def _store_time(run: Run, queue: QueueKey, offset: int) -> int:
    """Return when a message was stored; 0 if its master does not tell."""
    topic, name, number = queue
    address = run.session.broker_addresses(name).get(0)
    if address is None:
        return 0
    try:
        _, _, messages = pull(run, Queue(topic, name, number, address), offset, 1)
    except AdminError:
        return 0
    return messages[0].store_timestamp if messages else 0


def longest(delays: Iterable[int | None]) -> int | None:
    """Return the longest that is known; None if there are some, and none is known."""
    every = list(delays)
    known = [each for each in every if each is not None]
    return max(known) if known else None if every else 0


def group_behind_ms(run: Run, rows: dict[QueueKey, dict[str, Any]], now: int) -> int | None:
    """Return how far a group is behind in the queue where it is furthest; None if nothing is known."""
    return longest([behind_ms(run, queue, row, now) for queue, row in rows.items()])


def members(run: Run, group: str, masters: dict[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """Return the connections of a group's members by client id, at all masters or at these."""
    found: dict[str, dict[str, Any]] = {}
    for name, address in list((master_table(run) if masters is None else masters).items()):
        try:
            with left_out_if_lost(run, masters, name):
                body = bodies.loads(run.session.call(address, 203, {"consumerGroup": group}).body)
                found.update({each["clientId"]: each for each in body.get("connectionSet") or []})
        except Refused as error:
            if error.code != OFFLINE and error.code != 1:
                raise
    return found


def topic_queues(run: Run, topic: str, *, may_be_slaves: bool = False) -> list[tuple[str, int, str, int, int]]:
    """Return (broker name, queue id, address, first offset, next offset) of all queues at masters; with
    `may_be_slaves` at a slave where no master is registered. Raises Unreachable if there is no such broker."""
    route = run.session.route(topic)
    found = []
    lost = []
    for data in sorted(route["brokerDatas"], key=lambda each: str(each["brokerName"])):
        address = any_address(data) if may_be_slaves else data["brokerAddrs"].get("0")
        if address is None:
            lost.append(data["brokerName"])
            continue
        table = bodies.loads(run.session.call(address, 202, {"topic": topic}).body).get("offsetTable", {})
        for (_, name, number), offsets in sorted(queue_items(table), key=lambda item: item[0]):
            found.append((name, number, address, offsets["minOffset"], offsets["maxOffset"]))
    if lost and not found:
        raise Unreachable(f"topic {topic!r} has no master now: none of {', '.join(lost)} is registered")
    return found


def when(text: str) -> int:
    """Return the milliseconds of a time: ISO 8601, yyyy-MM-dd#HH:mm:ss:SSS, milliseconds, or an age as 90s, 15m, 2h."""
    from triomq.admin.java_text import parse_time

    units = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    if text[-1:] in units and text[:-1].isdecimal():
        return now_ms() - int(text[:-1]) * units[text[-1]]
    try:
        if "#" in text or text.isdecimal():
            return parse_time(text)
        from datetime import datetime

        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise UsageError(f"{text!r} is not a time: write 2026-11-22T08:00:00, milliseconds, or an age as 15m") from None


def offset_of_time(run: Run, queue: Queue, moment: int, end: int) -> int:
    """Return the offset of the first message that was stored at a time or later. Brokers answer with the last message
    where all are older.
    """
    offset = offset_at(run, queue.address, queue.topic, queue.queue_id, moment)
    if offset != end - 1:
        return offset
    _, _, messages = pull(run, queue, offset, 1)
    return end if messages and messages[0].store_timestamp < moment else offset


def attempt(run: Run, address: str, code: int, fields: dict[str, Any] | None = None) -> Any:
    """Return the body of a response, or None if the peer refuses or cannot be reached."""
    try:
        return bodies.loads(run.session.call(address, code, fields).body)
    except AdminError:
        return None
