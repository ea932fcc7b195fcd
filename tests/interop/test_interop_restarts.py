"""Daemons are stopped, killed and restarted under live clients."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from interop_cluster import Cluster
from interop_driver_set import DriverSet
from interop_drivers import Driver, Event, stop_all
from interop_processes import wait_until
from interop_texts import assert_bodies, assert_offsets, by_queue, line_of, lines_of, numbered


def stored_offsets(cluster: Cluster, topic: str, group: str) -> dict[str, int]:
    """Return queue id -> next offset from the broker's own file (fastjson: number keys without quotes)."""
    path = cluster.store / "config" / "consumerOffset.json"
    if not path.exists() or not path.read_text():
        return {}
    table: dict[str, Any] = json.loads(re.sub(r"([{,]\s*)(-?\d+)\s*:", r'\1"\2":', path.read_text()))
    offsets: dict[str, int] = table["offsetTable"].get(f"{topic}@{group}", {})
    return offsets


def consume_new_only(
    cluster: Cluster, driver: Driver, sender: Driver, topic: str, group: str, file: Path, first_offset: int
) -> list[Event]:
    """Check that the group continues at its offsets: it gets the newly sent lines and no older one."""
    common = {"namesrv": cluster.namesrv_address, "topic": topic}
    received = driver.receive(**common, group=group)
    sender.run("send-lines", **common, file=file, order_by_queue=4)
    received.wait_messages(len(lines_of(file)))
    received.stop()
    assert_bodies(lines_of(file), received.messages)
    assert_offsets(list(received.messages), first_offset)
    cluster.store_offsets(topic, group, dict.fromkeys(range(4), first_offset + 25))
    return received.messages


def test_offsets_and_messages_survive_a_clean_restart(
    fragile_cluster: Cluster, java4: Driver, go: Driver, tmp_path: Path
) -> None:
    topic = fragile_cluster.create_topic("Restart")
    file = numbered(tmp_path, 100)
    consume_new_only(fragile_cluster, java4, go, topic, "restart_group", file, 0)
    fragile_cluster.broker.stop()
    assert stored_offsets(fragile_cluster, topic, "restart_group") == {str(queue): 25 for queue in range(4)}
    assert not (fragile_cluster.store / "abort").exists()
    fragile_cluster.broker.start()
    fragile_cluster.wait_registered()
    consume_new_only(fragile_cluster, go, java4, topic, "restart_group", file, 25)
    common = {"namesrv": fragile_cluster.namesrv_address, "topic": topic}
    everything = java4.receive(**common, group="restart_from_start", expect=200)
    everything.wait_done()
    sizes = {queue: len(messages) for queue, messages in by_queue(everything.messages).items()}
    assert sizes == dict.fromkeys(range(4), 50)


def test_a_consumer_of_javas_goes_on_soon_after_a_clean_restart(
    fragile_cluster: Cluster, java4: Driver, go: Driver, tmp_path: Path
) -> None:
    """A pull that the broker held and did not answer would keep its queue back for half a minute."""
    common = {"namesrv": fragile_cluster.namesrv_address, "topic": fragile_cluster.create_topic("GoOn")}
    file = numbered(tmp_path, 8)
    received = java4.receive(**common, group="go_on_group")
    go.run("send-lines", **common, file=file, order_by_queue=4)
    received.wait_messages(8)
    fragile_cluster.broker.stop()
    fragile_cluster.broker.start()
    fragile_cluster.wait_registered()
    go.run("send-lines", **common, file=file, order_by_queue=4)
    received.wait_messages(16, 15)
    received.stop()


def test_offsets_and_acknowledged_messages_survive_a_kill(
    fragile_cluster: Cluster, drivers: DriverSet, java4: Driver, java5: Driver, tmp_path: Path
) -> None:
    topic = fragile_cluster.create_topic("Kill")
    common = {"namesrv": fragile_cluster.namesrv_address, "topic": topic}
    file = numbered(tmp_path, 100)
    consume_new_only(fragile_cluster, java4, java4, topic, "kill_group", file, 0)
    many = numbered(tmp_path, 100_000, "many.txt")
    live = [drivers(kind).receive(**common, group=f"kill_live_{kind}") for kind in ("java5", "python")]
    sending = java4.begin("send-lines", **common, file=many, keep_going=True, pause_ms=5)
    sending.wait_event("sent", 500)
    wanted = {str(queue): 25 for queue in range(4)}
    wait_until(lambda: stored_offsets(fragile_cluster, topic, "kill_group") == wanted, 30, "the offsets are on disk")
    fragile_cluster.broker.kill()
    assert (fragile_cluster.store / "abort").exists()
    told = sending.of("sent")
    sending.wait_event("send_failed")
    fragile_cluster.broker.start()
    sending.wait_event("sent", len(told) + 200, 90)
    sending.stop()
    told = sending.of("sent")

    after_the_kill = java5.receive(**common, group="kill_group", mode="orderly")
    stored = {(event["queue"], event["queue_offset"]): event for event in told}
    numbers = {event["line"] for event in told}
    after_the_kill.wait_for(
        lambda: numbers <= {line_of(m) for m in after_the_kill.messages}, "every acknowledged line is there", 60
    )
    assert min(m["queue_offset"] for m in after_the_kill.messages) == 25
    lines = lines_of(many)
    for message in after_the_kill.messages:
        event = stored.get((message["queue"], message["queue_offset"]))
        if event is not None:
            assert event["msg_id"] == message["msg_id"]
            assert message["body"] == lines[event["line"]]
    for consumer in live:
        consumer.wait_for(
            lambda consumer=consumer: numbers <= {line_of(m) for m in consumer.messages}, "a live consumer gets all", 60
        )
    stop_all([*live, after_the_kill])


def test_a_nameserver_restart_goes_unnoticed(
    fragile_cluster: Cluster, drivers: DriverSet, java4: Driver, java5: Driver, go: Driver, tmp_path: Path
) -> None:
    topic = fragile_cluster.create_topic("NameServer")
    common = {"namesrv": fragile_cluster.namesrv_address, "topic": topic}
    file = numbered(tmp_path, 100_000)
    received = java5.receive(**common, group="unnoticed_group")
    senders = (java4, go, drivers("python"))
    sending = [driver.begin("send-lines", **common, file=file, pause_ms=5) for driver in senders]
    for command in sending:
        command.wait_event("sent", 10)
    received.wait_messages(100)
    fragile_cluster.namesrv.kill()
    received.wait_messages(len(received.messages) + 100)
    fragile_cluster.namesrv.start()
    fragile_cluster.wait_registered()
    wait_until(lambda: fragile_cluster.route(topic), 15, "the topic's route is back")
    received.wait_messages(len(received.messages) + 100)
    for command in sending:
        command.stop()
        assert not command.of("send_failed") and not command.of("refused")
    told = sum(len(command.of("sent")) for command in sending)
    received.wait_messages(told)
    received.stop()
    assert len(received.messages) == told
    # A client that starts only now finds everything through the new NameServer.
    late = go.receive(**common, group="late_group")
    late.wait_messages(told)
    late.stop()
