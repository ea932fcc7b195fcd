"""bench: a bounded load on a topic of its own, which is deleted at the end: rates, times of requests, errors."""

from __future__ import annotations

import os
from functools import partial

from triomq.admin.cluster_view import master_table
from triomq.admin.commands.topics import create_topic
from triomq.admin.errors import AdminError, UsageError
from triomq.admin.verbs.bench_load import BOTH, KINDS, LATENCY, Load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triomq.admin.run import Run

BOUNDS = {
    "count": (10_000, 1_000_000),
    "size": (1024, 4 * 1024 * 1024),
    "connections": (4, 64),
    "seconds": (30, 3600),
    "window": (1, 256),
}
COLUMNS = {
    "kind": "KIND",
    "messages": "MESSAGES",
    "seconds": "SECONDS",
    "messagesPerSecond": "PER S",
    "mebibytesPerSecond": "MIB/S",
    "p50Ms": "P50 MS",
    "p99Ms": "P99 MS",
    "maxMs": "MAX MS",
    "errors": "ERRORS",
}


def bench(run: Run) -> None:
    kind = run.get("KIND") or BOTH
    if kind not in KINDS:
        raise UsageError(f"KIND is {', '.join(KINDS)}, not {kind!r}")
    if kind == LATENCY and run.has("window"):
        raise UsageError("--window is for sending; latency is measured with one message at a time on each connection")
    limits = {name: _bounded(run, name) for name in BOUNDS}
    masters = master_table(run)
    if run.has("cluster"):
        names = run.session.broker_names(run.get("cluster"))
        masters = {name: address for name, address in masters.items() if name in names}
    strangers = [address for address in masters.values() if not is_loopback(address)]
    run.ask_consent(strangers, "a load on brokers of another machine")
    topic = f"mqadmin-bench-{os.urandom(6).hex()}"
    load = Load(run.session, topic, masters, limits)
    queues = {"readQueueNums": limits["connections"], "writeQueueNums": limits["connections"]}
    config = {
        "topicName": topic,
        **queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
    }
    try:
        for address in masters.values():
            create_topic(run, address, config)
        text = f"send up to {limits['count']} messages of {limits['size']} bytes through {limits['connections']} "
        text += f"connections, {limits['window']} at a time on each, for at most {limits['seconds']} s"
        run.change("bench", text, partial(load.measure, KINDS[kind]))
    finally:
        _delete(run, topic, masters)
    items = [load.figures[name].item(name, limits) for name in load.figures]
    run.out.table(COLUMNS, items)
    if not strangers:
        run.out.line("The brokers are on this machine and share its processors with this measurement.")
    for name, figures in load.figures.items():
        for error, count in figures.errors.items():
            run.failed(f"{name}: {count} times: {error}")


def _bounded(run: Run, name: str) -> int:
    default, most = BOUNDS[name]
    value = run.number(name, default)
    if not 1 <= value <= most:
        raise UsageError(f"--{name} is between 1 and {most}")
    return value


def is_loopback(address: str) -> bool:
    from ipaddress import ip_address

    host = address.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _delete(run: Run, topic: str, masters: dict[str, str]) -> None:
    """Delete the topic everywhere; what fails is said and does not keep the rest."""
    places = [(address, 215) for address in masters.values()]
    places += [(address, 216) for address in run.session.required_name_servers()]
    for address, code in places:
        try:
            run.session.call(address, code, {"topic": topic})
        except AdminError as error:
            run.failed(f"topic {topic} was not deleted: {error}")
