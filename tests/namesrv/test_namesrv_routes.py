"""The route tables alone: which entries appear and disappear, and what else goes with them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from triomq.namesrv import contests, departed
from triomq.namesrv.brokers import SILENT_SECONDS, BrokerKey, MasterAddress
from triomq.namesrv.route_limits import RouteLimits
from triomq.namesrv.routes import RouteTable
from triomq.protocol import permission
from triomq.protocol.bodies.topic_config import DataVersion, TopicConfig
from triomq.protocol.errors import RequestRefused


def register(
    table: RouteTable,
    *topics: str,
    name: str = "b-a",
    broker_id: int = 0,
    address: str = "a:1",
    cluster: str = "C",
    version: int = 1,
    owner: object = None,
    now: float = 0,
    origin: str = "",
) -> MasterAddress:
    return table.register(
        BrokerKey(cluster, name, broker_id, address, origin),
        ha_address=f"{address}-ha",
        data_version=DataVersion(counter=version, timestamp=1),
        topics={topic: TopicConfig(topic_name=topic) for topic in topics},
        filter_servers=[],
        owner=owner,
        now=now,
    )


def addresses(table: RouteTable) -> dict[str, dict[int, str]]:
    return {name: dict(data.broker_addrs) for name, data in table.brokers.cluster_info().broker_addr_table.items()}


def test_topics_missing_from_a_registration_stay() -> None:
    table = RouteTable()
    register(table, "T", "U")
    register(table, "V", version=2)
    assert table.topics() == ["T", "U", "V"]


def protected_table() -> RouteTable:
    table = RouteTable()
    table.is_protected = True
    register(table, "T", address="a:1", origin="10.0.0.1", owner="real")
    return table


@pytest.mark.parametrize("taken", [{"address": "evil:1"}, {"address": "a:1"}, {"address": "a:1", "name": "other"}])
def test_a_live_broker_belongs_to_the_host_it_registered_from(taken: dict[str, Any]) -> None:
    table = protected_table()
    with pytest.raises(RequestRefused, match=r"registered from 10\.0\.0\.1; 10\.0\.0\.9 cannot"):
        register(table, "T", version=2, origin="10.0.0.9", **taken)
    with pytest.raises(RequestRefused, match="protectRoutes"):
        table.unregister(BrokerKey("C", "b-a", 0, "a:1", "10.0.0.9"))
    assert addresses(table) == {"b-a": {0: "a:1"}}


def test_the_same_host_may_move_its_broker_and_a_slave_joins_from_another() -> None:
    table = protected_table()
    register(table, "T", address="a:2", origin="10.0.0.1", version=2)
    register(table, address="s:1", broker_id=1, origin="10.0.0.2")
    assert addresses(table) == {"b-a": {0: "a:2", 1: "s:1"}}
    table.unregister(BrokerKey("C", "b-a", 0, "a:2", "10.0.0.1"))
    assert addresses(table) == {"b-a": {1: "s:1"}}


def test_a_broker_that_is_gone_may_come_back_from_another_host() -> None:
    table = protected_table()
    table.drop_owner("real")
    register(table, "T", address="b:1", origin="10.0.0.9")
    assert addresses(table) == {"b-a": {0: "b:1"}}


def test_without_protection_another_host_may_replace_a_broker() -> None:
    table = protected_table()
    table.is_protected = False
    register(table, "T", address="b:1", origin="10.0.0.9")
    assert addresses(table) == {"b-a": {0: "b:1"}}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"name": "second"}, "broker names"),
        ({"cluster": "second"}, "cluster names"),
    ],
)
def test_a_registration_beyond_a_limit_changes_nothing(changes: dict[str, Any], reason: str) -> None:
    table = RouteTable(RouteLimits(broker_count=1))
    register(table, "T")
    before = addresses(table)
    with pytest.raises(RequestRefused, match=reason):
        register(table, "T", "U", version=2, **changes)
    assert (addresses(table), table.topics()) == (before, ["T"])


def test_one_address_takes_a_bounded_number_of_ids_and_clusters() -> None:
    """It needs one connection to come under any number of names, ids and clusters."""
    table = RouteTable(RouteLimits(broker_count=2))
    register(table, "T")
    register(table, "T", name="b-b")
    before = addresses(table)
    assert before == {"b-a": {0: "a:1"}, "b-b": {0: "a:1"}}
    with pytest.raises(RequestRefused, match="2 ids of brokers are registered"):
        register(table, "T", broker_id=1, address="a:1")
    with pytest.raises(RequestRefused, match="2 broker names in clusters"):
        register(table, "T", cluster="second")
    assert addresses(table) == before
    register(table, "T", version=2)


def test_routes_are_counted_whatever_topics_and_brokers_they_are_of() -> None:
    table = RouteTable()
    register(table, "T", "U")
    assert table.sizes() == {"topics": 2, "broker_names": 1, "brokers": 1}
    register(table, "T", name="b-b", address="b:1")
    register(table, "T", "U", version=2)  # nothing new
    table.delete_topic("T")
    assert table.route_count == 1
    register(table, "T", "V", name="b-b", address="b:1", version=2)
    table.delete_topic("V", "C")
    assert table.route_count == 2
    table.drop_silent(SILENT_SECONDS + 100)
    assert table.route_count == 0


def test_an_unchanged_data_version_changes_no_topic() -> None:
    table = RouteTable()
    register(table, "T")
    revision = table.revision
    register(table, "T", "U")
    assert table.topics() == ["T"]
    assert table.revision == revision


@pytest.mark.parametrize("cluster", [None, "C"])
def test_a_deleted_topic_comes_back_with_a_broker_that_still_has_it(cluster: str | None) -> None:
    """It was away when the other brokers deleted the topic, so its data version has not changed."""
    table = RouteTable()
    register(table, "T", "U")
    register(table, "T", name="b-b", address="b:1")
    table.delete_topic("T", cluster)
    assert table.topics() == ["U"]
    register(table, "T", "U")
    route = table.route("T")
    assert route is not None and [data.broker_name for data in route.queue_datas] == ["b-a"]
    register(table, "V")
    assert table.route("V") is None, "the data version counts again"


def test_a_registration_of_single_topics_does_not_hide_that_another_was_deleted() -> None:
    table = RouteTable()
    register(table, "T", "U")
    table.delete_topic("T")
    register(table, "V", version=2)
    assert table.topics() == ["U", "V"]
    register(table, "T", "U", "V", version=2)
    assert sorted(table.topics()) == ["T", "U", "V"]


def test_only_brokers_that_lose_a_topic_are_asked_for_theirs_again() -> None:
    table = RouteTable()
    register(table, "T")
    register(table, "U", name="b-b", address="b:1")
    table.delete_topic("T")
    version = DataVersion(counter=1, timestamp=1)
    assert table.brokers.is_changed("a:1", version)
    assert not table.brokers.is_changed("b:1", version)
    assert table.sizes()["brokers"] == 2, "both are alive"


def test_a_removed_write_permission_stays_and_an_added_one_gives_way_to_the_broker() -> None:
    """A broker that is taken out of service stays so; one that is put back has its own permissions."""
    table = RouteTable()
    own = TopicConfig(topic_name="T", perm=permission.READ_WRITE)
    read_only = TopicConfig(topic_name="R", perm=permission.READ)

    def perms() -> list[int]:
        for _ in range(2):
            table.register(
                BrokerKey("C", "b-a", 0, "a:1"),
                ha_address="",
                data_version=DataVersion(counter=1, timestamp=1),
                topics={"T": own, "R": read_only},
                filter_servers=[],
                owner=None,
                now=0,
            )
        routes = [table.route(topic) for topic in ("T", "R")]
        return [route.queue_datas[0].perm for route in routes if route is not None]

    assert perms() == [permission.READ_WRITE, permission.READ]
    table.wipe_write_perm("b-a")
    assert perms() == [permission.READ, permission.READ]
    table.add_write_perm("b-a")
    assert perms() == [permission.READ_WRITE, permission.READ]


def test_a_slave_that_takes_the_place_of_another_master_brings_its_topics() -> None:
    """The data version of a slave is known, but its topics never counted."""
    table = RouteTable()
    register(table, "T")
    register(table, "T", "U", broker_id=1, address="s:1", version=2)
    register(table, "T", "U", address="s:1", version=2)
    assert addresses(table) == {"b-a": {0: "s:1"}}
    assert table.topics() == ["T", "U"]


def test_a_slave_brings_no_topics() -> None:
    table = RouteTable()
    register(table, "T", broker_id=1)
    assert table.topics() == []
    assert table.route("T") is None


def test_a_slave_that_becomes_master_brings_its_topics() -> None:
    table = RouteTable()
    register(table, "T", broker_id=1)
    register(table, "T", broker_id=0)
    assert addresses(table) == {"b-a": {0: "a:1"}}
    assert table.topics() == ["T"]


def test_a_master_at_a_new_address_brings_its_topics() -> None:
    table = RouteTable()
    register(table, "T")
    register(table, "U", address="b:1")
    assert addresses(table) == {"b-a": {0: "b:1"}}
    assert table.topics() == ["T", "U"]


def test_a_slave_learns_only_of_a_live_master() -> None:
    table = RouteTable()
    register(table, broker_id=0, now=0)
    assert register(table, broker_id=1, address="s:1", now=100) == MasterAddress("a:1", "a:1-ha")
    table.drop_silent(SILENT_SECONDS + 1)
    assert register(table, broker_id=1, address="s:1", now=130) == MasterAddress()


def test_the_last_address_of_a_name_takes_everything_along() -> None:
    table = RouteTable()
    register(table, "T", "U")
    register(table, broker_id=1, address="s:1")
    register(table, "T", name="b-b", address="b:1")
    table.unregister(BrokerKey("C", "b-a", 0, "a:1"))
    assert sorted(table.topics()) == ["T", "U"]
    table.unregister(BrokerKey("C", "b-a", 1, "s:1"))
    assert table.topics() == ["T"]
    assert addresses(table) == {"b-b": {0: "b:1"}}
    table.unregister(BrokerKey("C", "b-b", 0, "b:1"))
    assert table.sizes() == {"topics": 0, "broker_names": 0, "brokers": 0}
    assert table.brokers.cluster_info().cluster_addr_table == {}


def test_a_late_unregistration_does_not_remove_the_successor() -> None:
    table = RouteTable()
    register(table, "T", address="old:1")
    register(table, "T", address="new:1")
    table.unregister(BrokerKey("C", "b-a", 0, "old:1"))
    assert addresses(table) == {"b-a": {0: "new:1"}}
    assert table.route("T") is not None


def test_a_closed_connection_takes_only_its_own_brokers() -> None:
    table = RouteTable()
    first, second = object(), object()
    register(table, "T", owner=first)
    register(table, "U", name="b-b", address="b:1", owner=second)
    assert table.drop_owner(object()) == []
    assert table.drop_owner(first) == ["a:1"]
    assert table.topics() == ["U"]
    # b-b has registered over another connection since.
    register(table, "U", name="b-b", address="b:1", owner=first)
    assert table.drop_owner(second) == []
    assert addresses(table) == {"b-b": {0: "b:1"}}


def test_a_broker_that_is_silent_for_too_long_is_dropped_with_its_owner() -> None:
    table = RouteTable()
    owner = object()
    register(table, "T", now=0, owner=owner)
    register(table, "U", name="b-b", address="b:1", now=50)
    assert table.drop_silent(SILENT_SECONDS) == []
    assert table.drop_silent(SILENT_SECONDS + 1) == [("a:1", owner)]
    table.brokers.seen("b:1", 100)
    table.brokers.seen("unknown:1", 100)
    assert table.drop_silent(100 + SILENT_SECONDS) == []
    assert table.topics() == ["U"]


def test_a_full_table_refuses_as_a_whole() -> None:
    table = RouteTable(RouteLimits(topic_count=2, broker_count=1))
    register(table, "T", "U")
    with pytest.raises(RequestRefused, match="there would be 3 topics"):
        register(table, "U", "V", version=2)
    with pytest.raises(RequestRefused, match="1 brokers are registered"):
        register(table, name="b-b", address="b:1")
    assert table.sizes() == {"topics": 2, "broker_names": 1, "brokers": 1}
    assert not table.brokers.is_changed("a:1", DataVersion(counter=1, timestamp=1))


NAMES = st.sampled_from(["b-a", "b-b"])
ADDRESSES = st.sampled_from(["a:1", "b:1", "c:1"])
IDS = st.integers(0, 2)
CLUSTERS = st.sampled_from(["C", "D"])
TOPICS = st.lists(st.sampled_from(["T", "U", "V"]), max_size=3)


class AnyOrderOfEvents(RuleBasedStateMachine):
    """After any sequence of events the tables agree with each other."""

    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.now = 0.0
        self.version = 0
        self.seen: tuple[int, Any] = (-1, None)

    @rule(name=NAMES, address=ADDRESSES, broker_id=IDS, cluster=CLUSTERS, topics=TOPICS, owner=st.integers(0, 2))
    def registers(self, name: str, address: str, broker_id: int, cluster: str, topics: list[str], owner: int) -> None:
        self.version += 1
        register(
            self.table,
            *topics,
            name=name,
            broker_id=broker_id,
            address=address,
            cluster=cluster,
            version=self.version,
            owner=_OWNERS[owner],
            now=self.now,
        )

    @rule(name=NAMES, address=ADDRESSES, broker_id=IDS, cluster=CLUSTERS)
    def unregisters(self, name: str, address: str, broker_id: int, cluster: str) -> None:
        self.table.unregister(BrokerKey(cluster, name, broker_id, address))

    @rule(owner=st.integers(0, 2))
    def connection_closes(self, owner: int) -> None:
        self.table.drop_owner(_OWNERS[owner])

    @rule(seconds=st.floats(0, 200))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.table.drop_silent(self.now)

    @rule(topic=st.sampled_from(["T", "U"]), cluster=st.none() | CLUSTERS)
    def topic_is_deleted(self, topic: str, cluster: str | None) -> None:
        self.table.delete_topic(topic, cluster)

    @rule(name=NAMES)
    def write_perm_changes(self, name: str) -> None:
        self.table.wipe_write_perm(name)

    @invariant()
    def tables_agree(self) -> None:
        info = self.table.brokers.cluster_info()
        names = set(info.broker_addr_table)
        assert all(data.broker_addrs for data in info.broker_addr_table.values())
        assert all(info.cluster_addr_table.values())
        assert set().union(*info.cluster_addr_table.values()) == names
        for topic in self.table.topics():
            route = self.table.route(topic)
            assert route is not None
            assert (
                {queues.broker_name for queues in route.queue_datas}
                == {broker.broker_name for broker in route.broker_datas}
                <= names
            )

    @invariant()
    def revision_tells_of_changes(self) -> None:
        shown = {topic: self.table.route(topic) for topic in ("T", "U", "V")}
        revision, before = self.seen
        if before is not None and shown != before:
            assert self.table.revision != revision
        self.seen = (self.table.revision, shown)


_OWNERS = [object(), object(), object()]
TestAnyOrderOfEvents = AnyOrderOfEvents.TestCase


def gone(table: RouteTable, now: float) -> list[tuple[str, int, str, int, bool, list[str]]]:
    return [
        (left.broker_name, left.broker_id, left.broker_addr, left.seen_ms_ago, left.orderly, left.topics)
        for left in table.departed(now).brokers
    ]


def test_brokers_that_left_are_remembered_with_topics_that_nobody_else_has() -> None:
    table = RouteTable()
    register(table, "b-a", "%RETRY%g", "TBW102", "T", "U", address="a:1", now=10, owner="one")
    register(table, "U", name="b-b", address="b:1", now=20)
    table.unregister(BrokerKey("C", "b-b", 0, "b:1"))
    assert gone(table, 21) == [("b-b", 0, "b:1", 1000, True, [])], "the other one has its topic"
    table.drop_owner("one")
    assert gone(table, 40) == [("b-b", 0, "b:1", 20_000, True, ["U"]), ("b-a", 0, "a:1", 30_000, False, ["T", "U"])]
    register(table, "U", name="b-b", address="b:1", now=50)
    assert gone(table, 50) == [("b-a", 0, "a:1", 40_000, False, ["T"])]
    register(table, name="b-a", address="a:2", now=60)
    assert gone(table, 60) == [], "it came back with another address"
    assert table.departed(60).brokers == []


def test_those_that_left_are_forgotten_after_a_day_and_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departed, "MOST", 2)
    table = RouteTable()
    for number in range(3):
        register(table, "T", name=f"b-{number}", address=f"a:{number}", now=number)
        table.unregister(BrokerKey("C", f"b-{number}", 0, f"a:{number}"))
    assert [name for name, *_ in gone(table, 3)] == ["b-1", "b-2"]
    table.brokers.time_jumped(100)
    assert [age for *_, age, _, _ in gone(table, 103)] == [2000, 1000]
    assert [name for name, *_ in gone(table, departed.KEPT_SECONDS + 102)] == ["b-2"]
    assert gone(table, departed.KEPT_SECONDS + 103) == []
    register(table, "T", name="b" * 256)
    table.unregister(BrokerKey("C", "b" * 256, 0, "a:1"))
    assert gone(table, 0) == []


def contested(table: RouteTable, now: float) -> list[tuple[str, int, list[str]]]:
    return [(one.broker_name, one.broker_id, one.broker_addrs) for one in table.departed(now).contested]


def test_two_masters_of_one_name_are_contested_until_one_gives_up() -> None:
    table = RouteTable()
    for now, address in enumerate(("a:1", "a:2")):
        register(table, name="b", address=address, now=now)
    assert contested(table, 1) == [], "a master that was replaced lost its place once"
    register(table, name="b", address="a:1", now=2)
    assert contested(table, 2) == [("b", 0, ["a:1", "a:2"])]
    table.brokers.time_jumped(100)
    assert contested(table, 101 + contests.CONTEST_SECONDS) == [("b", 0, ["a:1", "a:2"])]
    assert contested(table, 102 + contests.CONTEST_SECONDS) == [], "the first loss is long ago"
    register(table, name="b", address="a:2", now=300)
    register(table, name="b", address="a:1", now=301)
    assert contested(table, 301) == [("b", 0, ["a:1", "a:2"])]
    table.unregister(BrokerKey("C", "b", 0, "a:2"))
    assert contested(table, 301) == []


def test_a_master_that_comes_back_as_a_slave_contests_nothing() -> None:
    table = RouteTable()
    for now, (address, broker_id) in enumerate([("a:1", 0), ("a:2", 1), ("a:2", 0), ("a:1", 1), ("a:1", 0)]):
        register(table, name="b", address=address, broker_id=broker_id, now=now)
    assert contested(table, 5) == [], "the roles changed twice"


def test_contests_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contests, "MOST_CONTESTED_NAMES", 2)
    monkeypatch.setattr(contests, "MOST_CONTESTANTS", 2)
    table = RouteTable()
    for number in range(3):
        for address in ("a:1", "a:2", "a:3", "a:1"):
            register(table, name=f"b-{number}", address=address, now=1)
    assert contested(table, 1) == [("b-1", 0, ["a:2", "a:3"]), ("b-2", 0, ["a:2", "a:3"])]
    for address in ("a:1", "a:2", "a:1"):
        register(table, name="b" * 256, address=address, now=1)
    assert [name for name, *_ in contested(table, 1)] == ["b-1", "b-2"]
