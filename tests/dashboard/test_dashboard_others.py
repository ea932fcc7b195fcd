"""What other daemons of a cluster say: asked at once, each with a time limit, and why if not."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import trio
import trio.testing

from triomq.dashboard.others import (
    ALARMS_SECONDS,
    ASK_SECONDS,
    KEPT_SECONDS,
    MOST_ALARMS,
    MOST_BROKERS,
    MOST_CONTESTANTS,
    TOPICS_KEPT_SECONDS,
    Broker,
    Others,
    dashboard_of,
)
from triomq.dashboard.views import Ask
from triomq.namesrv.brokers import BrokerKey
from triomq.namesrv.routes import RouteTable
from triomq.namesrv.views import cluster_view
from triomq.protocol.bodies.departed import ContestedBroker, DepartedBroker, QueryDepartedBrokersResponseBody
from triomq.protocol.bodies.kv_table import KVTable
from triomq.protocol.bodies.route import BrokerData, ClusterInfo
from triomq.protocol.bodies.topic_config import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.remoting.errors import ConnectFailed, RemotingTimeout

NOW_MS = 1_700_000_000_000
HOSTILE = "<img src=x onerror=alert(1)>"
Bodies = dict[int, bytes]


class Cluster:
    """Daemons by address, each with the body of its response by request code. Others are silent."""

    def __init__(self, daemons: dict[str, Bodies]) -> None:
        self.daemons = daemons
        self.asked: list[tuple[str, int]] = []

    async def invoke(self, address: str, command: RemotingCommand, timeout_seconds: float) -> RemotingCommand:
        self.asked.append((address, command.code))
        if address == "closed:1":
            raise ConnectFailed(f"connect to closed:1 failed: {HOSTILE}")
        if address not in self.daemons:
            await trio.sleep(timeout_seconds)
            raise RemotingTimeout(f"no response within {timeout_seconds:g} s")
        body = self.daemons[address].get(command.code)
        if body is None:
            return new_response(command, ResponseCode.NO_PERMISSION, remark=f"no account {HOSTILE}")
        return new_response(command, body=body)


def info(**addresses: str) -> bytes:
    """Return the body of 106: addresses by "name_id"."""
    table: dict[str, dict[int, str]] = {}
    for name, address in addresses.items():
        table.setdefault(name[:-2], {})[int(name[-1])] = address
    return ClusterInfo(
        broker_addr_table={
            name: BrokerData(broker_addrs=addrs, broker_name=name, cluster="c") for name, addrs in table.items()
        },
        cluster_addr_table={"c": frozenset(table)},
    ).encode()


def runtime(end: int, **more: str) -> bytes:
    table = {"brokerVersionDesc": "V4_9_7", "commitLogMaxOffset": str(end), "putTps": "2.5 1.0 0.5", **more}
    return KVTable(table=table).encode()


def others(cluster: Cluster, name_servers: list[str]) -> Others:
    return Others(lambda: nullcontext(cluster), lambda: name_servers, None, None, lambda: NOW_MS)


CONFIG = b"dashboardPort=8082\ndashboardAddress=10.0.0.1\nbrokerRole=ASYNC_MASTER\n"


async def test_brokers_are_asked_at_once_and_those_that_are_silent_have_a_reason(
    autojump_clock: trio.testing.MockClock,
) -> None:
    known = info(a_0="10.0.0.1:1", a_1="10.0.0.2:1", b_0="gone:1", c_0="gone:2", d_0="closed:1")
    cluster = Cluster(
        {
            "ns:1": {106: known, 318: b"dashboardPort=0\n"},
            "10.0.0.1:1": {28: runtime(50_000_000, commitLogDiskRatio="0.25"), 26: CONFIG},
            "10.0.0.2:1": {28: runtime(1_000, putTps=HOSTILE)},
        }
    )
    them = others(cluster, ["ns:1", "gone:3"])
    began = trio.current_time()
    await them.look()
    assert trio.current_time() - began == pytest.approx(2 * ASK_SECONDS), "NameServers at once, then brokers at once"
    brokers = {(one.name, one.broker_id): one for one in them.seen.brokers}
    assert brokers["a", 0] == Broker(
        "10.0.0.1:1", "", "http://10.0.0.1:8082/", "", "a", "c", 0, "ASYNC_MASTER", "V4_9_7", None, 2.5, None, 0.25, 5e7
    )
    slave = brokers["a", 1]
    assert (slave.behind_bytes, slave.stored_per_second, slave.dashboard) == (49_999_000, None, "")
    assert slave.dashboard_note.startswith("refused: no account")
    assert "no response" in brokers["b", 0].why
    assert "connect to closed:1" in brokers["d", 0].why
    assert [one.why for one in them.seen.name_servers] == ["", "no response within 2 s"]
    assert [(one.code, one.subject) for one in them.seen.alarms] == [
        ("hung", "b"),
        ("hung", "c"),
        ("broker-unreachable", "d"),
        ("hung", "gone:3"),
        ("slave-behind", "a"),
    ]


async def test_a_broker_that_one_name_server_lacks_is_an_alarm(autojump_clock: trio.testing.MockClock) -> None:
    broker = {28: runtime(1), 26: CONFIG}
    cluster = Cluster({"ns:1": {106: info(a_0="b:1")}, "ns:2": {106: info()}, "b:1": broker})
    them = others(cluster, ["ns:1", "ns:2"])
    await them.look()
    assert [(one.code, one.subject) for one in them.seen.alarms] == [("not-registered", "a")]


def topics(**queues: int) -> bytes:
    table = {
        name: TopicConfig(topic_name=name, read_queue_nums=count, write_queue_nums=count)
        for name, count in queues.items()
    }
    return TopicConfigSerializeWrapper(topic_config_table=table).encode()


async def test_what_brokers_do_not_agree_on_is_an_alarm_in_the_words_of_doctor(
    autojump_clock: trio.testing.MockClock,
) -> None:
    began = {"bootTimestamp": str(NOW_MS - 3_600_000 + 60_000), "runtime": "[ 0 days, 1 hours, 0 minutes, 0 seconds ]"}
    older = {"brokerVersionDesc": "V4_9_4", "commitLogDiskRatio": "0.95", **began}
    cluster = Cluster(
        {
            "ns:1": {106: info(a_0="a:1", b_0="b:1"), 318: b""},
            "a:1": {28: runtime(1), 26: CONFIG, 21: topics(T=4, same=8, only=1, c=1)},
            "b:1": {28: runtime(1, **older), 26: CONFIG, 21: topics(T=8, same=8, c=2)},
        }
    )
    them = others(cluster, ["ns:1"])
    await them.look()
    assert [(one.code, one.subject) for one in them.seen.alarms] == [
        ("disk", "b"),
        ("queue-counts", "T"),
        ("clock", "b"),
        ("versions-differ", "cluster"),
    ]
    cluster.asked.clear()
    await trio.sleep(KEPT_SECONDS)
    await them.look()
    assert ("a:1", 28) in cluster.asked
    assert ("a:1", 21) not in cluster.asked, "topics are long, and change seldom"
    assert "queue-counts" in [one.code for one in them.seen.alarms]
    await trio.sleep(TOPICS_KEPT_SECONDS)
    await them.look()
    assert cluster.asked.count(("a:1", 21)) == 1


async def test_brokers_without_a_master_or_a_slave_are_alarms(autojump_clock: trio.testing.MockClock) -> None:
    broker = {28: runtime(1), 26: CONFIG}
    cluster = Cluster(
        {
            "ns:1": {106: info(slave_1="a:1", alone_0="b:1", group_1="c:1", fine_0="d:1"), 318: b""},
            "a:1": broker,
            "b:1": {**broker, 26: b"brokerRole=SYNC_MASTER\n"},
            "c:1": {**broker, 28: runtime(1, dledgerGroup="G")},
            "d:1": broker,
        }
    )
    them = others(cluster, ["ns:1"])
    await them.look()
    assert [(one.code, one.subject) for one in them.seen.alarms] == [
        ("no-slave", "alone"),
        ("dledger-no-leader", "group"),
        ("no-master", "slave"),
    ]


async def test_alarms_are_bounded_and_urgent_ones_come_first(autojump_clock: trio.testing.MockClock) -> None:
    many = {f"t{number:03}": number for number in range(MOST_ALARMS + 30)}
    broker = {28: runtime(1), 26: CONFIG}
    cluster = Cluster(
        {
            "ns:1": {106: info(a_0="a:1", b_0="b:1", c_0="gone:1"), 318: b""},
            "a:1": {**broker, 21: topics(**many)},
            "b:1": {**broker, 21: topics(**{name: count + 1 for name, count in many.items()})},
        }
    )
    them = others(cluster, ["ns:1"])
    await them.look()
    assert (len(them.seen.alarms), them.seen.alarms_left_out) == (MOST_ALARMS, 31)
    assert them.seen.alarms[0].code == "hung"


async def test_brokers_that_are_gone_are_alarms_until_they_are_back(autojump_clock: trio.testing.MockClock) -> None:
    left = [
        DepartedBroker(broker_addr=f"{name}:1", broker_name=name, seen_ms_ago=180_000, orderly=orderly, topics=topics)
        for name, orderly, topics in (("a", False, []), ("b", False, ["T", HOSTILE]), ("c", True, []))
    ]
    body = QueryDepartedBrokersResponseBody(brokers=left).encode()
    cluster = Cluster({"ns:1": {106: info(a_0="a:1"), 318: b"", 30_004: body}, "a:1": {28: runtime(1), 26: CONFIG}})
    them = others(cluster, ["ns:1"])
    await them.look()
    [gone, stopped] = them.seen.alarms
    assert gone.what == f"broker b (id 0, b:1) is gone: it registered last 3 min ago; nobody can use T, {HOSTILE} now"
    assert (gone.severity, stopped.severity) == ("CRITICAL", "INFORMATION")
    assert stopped.what.startswith("broker c (id 0, c:1) was stopped")


async def test_brokers_that_displace_each_other_are_an_alarm(autojump_clock: trio.testing.MockClock) -> None:
    contest = ContestedBroker(broker_addrs=["a:1", HOSTILE, *"x" * 100], broker_id=0, broker_name="a")
    body = QueryDepartedBrokersResponseBody(contested=[contest] * 2).encode()
    cluster = Cluster({"ns:1": {106: info(a_0="a:1"), 318: b"", 30_004: body}, "a:1": {28: runtime(1), 26: CONFIG}})
    them = others(cluster, ["ns:1"])
    await them.look()
    [alarm] = them.seen.alarms
    assert (alarm.code, alarm.severity, alarm.subject) == ("contested", "CRITICAL", "a")
    assert alarm.what.startswith(f"brokers at a:1 and {HOSTILE} and x and x")
    assert alarm.what.count(" and ") == MOST_CONTESTANTS


async def test_alarms_are_remembered_with_their_age_and_not_for_ever(autojump_clock: trio.testing.MockClock) -> None:
    cluster = Cluster({"ns:1": {106: info(a_0="gone:1"), 318: b""}})
    them = others(cluster, ["ns:1"])
    assert them.last_alarms() is None
    await them.look()
    await trio.sleep(90)
    last = them.last_alarms()
    assert last is not None
    assert (last["age_seconds"], [one["code"] for one in last["alarms"]]) == (90, ["hung"])
    assert len(cluster.asked) == 4, "nobody was asked again"
    await trio.sleep(ALARMS_SECONDS)
    assert them.last_alarms() is None


@pytest.mark.parametrize(
    "table",
    [
        {"bootTimestamp": "9" * 5000, "runtime": "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"},
        {"putMessageDistributeTime": f"[<=0ms]:{'9' * 5000}"},
        {"commitLogDiskRatio": "nan", "pageCacheLockTimeMills": "inf", "eventLoopLagMax": HOSTILE},
    ],
)
async def test_numbers_that_are_none_harm_nobody(autojump_clock: trio.testing.MockClock, table: dict[str, str]) -> None:
    cluster = Cluster({"ns:1": {106: info(a_0="a:1"), 318: b""}, "a:1": {28: runtime(1, **table), 26: CONFIG}})
    them = others(cluster, ["ns:1"])
    await them.look()
    assert them.seen.brokers[0].why == ""


async def test_many_visitors_cost_one_round(autojump_clock: trio.testing.MockClock) -> None:
    cluster = Cluster({"ns:1": {106: info(a_0="gone:1"), 318: b""}})
    them = others(cluster, ["ns:1"])
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(them.look)
    assert len(cluster.asked) == 4
    await trio.sleep(KEPT_SECONDS)
    await them.look()
    assert len(cluster.asked) == 8


async def test_more_brokers_than_are_asked_are_counted(autojump_clock: trio.testing.MockClock) -> None:
    table = {
        f"b{number:03}": BrokerData(broker_addrs={0: f"gone:{number}"}, broker_name=f"b{number:03}")
        for number in range(MOST_BROKERS + 7)
    }
    cluster = Cluster({"ns:1": {106: ClusterInfo(broker_addr_table=table).encode(), 318: b""}})
    them = others(cluster, ["ns:1"])
    await them.look()
    assert (len(them.seen.brokers), them.seen.brokers_left_out) == (MOST_BROKERS, 7)


async def test_bodies_that_cannot_be_read_are_the_fault_of_their_daemon(autojump_clock: trio.testing.MockClock) -> None:
    cluster = Cluster(
        {"ns:1": {106: info(a_0="b:1", c_0="b:2"), 318: b"\\u12"}, "b:1": {28: b"["}, "b:2": {28: runtime(1)}}
    )
    them = others(cluster, ["ns:1"])
    await them.look()
    assert [bool(one.why) for one in them.seen.brokers] == [True, False]
    assert them.seen.name_servers[0].dashboard_note


@pytest.mark.parametrize(
    ("values", "address", "here", "expected"),
    [
        ({}, "10.0.0.1:1", None, ("", "no dashboard")),
        ({"dashboardPort": "0"}, "10.0.0.1:1", None, ("", "no dashboard")),
        ({"dashboardPort": "99999"}, "10.0.0.1:1", None, ("", "no dashboard")),
        ({"dashboardPort": HOSTILE}, "10.0.0.1:1", None, ("", "no dashboard")),
        ({"dashboardPort": "80", "dashboardAddress": ""}, "10.0.0.1:1", None, ("http://10.0.0.1:80/", "")),
        ({"dashboardPort": "80", "dashboardAddress": "fd00::1"}, "x:1", None, ("http://[fd00::1]:80/", "")),
        ({"dashboardPort": "80", "dashboardTls": "true"}, "10.0.0.1:1", None, ("https://10.0.0.1:80/", "")),
        (
            {"dashboardPort": "80", "dashboardAddress": "127.0.0.1"},
            "10.0.0.1:1",
            "10.0.0.2",
            ("", "its dashboard is for its own machine"),
        ),
        (
            {"dashboardPort": "80", "dashboardAddress": "127.0.0.1"},
            "127.0.0.1:1",
            None,
            ("", "its dashboard is for its own machine"),
        ),
        (
            {"dashboardPort": "80", "dashboardAddress": "127.0.0.1"},
            "10.0.0.1:1",
            "10.0.0.1",
            ("http://127.0.0.1:80/", ""),
        ),
        (
            {"dashboardPort": "80", "dashboardAddress": "a/@evil"},
            "10.0.0.1:1",
            None,
            ("", "its dashboardAddress is not an address"),
        ),
    ],
)
def test_a_link_leads_where_a_browser_can_go_or_there_is_none(
    values: dict[str, str], address: str, here: str | None, expected: tuple[str, str]
) -> None:
    assert dashboard_of(values, address, here) == expected


async def test_a_name_server_shows_what_its_brokers_say(autojump_clock: trio.testing.MockClock) -> None:
    routes = RouteTable()
    routes.register(
        BrokerKey("c", "a", 0, "b:1"),
        ha_address="",
        data_version=DataVersion(),
        topics={},
        filter_servers=[],
        owner=object(),
        now=0.0,
    )
    cluster = Cluster({"b:1": {28: runtime(1), 26: CONFIG}})
    view = cluster_view(routes, lambda: nullcontext(cluster), None)
    assert view.gather is not None
    await view.gather(Ask())
    steps = view.make(Ask())
    next(steps)
    with pytest.raises(StopIteration) as ended:
        next(steps)
    data = ended.value.value
    assert [(one.name, one.role) for one in data["brokers"]] == [("a", "ASYNC_MASTER")]
    assert cluster.asked == [("b:1", 28), ("b:1", 26)]
