"""Send the same requests to TrioMQ's NameServer and to the real one: only the differences listed in EXCUSED are
permitted.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import interop_wire as wire
import pytest
from interop_cluster import Cluster
from interop_pair import Both, Excused, Link, conversation

# (name of the request, place in the response) -> why TrioMQ responds differently.
EXCUSED = Excused(
    {
        ("without an address for slaves", "*"): "TrioMQ names the missing required field; Apache reads it as null",
        ("*: 304", "body.brokerAddr"): "any broker will do; Apache takes the first of a hash table",
    }
)
V4_9_3 = 395
V3_0_6 = 27
TIMESTAMP_MS = 1_600_000_000_123


@pytest.fixture(scope="module")
def addresses(peer: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A NameServer of each kind, without any broker."""
    with ExitStack() as stack:
        found = []
        for target in ("triomq", "apache"):
            cluster = Cluster(target, tmp_path_factory.mktemp(target), None, {"configUpdateWithoutAcl": "true"})
            stack.callback(cluster.namesrv.kill)
            stack.callback(cluster.namesrv.stop)
            cluster.namesrv.start()
            found.append(cluster.namesrv_address)
        yield found[0], found[1]


def topic(name: str, *, queues: int = 4, perm: int = 6, flag: int = 0) -> dict[str, Any]:
    return {
        "order": False,
        "perm": perm,
        "readQueueNums": queues,
        "topicFilterType": "SINGLE_TAG",
        "topicName": name,
        "topicSysFlag": flag,
        "writeQueueNums": queues,
    }


def version(counter: int) -> dict[str, int]:
    return {"counter": counter, "timestamp": TIMESTAMP_MS}


def registration(counter: int, *topics: dict[str, Any]) -> bytes:
    table = {each["topicName"]: each for each in topics}
    wrapper = {"dataVersion": version(counter), "topicConfigTable": table}
    return json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()


def broker(
    name: str, number: int = 0, *, cluster: str = "ClusterA", body: bytes = b"", **changes: Any
) -> dict[str, Any]:
    host = f"10.0.{number}.{ord(name[-1])}"
    fields = {
        "brokerAddr": f"{host}:10911",
        "brokerId": number,
        "brokerName": name,
        "clusterName": cluster,
        "haServerAddr": f"{host}:10912",
        "compressed": "false",
        "bodyCrc32": zlib.crc32(body) & 0x7FFFFFFF if body else 0,
    }
    return {**fields, **changes}


def register(link: Link, label: str, name: str, body: bytes, number: int = 0, **changes: Any) -> Both:
    return link.call(label, 103, broker(name, number, body=body, **changes), body)


def unregister(link: Link, name: str, **changes: Any) -> None:
    fields = broker(name, **changes)
    wanted = ("brokerAddr", "brokerId", "brokerName", "clusterName")
    link.call(f"unregister {name}", 104, {key: fields[key] for key in wanted})


def ask_all(link: Link, when: str) -> None:
    """Send every request that changes nothing."""
    for name in ("Orders", "Wide", "ReadOnly", "Unit", "UnitSub", "OnlyB", "Nobody", "", "ClusterA", "b-a"):
        for asked_by in (wire.VERSION_4_9_7, V4_9_3):
            link.call(f"{when}: route {name} {asked_by}", 105, {"topic": name}, version=asked_by)
    link.call(f"{when}: route, standard", 105, {"topic": "Orders", "acceptStandardJsonOnly": "true"}, version=V4_9_3)
    for cluster in ("ClusterA", "ClusterB", "None", ""):
        link.call(f"{when}: topics of {cluster!r}", 224, {"cluster": cluster})
    for code in (106, 206, 304, 311, 312, 313):
        link.call(f"{when}: {code}", code)


def test_brokers_and_routes(addresses: tuple[str, str]) -> None:
    with conversation(addresses, EXCUSED) as talk:
        link = talk.connect()
        ask_all(link, "empty")
        topics = [topic("Orders"), topic("Wide", queues=16), topic("ReadOnly", perm=4)]
        units = [topic("Unit", flag=1), topic("UnitSub", flag=2), topic("Both", flag=3)]
        register(link, "master", "b-a", registration(1, *topics, *units))
        register(link, "its slave", "b-a", registration(1, *topics, *units), 1)
        register(link, "another", "b-b", registration(5, topic("Orders", queues=2), topic("OnlyB")))
        register(link, "other cluster", "b-c", registration(1, topic("Orders", perm=2)), cluster="ClusterB")
        ask_all(link, "registered")
        register(link, "wrong checksum", "b-d", registration(1, topic("Late")), bodyCrc32=1)
        register(link, "no body", "b-e", b"")
        register(link, "without an address for slaves", "b-f", registration(1, topic("F")), haServerAddr=None)
        unregister(link, "b-f")
        register(link, "same version again", "b-b", registration(5, topic("Orders", queues=9), topic("Not")))
        register(link, "new version", "b-b", registration(6, topic("Orders", queues=9)))
        old = json.dumps({"dataVersion": version(2), "topicConfigTable": {"Old": topic("Old")}}).encode()
        link.call("an old broker", 103, broker("b-g"), old, version=V3_0_6)
        link.call("an old broker without topics", 103, broker("b-h"), version=V3_0_6)
        for name in ("b-a", "b-b", "b-z"):
            for counter in (1, 6):
                body = json.dumps(version(counter)).encode()
                link.call(f"version of {name} {counter}", 322, broker(name), body)
        ask_all(link, "changed")
        for name in ("b-a", "b-z"):
            link.call(f"wipe {name}", 205, {"brokerName": name})
        ask_all(link, "wiped")
        for name in ("b-a", "b-z"):
            link.call(f"add {name}", 327, {"brokerName": name})
        for name in ("Wide", "Nobody"):
            link.call(f"delete {name}", 216, {"topic": name})
        ask_all(link, "deleted")
        for name, cluster in (("b-a", "ClusterA"), ("b-c", "ClusterB"), ("b-z", "ClusterA")):
            unregister(link, name, cluster=cluster)
        ask_all(link, "unregistered")


def test_keys_and_configuration(addresses: tuple[str, str]) -> None:
    with conversation(addresses, EXCUSED) as talk:
        link = talk.connect()
        key = {"namespace": "MINE", "key": "k"}
        link.call("get, empty", 101, key)
        link.call("list, empty", 219, {"namespace": "MINE"})
        for value in ("1", "", "\u00fcnicode", "b-a:4"):
            link.call(f"put {value!r}", 100, {**key, "value": value})
            link.call(f"get {value!r}", 101, key)
        link.call("put another", 100, {**key, "key": "l", "value": "2"})
        link.call("list", 219, {"namespace": "MINE"})
        for name in ("k", "k", "absent"):
            link.call(f"delete {name}", 102, {**key, "key": name})
        link.call("delete in no namespace", 102, {"namespace": "NONE", "key": "k"})
        link.call("list at the end", 219, {"namespace": "MINE"})
        order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "Ordered", "value": "b-o:4"}
        link.call("put order", 100, order)
        register(link, "with order", "b-o", registration(1, topic("Ordered")))
        link.call("route, no order", 105, {"topic": "Ordered"})
        for body in (b"orderMessageEnable=true", b"", b"unknown=1\n", b"kvConfigPath=/x", b"configStorePath=/x"):
            link.call(f"update {body.decode()}", 318, None, body)
        link.call("route, order", 105, {"topic": "Ordered"})
        both = link.ask(319)
        assert both is not None
        ours, theirs = (
            dict(line.split("=", 1) for line in reply.body.decode().splitlines() if "=" in line)
            for reply in (both.ours, both.theirs)
        )
        assert theirs.keys() <= ours.keys()
        assert ours["orderMessageEnable"] == theirs["orderMessageEnable"] == "true"


def test_every_excuse_is_needed() -> None:
    """Run this after the other tests: fail for an excuse that none of them used."""
    assert not [key for key in EXCUSED.table if key not in EXCUSED.used]
