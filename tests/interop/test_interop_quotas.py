"""Quotas with real clients: what a refused send becomes there, that limited consumers lose and repeat nothing, and that
the real mqadmin sets them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import interop_wire as wire
import pytest
from interop_cluster import Cluster, running_cluster
from interop_driver_set import DriverSet
from interop_drivers import Driver, DriverFailed
from interop_mqadmin import JavaAdmin
from interop_texts import assert_bodies, assert_offsets, lines_of, numbered

UPDATE_BROKER_CONFIG, GET_BROKER_RUNTIME_INFO, GET_MAX_OFFSET = 25, 28, 30
BUSY = 2


@pytest.fixture(scope="module")
def limited(target: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose quotas may be changed without an account."""
    if target == "apache":
        pytest.skip("RocketMQ has no quotas")
    settings = {"configUpdateWithoutAcl": "true"}
    with running_cluster(target, tmp_path_factory.mktemp("limited"), settings) as cluster:
        yield cluster


def set_quota(cluster: Cluster, entry: str) -> None:
    with wire.Wire(cluster.broker_address) as peer:
        answer = peer.call(UPDATE_BROKER_CONFIG, {}, f"quotaOverrides={entry}\n".encode())
    assert answer.code == 0, answer


def end_of(cluster: Cluster, topic: str) -> int:
    with wire.Wire(cluster.broker_address) as peer:
        return int(peer.call(GET_MAX_OFFSET, {"topic": topic, "queueId": 0}).fields["offset"])


def long_lines(directory: Path) -> Path:
    """Return a file of three lines, each larger than a quota of one byte a second refills while a test runs."""
    file = directory / "long.txt"
    file.write_text("".join(f"{number}{'x' * 1000}\n" for number in range(3)))
    return file


def delayed_pulls(cluster: Cluster) -> int:
    with wire.Wire(cluster.broker_address) as peer:
        text = peer.call(GET_BROKER_RUNTIME_INFO).body.decode()
    marker = '"quotaDelayed_group_messagesOut":"'
    return int(text.partition(marker)[2].partition('"')[0]) if marker in text else 0


@pytest.mark.parametrize("kind", ["java4", "java5", "go", "python"])
def test_a_limited_consumer_gets_every_message_once_and_in_order(
    limited: Cluster, drivers: DriverSet, java4: Driver, tmp_path: Path, kind: str
) -> None:
    topic = limited.create_topic("Limited", queues=1)
    group = f"{topic}_group"
    common = {"namesrv": limited.namesrv_address, "topic": topic}
    file = numbered(tmp_path, 150)
    java4.run("send-lines", **common, file=file)
    set_quota(limited, f"group {group} messagesOut=20")
    before = delayed_pulls(limited)
    received = drivers(kind).receive(**common, group=group, mode="orderly", expect=150)
    received.wait_done(90)
    assert delayed_pulls(limited) > before
    assert_bodies(lines_of(file), received.messages)
    assert_offsets(list(received.messages))
    assert [message["queue_offset"] for message in received.messages] == list(range(150))


def test_a_wait_longer_than_the_long_poll_loses_and_repeats_nothing(
    limited: Cluster, drivers: DriverSet, java4: Driver, tmp_path: Path
) -> None:
    """The first pull takes 32 messages, so the next waits for half a minute; Java's long polls end after 15 s."""
    topic = limited.create_topic("Long", queues=1)
    common = {"namesrv": limited.namesrv_address, "topic": topic}
    file = numbered(tmp_path, 40)
    java4.run("send-lines", **common, file=file)
    receiving = []
    for kind in ("java4", "go", "python"):
        set_quota(limited, f"group {topic}_{kind} messagesOut=1")
        receiving.append(drivers(kind).receive(**common, group=f"{topic}_{kind}", mode="orderly", expect=40))
    for received in receiving:
        received.wait_done(120)
        assert_bodies(lines_of(file), received.messages)
        assert [message["queue_offset"] for message in received.messages] == list(range(40))


def test_a_send_above_the_quota_is_an_error_with_the_reason_in_java(
    limited: Cluster, java4: Driver, tmp_path: Path
) -> None:
    topic = limited.create_topic("Refused", queues=1)
    group = f"{topic}_producers"
    set_quota(limited, f"group {group} bytesIn=1")
    common = {"namesrv": limited.namesrv_address, "topic": topic, "group": group}
    events = java4.run("send-lines", **common, file=long_lines(tmp_path), keep_going=True)
    sent = [event for event in events if event["event"] == "sent"]
    refused = [event for event in events if event["event"] == "refused"]
    assert [event["line"] for event in sent] == [0]
    assert [(event["line"], event["code"]) for event in refused] == [(1, BUSY), (2, BUSY)]
    assert f"[QUOTA] bytesIn: group {group} may have 1 bytes a second in; try again in" in refused[0]["remark"]
    assert end_of(limited, topic) == 1


@pytest.mark.parametrize("kind", ["go", "python"])
def test_a_send_above_the_quota_is_an_error_with_the_reason(
    limited: Cluster, drivers: DriverSet, tmp_path: Path, kind: str
) -> None:
    topic = limited.create_topic("Refused", queues=1)
    group = f"{topic}_producers"
    set_quota(limited, f"group {group} bytesIn=1")
    with pytest.raises(DriverFailed, match=r"\[QUOTA\] bytesIn: group"):
        drivers(kind).run(
            "send-lines", namesrv=limited.namesrv_address, topic=topic, group=group, file=long_lines(tmp_path)
        )
    assert end_of(limited, topic) == 1


def test_the_real_mqadmin_sets_lists_and_removes_quotas(limited: Cluster, admin: JavaAdmin) -> None:
    def update(key: str, value: str) -> str:
        return admin.run("updateBrokerConfig", "-b", limited.broker_address, "-k", key, "-v", value)

    assert "update broker config success" in update("quotaOverrides", "account alice bytesIn=5,messagesIn=6")
    assert "update broker config success" in update("quotaPerAccount", "bytesIn=7")
    listed = admin.run("getBrokerConfig", "-b", limited.broker_address)
    lines = [" ".join(line.split()) for line in listed.splitlines()]
    assert "quotaPerAccount = bytesIn=7" in lines
    assert [line for line in lines if line.startswith("quotaOverrides = ") and "alice bytesIn=5,messagesIn=6" in line]
    update("quotaOverrides", "account alice")
    update("quotaPerAccount", "bytesIn=0")
    assert "alice" not in admin.run("getBrokerConfig", "-b", limited.broker_address)
