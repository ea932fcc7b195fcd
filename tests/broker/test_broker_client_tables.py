import pytest
from broker_fakes import FakeConnection
from fake_clock import FakeClock
from hypothesis import given
from hypothesis import strategies as st

from triomq.broker.errors import TableFull
from triomq.broker.tables.client_channel import NEVER, ClientChannel
from triomq.broker.tables.consumers import ConsumerGroup, ConsumerTable, Consumption
from triomq.broker.tables.producers import ProducerTable
from triomq.broker.tables.queue_locks import QueueLockTable
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.subscription import SubscriptionData, build_subscription
from triomq.remoting.table_memory import TableMemory


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class Events:
    """Records the callbacks of a ConsumerTable."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, list[str]]] = []
        self.registered: list[tuple[str, list[SubscriptionData]]] = []
        self.gone: list[str] = []

    def on_change(self, group: str, members: list[ClientChannel]) -> None:
        self.changes.append((group, [member.client_id for member in members]))

    def on_register(self, group: str, subscriptions: list[SubscriptionData]) -> None:
        self.registered.append((group, subscriptions))

    def on_gone(self, group: str) -> None:
        self.gone.append(group)


def heartbeat(
    table: ConsumerTable,
    connection: FakeConnection,
    client_id: str = "c1",
    group: str = "G",
    subscriptions: list[SubscriptionData] | None = None,
    **more: object,
) -> bool:
    return table.register(
        group,
        connection,
        client_id,
        0,
        407,
        Consumption(),
        [build_subscription("T", "*", sub_version=1)] if subscriptions is None else subscriptions,
        **more,
    )


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def consumers(clock: FakeClock, events: Events) -> ConsumerTable:
    return ConsumerTable(clock, on_change=events.on_change, on_register=events.on_register, on_gone=events.on_gone)


# -- producers -------------------------------------------------------------------------------------------------------


def test_producer_heartbeats_and_leaving(clock: FakeClock) -> None:
    table = ProducerTable(clock)
    connection = FakeConnection()
    assert table.register("P", connection, "c1", 0, 407)
    assert not table.register("P", connection, "c1", 0, 407)
    table.register("P2", connection, "c1", 0, 407)
    assert table.connection_of_client("c1") is connection
    assert table.unregister("P", connection)
    assert table.channels("P") is None
    assert table.connection_of_client("c1") is connection, "still a member of P2"
    assert table.leave(connection, 1000) is False
    assert table.connection_of_client("c1") is None
    assert not table.unregister("P2", connection)


def test_producer_that_came_back_keeps_its_new_connection(clock: FakeClock) -> None:
    table = ProducerTable(clock)
    old, new = FakeConnection("10.0.0.1:1"), FakeConnection("10.0.0.1:2")
    table.register("P", old, "c1", 0, 407)
    table.register("P", new, "c1", 0, 407)
    table.leave(old, 1000)
    assert table.connection_of_client("c1") is new


def test_producer_pick_goes_round_and_skips_closed_connections(clock: FakeClock) -> None:
    table = ProducerTable(clock)
    connections = [FakeConnection(f"10.0.0.1:{port}") for port in (1, 2, 3)]
    for number, connection in enumerate(connections):
        table.register("P", connection, f"c{number}", 0, 407)
    assert {table.pick("P").client_id for _ in range(3)} == {"c0", "c1", "c2"}  # type: ignore[union-attr]
    connections[0].close()
    connections[1].close()
    assert {table.pick("P").client_id for _ in range(5)} == {"c2"}  # type: ignore[union-attr]
    assert table.pick("P", lambda connection: False) is None
    connections[2].close()
    assert table.pick("P") is None
    assert table.pick("unknown") is None


def test_producers_without_heartbeat_expire(clock: FakeClock) -> None:
    table = ProducerTable(clock)
    silent, alive = FakeConnection("10.0.0.1:1"), FakeConnection("10.0.0.1:2")
    table.register("P", silent, "c1", 0, 407)
    table.register("P", alive, "c2", 0, 407)
    clock.advance(120_000)
    table.register("P", alive, "c2", 0, 407)
    assert list(table.expire()) == []
    assert silent.is_open
    clock.advance(1)
    assert list(table.expire()) == []
    assert not silent.is_open
    assert alive.is_open
    assert [channel.client_id for channel in table.channels("P") or []] == ["c2"]


def test_producer_limits(clock: FakeClock) -> None:
    table = ProducerTable(clock, max_groups=1, max_channels=2)
    table.register("P", FakeConnection("10.0.0.1:1"), "c1", 0, 407)
    with pytest.raises(TableFull, match="producer groups is full"):
        table.register("Q", FakeConnection("10.0.0.1:2"), "c2", 0, 407)
    table.register("P", FakeConnection("10.0.0.1:3"), "c3", 0, 407)
    with pytest.raises(TableFull, match="producer connections is full"):
        table.register("P", FakeConnection("10.0.0.1:4"), "c4", 0, 407)


# -- consumers -------------------------------------------------------------------------------------------------------


def test_consumer_joins_and_everybody_hears_of_it_once(consumers: ConsumerTable, events: Events) -> None:
    first, second = FakeConnection("10.0.0.1:1"), FakeConnection("10.0.0.1:2")
    assert heartbeat(consumers, first, "c1")
    assert not heartbeat(consumers, first, "c1")
    assert heartbeat(consumers, second, "c2")
    assert events.changes == [("G", ["c1"]), ("G", ["c1", "c2"])]
    assert len(events.registered) == 3
    group = consumers.get("G")
    assert group is not None
    assert group.client_ids() == ["c1", "c2"]
    assert group.member("c2") is not None
    assert group.member("c3") is None


def test_client_that_came_back_counts_once_and_is_called_over_its_new_connection(consumers: ConsumerTable) -> None:
    old, new = FakeConnection("10.0.0.1:1"), FakeConnection("10.0.0.1:2")
    heartbeat(consumers, old, "c1")
    heartbeat(consumers, new, "c1")
    group = consumers.get("G")
    assert group is not None
    assert group.client_ids() == ["c1"]
    assert group.member("c1") is group.channels[new]
    new.close()
    assert group.member("c1") is group.channels[old]


def test_changes_are_not_announced_when_the_group_does_not_want_it(consumers: ConsumerTable, events: Events) -> None:
    heartbeat(consumers, FakeConnection(), notify=False)
    assert events.changes == []
    assert len(events.registered) == 1


def test_subscriptions_follow_the_newest_version(consumers: ConsumerTable, events: Events) -> None:
    connection = FakeConnection()
    new = build_subscription("T", "B", sub_version=5)
    heartbeat(consumers, connection, subscriptions=[new])
    old = build_subscription("T", "A", sub_version=4)
    assert not heartbeat(consumers, connection, subscriptions=[old])
    assert consumers.subscription("G", "T") == new
    newest = build_subscription("T", "C", sub_version=6)
    assert not heartbeat(consumers, connection, subscriptions=[newest]), "another expression is no rebalance"
    assert consumers.subscription("G", "T") == newest


def test_topics_that_come_and_go_are_changes(consumers: ConsumerTable) -> None:
    connection = FakeConnection()
    one, two = build_subscription("T", "*", sub_version=1), build_subscription("U", "*", sub_version=1)
    heartbeat(consumers, connection, subscriptions=[one])
    assert heartbeat(consumers, connection, subscriptions=[one, two])
    assert consumers.groups_of_topic("U") == ["G"]
    assert heartbeat(consumers, connection, subscriptions=[two])
    assert consumers.groups_of_topic("T") == []
    assert consumers.subscription("nobody", "T") is None


def test_a_repeated_heartbeat_keeps_its_member_and_changes_nothing(
    consumers: ConsumerTable, events: Events, clock: FakeClock
) -> None:
    connection = FakeConnection()
    wanted = [build_subscription("T", "A", sub_version=5), build_subscription("U", "*", sub_version=7)]
    heartbeat(consumers, connection, subscriptions=wanted)
    clock.advance(100_000)
    older = [build_subscription("U", "*", sub_version=6), build_subscription("T", "A", sub_version=4)]
    assert not heartbeat(consumers, connection, subscriptions=older)
    group = consumers.get("G")
    assert group is not None
    assert group.channels[connection].last_update_ms == clock.now_ms
    assert group.channels[connection].since_ms == 6
    assert group.subscriptions == {"T": wanted[0], "U": wanted[1]}
    assert events.registered == [("G", wanted), ("G", older)], "the filters hear of it"
    newer = [build_subscription("U", "*", sub_version=7), build_subscription("T", "A", sub_version=6)]
    assert not heartbeat(consumers, connection, subscriptions=newer)
    assert group.subscriptions == {"T": newer[1], "U": wanted[1]}
    assert len(events.changes) == 1


def test_a_repeated_heartbeat_is_compared_again_when_the_group_has_changed(consumers: ConsumerTable) -> None:
    first, second, third = (FakeConnection(f"10.0.0.1:{number}") for number in range(3))
    heartbeat(consumers, first, "c1", subscriptions=[build_subscription("T", "A", sub_version=5)])
    heartbeat(consumers, second, "c2", subscriptions=[build_subscription("T", "A", sub_version=5)])
    consumers.unregister("G", second)
    heartbeat(consumers, third, "c3", subscriptions=[build_subscription("T", "B", sub_version=6)])
    assert consumers.disagreement("G") == "", "it may be the successor of the one that left"
    heartbeat(consumers, first, "c1", subscriptions=[build_subscription("T", "A", sub_version=5)])
    assert "c1 to T 'A', c3 or others to T 'B'" in consumers.disagreement("G")


SUBSCRIBED = st.lists(
    st.tuples(
        st.sampled_from("TU"), st.sampled_from(["*", "A"]), st.sampled_from(["TAG", None, "SQL92"]), st.integers(0, 2)
    ),
    max_size=2,
)
BEATS = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 2), st.sampled_from(["", "again"]), SUBSCRIBED),
        st.tuples(st.integers(0, 2), st.just("again"), st.none()),
        st.tuples(st.integers(0, 2), st.just("leave"), st.none()),
        st.tuples(st.integers(1, 2), st.just("wait"), st.none()),
    ),
    max_size=30,
)


@given(BEATS)
def test_a_repeated_heartbeat_has_the_effects_of_one_that_is_looked_at_in_full(
    beats: list[tuple[int, str, list[tuple[str, str, str | None, int]] | None]],
) -> None:
    clock = FakeClock()
    memory = [TableMemory(), TableMemory()]
    heard = [Events(), Events()]
    tables = [
        ConsumerTable(clock, on_change=events.on_change, on_register=events.on_register, account=each.account("all"))
        for events, each in zip(heard, memory, strict=True)
    ]
    connections = [FakeConnection(f"10.0.0.1:{number}") for number in range(3)]
    last: dict[int, list[SubscriptionData]] = {}
    for number, action, wanted in beats:
        if action == "wait":
            clock.advance(number * 70_000)
            continue
        if action == "leave":
            assert len({table.unregister("G", connections[number]) for table in tables}) == 1
            continue
        if wanted is not None:
            last[number] = [
                SubscriptionData(topic=topic, sub_string=text, expression_type=kind, sub_version=version)
                for topic, text, kind, version in wanted
            ]
        full = tables[1].get("G")
        for channel in full.channels.values() if full is not None else ():
            channel.agreed_at = NEVER
        subscriptions = last.get(number, [])
        changed = [heartbeat(table, connections[number], f"c{number}", subscriptions=subscriptions) for table in tables]
        assert changed[0] == changed[1]
        groups = [state_of(table.get("G")) for table in tables]
        assert groups[0] == groups[1]
        assert memory[0].held_bytes == memory[1].held_bytes
    assert heard[0].registered == heard[1].registered
    assert heard[0].changes == heard[1].changes


def state_of(group: ConsumerGroup | None) -> object:
    if group is None:
        return None
    members = [
        (each.client_id, each.last_update_ms, each.wanted, each.since_ms, each.language) for each in group.members()
    ]
    said = group.speaker, group.disagreement, group.disagreed_ms
    return members, group.subscriptions, group.consumption, said, group.held_bytes


def test_last_member_leaving_ends_the_group(consumers: ConsumerTable, events: Events) -> None:
    first, second = FakeConnection("10.0.0.1:1"), FakeConnection("10.0.0.1:2")
    heartbeat(consumers, first, "c1")
    heartbeat(consumers, second, "c2")
    events.changes.clear()
    assert consumers.leave(first, 1000) is False
    assert events.changes == [("G", ["c2"])]
    assert events.gone == []
    assert consumers.unregister("G", second)
    assert events.gone == ["G"]
    assert consumers.get("G") is None
    assert not consumers.unregister("G", second)


def test_consumers_without_heartbeat_expire_and_the_others_rebalance(
    consumers: ConsumerTable, events: Events, clock: FakeClock
) -> None:
    silent, alive = FakeConnection("10.0.0.1:1"), FakeConnection("10.0.0.1:2")
    heartbeat(consumers, silent, "c1")
    clock.advance(60_000)
    heartbeat(consumers, alive, "c2")
    clock.advance(60_001)
    events.changes.clear()
    assert list(consumers.expire()) == []
    assert not silent.is_open
    assert events.changes == [("G", ["c2"])]


def test_consumer_limits(clock: FakeClock) -> None:
    table = ConsumerTable(clock, max_groups=1, max_channels=1, max_topics_per_group=1)
    connection = FakeConnection()
    heartbeat(table, connection)
    heartbeat(table, connection)
    with pytest.raises(TableFull, match="consumer groups is full"):
        heartbeat(table, connection, group="H")
    with pytest.raises(TableFull, match="consumer connections is full"):
        heartbeat(table, FakeConnection("10.0.0.1:2"), "c2")
    with pytest.raises(TableFull, match="subscriptions of group G is full"):
        heartbeat(table, connection, subscriptions=[build_subscription("A", "*"), build_subscription("B", "*")])


# -- queue locks -----------------------------------------------------------------------------------------------------


def test_a_clock_that_was_set_back_keeps_no_silent_client_and_no_lock_longer(clock: FakeClock) -> None:
    consumers, producers, locks = ConsumerTable(clock), ProducerTable(clock), QueueLockTable(clock)
    connections = FakeConnection(), FakeConnection()
    heartbeat(consumers, connections[0])
    producers.register("P", connections[1], "c1", 0, 0)
    queue = MessageQueue("T", "broker-a", 0)
    assert locks.lock("G", [queue], "c1") == [queue]
    clock.now_ms -= 3_600_000
    assert [*consumers.expire(), *producers.expire()] == []
    assert locks.lock("G", [queue], "c2") == [], "its holder may live"
    clock.now_ms += 120_001
    assert [*consumers.expire(), *producers.expire()] == []
    assert [connection.is_open for connection in connections] == [False, False]
    assert locks.holder("G", queue) is None
    assert locks.lock("G", [queue], "c2") == [queue]


def test_locks_are_held_refreshed_released_and_expire(clock: FakeClock) -> None:
    table = QueueLockTable(clock)
    queues = [MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)]
    assert table.lock("G", queues, "c1") == queues
    assert table.lock("G", queues, "c2") == []
    assert table.lock("other", queues, "c2") == queues, "each group has its own locks"
    clock.advance(40_000)
    assert table.lock("G", queues[:1], "c1") == queues[:1]
    clock.advance(20_001)
    assert table.lock("G", queues, "c2") == queues[1:], "only the one that was not refreshed is free"
    assert table.holder("G", queues[0]) == "c1"
    table.unlock("G", queues, "c1")
    assert table.holder("G", queues[0]) is None
    assert table.holder("G", queues[1]) == "c2", "somebody else's lock stays"


def test_full_lock_table_sweeps_expired_locks_before_it_refuses(clock: FakeClock) -> None:
    table = QueueLockTable(clock, max_locks=1)
    queue, other = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
    table.lock("G", [queue], "c1")
    with pytest.raises(TableFull, match="queue locks is full"):
        table.lock("H", [other], "c2")
    clock.advance(60_001)
    assert table.lock("H", [other], "c2") == [other]
    assert table.holder("G", queue) is None


# -- any order of events ---------------------------------------------------------------------------------------------

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("beat"), st.sampled_from("GH"), st.integers(0, 3)),
        st.tuples(st.just("leave"), st.sampled_from("GH"), st.integers(0, 3)),
        st.tuples(st.just("close"), st.just(""), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.just(""), st.integers(1, 3)),
    ),
    max_size=60,
)


@given(EVENTS)
def test_members_are_those_that_came_and_did_not_go(sequence: list[tuple[str, str, int]]) -> None:
    clock, events = FakeClock(), Events()
    consumers = ConsumerTable(clock, on_change=events.on_change, on_gone=events.on_gone)
    producers = ProducerTable(clock)
    connections = [FakeConnection(f"10.0.0.1:{number + 1}") for number in range(4)]
    expected: dict[tuple[str, int], int] = {}
    for action, group, number in sequence:
        connection = connections[number % 4]
        if action == "beat" and connection.is_open:
            heartbeat(consumers, connection, f"c{number}", group)
            producers.register(group, connection, f"c{number}", 0, 407)
            expected[group, number] = clock.now_ms
        elif action == "leave":
            gone = expected.pop((group, number), None) is not None
            assert consumers.unregister(group, connection) == gone
            assert producers.unregister(group, connection) == gone
        elif action == "close":
            connection.close()
            consumers.leave(connection, 1000)
            producers.leave(connection, 1000)
            expected = {key: beat for key, beat in expected.items() if key[1] != number}
        elif action == "wait":
            clock.advance(number * 50_000)
            assert [*consumers.expire(), *producers.expire()] == []
            expected = {key: beat for key, beat in expected.items() if beat >= clock.now_ms - 120_000}
    for group in "GH":
        members = {f"c{number}" for name, number in expected if name == group}
        entry = consumers.get(group)
        assert (set(entry.client_ids()) if entry is not None else set()) == members
        assert {channel.client_id for channel in producers.channels(group) or []} == members
    for number, connection in enumerate(connections):
        is_member = any(key[1] == number for key in expected)
        assert (producers.connection_of_client(f"c{number}") is connection) == is_member
    for connection in connections:
        consumers.leave(connection, 1000)
        producers.leave(connection, 1000)
    assert consumers.groups() == []
    assert consumers._channel_count == producers._channel_count == 0
    assert not consumers._groups_by_connection
    assert not producers._groups_by_connection
    assert not producers._connection_by_client_id
