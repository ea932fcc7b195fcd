"""Topics and groups of all masters of a cluster, added up: asked at once, each with a limit, and who is lacking."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
import trio.testing

from triomq.dashboard import totals
from triomq.dashboard.others import ASK_SECONDS, KEPT_SECONDS, MOST_BROKERS
from triomq.dashboard.totals import Totals
from triomq.protocol.bodies.broker_totals import BrokerTotals, GroupTotals, TopicTotals
from triomq.protocol.bodies.route import BrokerData, ClusterInfo
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.remoting.errors import RemotingTimeout

CODE = RequestCode.QUERY_BROKER_TOTALS


class Cluster:
    """Daemons by address, each with the body of its response, or the code that it refuses with. Others are silent."""

    def __init__(self, daemons: dict[str, bytes | int]) -> None:
        self.daemons = daemons
        self.asked: list[tuple[str, int]] = []

    async def invoke(self, address: str, command: RemotingCommand, timeout_seconds: float) -> RemotingCommand:
        self.asked.append((address, command.code))
        said = self.daemons.get(address)
        if said is None:
            await trio.sleep(timeout_seconds)
            raise RemotingTimeout(f"no response within {timeout_seconds:g} s")
        if isinstance(said, int):
            return new_response(command, said, remark="request type 30005 not supported")
        return new_response(command, body=said)


def known(masters: dict[str, str], cluster: str = "c", broker_id: int = 0) -> bytes:
    """Return what a NameServer knows: addresses by broker name."""
    table = {
        name: BrokerData(broker_addrs={broker_id: address}, broker_name=name, cluster=cluster)
        for name, address in masters.items()
    }
    return ClusterInfo(broker_addr_table=table, cluster_addr_table={cluster: frozenset(table)}).encode()


def topic(name: str, messages: int, kind: str = "normal") -> TopicTotals:
    return TopicTotals(
        name=name,
        kind=kind,
        messages=messages,
        per_second=1.5,
        bytes_per_second=100.0,
        read_queues=4,
        write_queues=4,
    )


def group(name: str, lag: int, *ids: str, members: int | None = None, age_ms: int = 0, dead: int = 0) -> GroupTotals:
    count = members if members is not None else len(ids)
    return GroupTotals(
        name=name,
        lag=lag,
        members=count,
        client_ids=list(ids),
        age_ms=age_ms,
        dead_letters=dead,
        in_flight=1,
        per_second=0.5,
    )


def said(*topics: TopicTotals, groups: tuple[GroupTotals, ...] = (), **head: object) -> bytes:
    """Return the body of a response, each row in a document of its own."""
    rows = [*[BrokerTotals(topics=[row]) for row in topics], *[BrokerTotals(groups=[row]) for row in groups]]
    return b"\n".join([BrokerTotals(**head).line(), *[document.line() for document in rows]])  # type: ignore[arg-type]


def own() -> Iterator[BrokerTotals]:
    yield BrokerTotals(stored_per_second=2.0, read_per_second=1.0)
    yield BrokerTotals(topics=[topic("T", 10), topic("SCHEDULE", 7, "delay")])
    yield BrokerTotals(groups=[group("G", 5, "c1", "c2", age_ms=10), group("tools", 9)])


def sums_of(cluster: Cluster, *name_servers: str, is_slave: bool = False) -> Totals:
    return Totals(
        cluster,
        lambda: list(name_servers),
        lambda: None if is_slave else own(),
        name="a",
        cluster="c",
        counts=(lambda kind: kind != "delay", lambda name: name != "tools"),
        here=None,
    )


DASHBOARD = {"dashboardPort": "8082", "dashboardAddress": "0.0.0.0", "dashboardTls": "false"}


async def test_topics_and_groups_are_summed_and_who_is_lacking_is_named(
    autojump_clock: trio.testing.MockClock,
) -> None:
    masters = {"a": "own:1", "b": "b:1", "hung": "gone:1", "java": "java:1", "no": "no:1"}
    cluster = Cluster(
        {
            "ns:1": known(masters),
            "b:1": said(
                topic("T", 20),
                topic("U", 3),
                groups=(group("G", 2, "c2", "c3", age_ms=50, dead=4),),
                dashboard=DASHBOARD,
                stored_per_second=0.5,
                topics_left_out=2,
            ),
            "java:1": ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            "no:1": ResponseCode.NO_PERMISSION,
        }
    )
    them = sums_of(cluster, "ns:1", "gone:2")
    began = trio.current_time()
    await them.look()
    assert trio.current_time() - began == pytest.approx(2 * ASK_SECONDS), "NameServers at once, then brokers at once"
    seen = them.seen
    found = seen.topic("T")
    assert found is not None
    assert (found.messages, found.per_second, found.bytes_per_second, found.read_queues) == (30, 3.0, 200.0, 8)
    both = seen.group("G")
    assert both is not None
    assert (both.members, both.has_all_members, both.lag, both.in_flight, both.age_ms, both.dead_letters) == (
        *(3, True, 7, 2),
        *(50, 4),
    ), "a client of both brokers is one member"
    assert {one.name: row.messages for one, row in seen.topics["T"]} == {"a": 10, "b": 20}
    assert (seen.topic("nothing"), seen.group("nothing")) == (None, None)
    brokers = {one.name: one for one in seen.masters}
    assert (brokers["b"].dashboard, brokers["b"].left_out) == ("http://b:8082/", 2)
    assert (brokers["a"].topics, brokers["a"].groups, brokers["a"].lag) == (1, 1, 5), "the users' own"
    assert (seen.users_topics, seen.users_groups) == (2, 1)
    assert "no response" in brokers["hung"].why
    assert [name for name, one in brokers.items() if one.why] == ["hung", "java", "no"]
    assert [name for name, one in brokers.items() if one.is_unknown_code] == ["java"]
    assert seen.problem == "", "one NameServer is enough"
    assert ("own:1", CODE) not in cluster.asked


async def test_slaves_and_other_clusters_are_not_asked_and_a_slave_asks_its_master(
    autojump_clock: trio.testing.MockClock,
) -> None:
    cluster = Cluster(
        {
            "ns:1": known({"b": "slave:1"}, broker_id=1),
            "ns:2": known({"x": "x:1"}, cluster="another"),
            "ns:3": known({"a": "a:1"}),
            "a:1": said(topic("T", 4)),
        }
    )
    them = sums_of(cluster, "ns:1", "ns:2", "ns:3", is_slave=True)
    await them.look()
    assert [address for address, code in cluster.asked if code == CODE] == ["a:1"]
    assert [(one.name, row.messages) for one, row in them.seen.topics["T"]] == [("a", 4)]


async def test_many_visitors_cost_one_round_of_sums(autojump_clock: trio.testing.MockClock) -> None:
    cluster = Cluster({"ns:1": known({"b": "b:1"}), "b:1": said(topic("T", 1))})
    them = sums_of(cluster, "ns:1")
    async with trio.open_nursery() as nursery:
        for _ in range(20):
            nursery.start_soon(them.look)
    assert len(cluster.asked) == 2
    await trio.sleep(KEPT_SECONDS)
    await them.look()
    assert len(cluster.asked) == 4


async def test_members_that_are_too_many_to_name_are_at_least_as_many(autojump_clock: trio.testing.MockClock) -> None:
    cluster = Cluster({"ns:1": known({"b": "b:1"}), "b:1": said(groups=(group("G", 0, members=900),))})
    them = sums_of(cluster, "ns:1")
    await them.look()
    found = them.seen.group("G")
    assert found is not None
    assert (found.members, found.has_all_members) == (900, False)


@pytest.mark.parametrize(
    "body",
    [
        b"[",
        b'{"topics":[{"name":"T","messages":' + b"9" * 40 + b"}]}",
        b'{"topics":[{"name":"T","perSecond":1e300}]}',
        b'{"groups":[{"name":"' + b"g" * 2000 + b'"}]}',
    ],
)
async def test_what_cannot_be_read_is_the_fault_of_its_broker(
    autojump_clock: trio.testing.MockClock, body: bytes
) -> None:
    cluster = Cluster({"ns:1": known({"b": "b:1"}), "b:1": body})
    them = sums_of(cluster, "ns:1")
    await them.look()
    assert [bool(one.why) for one in them.seen.masters] == [False, True]
    assert them.seen.topic("T") is not None


async def test_rows_and_brokers_beyond_the_bounds_are_counted(
    autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(totals, "MOST_ROWS", 6)
    twice = said(topic("T", 1), topic("T", 1), topic("U", 1), topic("V", 1), groups=(group("G", 1), group("H", 1)))
    names = {f"b{number:03}": f"gone:{number}" for number in range(MOST_BROKERS + 2)}
    cluster = Cluster({"ns:1": known({"b": "b:1", **names}), "b:1": twice})
    them = sums_of(cluster, "ns:1")
    await them.look()
    brokers = {one.name: one for one in them.seen.masters}
    assert (brokers["a"].left_out + brokers["b"].left_out, them.seen.masters_left_out) == (4, 3)
    assert all(len({one.name for one, _ in parts}) == len(parts) for parts in them.seen.topics.values())


async def test_without_name_servers_the_sum_is_this_broker_and_says_why(autojump_clock: trio.testing.MockClock) -> None:
    alone = sums_of(Cluster({}))
    await alone.look()
    assert ([one.name for one in alone.seen.masters], alone.seen.problem) == (["a"], "")
    away = sums_of(Cluster({}), "gone:1")
    await away.look()
    assert ([one.name for one in away.seen.masters], away.seen.problem) == (["a"], "no response within 2 s")
