"""Finding stored messages: by key, by client id, by offset message id, by time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from interop_cluster import Cluster
from interop_driver_set import DriverSet
from interop_drivers import Driver
from interop_processes import wait_until
from interop_texts import by_queue, line_of, lines_of, numbered


@pytest.mark.parametrize("kind", ["java4", "java5"])
def test_messages_are_found_by_key_and_id(
    cluster: Cluster, drivers: DriverSet, go: Driver, tmp_path: Path, kind: str
) -> None:
    topic = cluster.create_topic("Query")
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    file = numbered(tmp_path, 40)
    lines = lines_of(file)
    sent = go.run("send-lines", **common, file=file, keys="schlüssel", order_by_queue=4)[:-1]
    found = drivers(kind).run("query-key", **common, key=",".join(f"schlüssel-{n}" for n in (0, 7, 39)))[:-1]
    assert [(line_of(m), m["body"], m["keys"]) for m in found] == [(n, lines[n], f"schlüssel-{n}") for n in (0, 7, 39)]
    for name in ("offset_msg_id", "msg_id"):
        viewed = drivers(kind).run("view", **common, msg_id=",".join(sent[n][name] for n in (3, 12)))[:-1]
        seen = [(m["body"], m["queue"], m["queue_offset"]) for m in viewed]
        assert seen == [(lines[n], n % 4, n // 4) for n in (3, 12)]


def test_keys_are_found_only_in_their_time(cluster: Cluster, java4: Driver, tmp_path: Path) -> None:
    topic = cluster.create_topic("QueryTime", queues=1)
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    java4.run("send-lines", **common, file=numbered(tmp_path, 1), keys="same")
    [first] = java4.run("query-key", **common, key="same-0")[:-1]
    # The index stores whole seconds.
    wait_until(lambda: time.time() * 1000 > first["store_ms"] + 1100, 5, "a second has passed")
    java4.run("send-lines", **common, file=numbered(tmp_path, 1), keys="same")
    both = java4.run("query-key", **common, key="same-0")[:-1]
    assert sorted(m["queue_offset"] for m in both) == [0, 1]
    late = java4.run("query-key", **common, key="same-0", begin_ms=first["store_ms"] + 1)[:-1]
    early = java4.run("query-key", **common, key="same-0", end_ms=first["store_ms"])[:-1]
    assert [m["queue_offset"] for m in late] == [1]
    assert [m["queue_offset"] for m in early] == [0]


def test_offsets_by_time(cluster: Cluster, java4: Driver, tmp_path: Path) -> None:
    topic = cluster.create_topic("OffsetsByTime", queues=2)
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    java4.run("send-lines", **common, file=numbered(tmp_path, 40), order_by_queue=2, pause_ms=5)
    messages = [e for e in java4.run("pull", **common, group="by_time") if e["event"] == "message"]
    assert len(messages) == 40
    for queue, inside in by_queue(messages).items():
        for index in (0, 7, 19):
            answers = java4.run("offsets", **common, time_ms=inside[index]["store_ms"])[:-1]
            answer = next(a for a in answers if a["queue"] == queue)
            assert (answer["min_offset"], answer["max_offset"]) == (0, 20)
            assert answer["at_time"] == inside[index]["queue_offset"]


@pytest.mark.parametrize("kind", ["java4", "java5", "python"])
def test_pulling_a_queue_by_hand(cluster: Cluster, drivers: DriverSet, tmp_path: Path, kind: str) -> None:
    topic = cluster.create_topic("Pull", queues=1)
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    file = numbered(tmp_path, 70)
    drivers(kind).run("send-lines", **common, file=file, tags="a,b")
    events = drivers(kind).run("pull", **common, group="by_hand", offset=10, pull_batch=32)
    assert [line_of(e) for e in events if e["event"] == "message"] == list(range(10, 70))
    pulls = [(e["status"], e["next_offset"]) for e in events if e["event"] == "pulled"]
    assert pulls == [("FOUND", 42), ("FOUND", 70)]
    events = drivers(kind).run("pull", **common, group="by_hand", tags="b")
    assert [line_of(e) for e in events if e["event"] == "message"] == list(range(1, 70, 2))
    [event] = drivers(kind).run("pull", **common, group="by_hand", offset=100)[:-1]
    assert (event["status"], event["next_offset"]) == ("OFFSET_ILLEGAL", 70)
