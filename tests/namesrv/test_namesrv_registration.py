"""Long registrations: other requests are handled between their steps, and nobody sees half of one."""

from __future__ import annotations

import zlib
from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from namesrv_fakes import FakeConnection, FakeNamesrv, broker_fields, registration

from triomq.namesrv.brokers import STEP_BROKERS, BrokerKey
from triomq.namesrv.registration import CHECKSUM_BYTES, SHORT_BYTES
from triomq.namesrv.route_limits import RouteLimits
from triomq.namesrv.routes import MOST_ATTEMPTS, RouteTable
from triomq.namesrv.topic_tables import STEP_TOPICS
from triomq.protocol.bodies.registration import Parts, RestOfRegistration, TopicQueues
from triomq.protocol.bodies.topic_config import DataVersion, TopicConfig
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.errors import RequestRefused
from triomq.remoting.table_memory import MemoryShort, TableMemory

COUNT = 12 * STEP_TOPICS


@pytest.fixture
def namesrv(nursery: trio.Nursery) -> FakeNamesrv:
    return FakeNamesrv(nursery)


def many(perm: int = 6, count: int = COUNT, letter: str = "t") -> list[TopicConfig]:
    return [TopicConfig(topic_name=f"{letter}{number}", perm=perm) for number in range(count)]


def perms(routes: RouteTable, count: int = COUNT) -> set[int]:
    """Return the permissions that routes show; -1 for a topic without one."""
    found = (routes.route(f"t{number}") for number in range(count))
    return {-1 if route is None else route.queue_datas[0].perm for route in found}


async def begun() -> None:
    """Wait until the task that was started just now has run up to its first await."""
    await trio.lowlevel.checkpoint()
    await trio.lowlevel.checkpoint()


class Running:
    """A registration in progress, and what other tasks see between its steps."""

    def __init__(self, namesrv: FakeNamesrv) -> None:
        self.namesrv = namesrv
        self.answers: list[tuple[str, RemotingCommand]] = []
        self.seen: list[set[int]] = []

    async def register(self, label: str, *topics: TopicConfig, **how: Any) -> None:
        self.answers.append((label, await self.namesrv.register(*topics, **how)))

    async def watch(self, answers: int) -> None:
        """Look at the routes between all steps, until that many responses have come."""
        with trio.fail_after(1000):
            while len(self.answers) < answers:
                await trio.lowlevel.checkpoint()
                self.seen.append(perms(self.namesrv.routes))


@pytest.mark.parametrize("is_compressed", [False, True])
async def test_nobody_sees_half_of_a_registration(
    namesrv: FakeNamesrv, nursery: trio.Nursery, is_compressed: bool
) -> None:
    running = Running(namesrv)

    async def register(perm: int, version: int) -> None:
        body = registration(*many(perm), version=version)
        packed = body.encode_compressed() if is_compressed else body.encode()
        crc = str(zlib.crc32(packed) & 0x7FFFFFFF)
        fields = {**broker_fields(), "haServerAddr": "h:1", "compressed": str(is_compressed).lower(), "bodyCrc32": crc}
        running.answers.append(("", await namesrv.ask(RequestCode.REGISTER_BROKER, fields, packed)))

    for version, perm in enumerate((6, 4), 1):
        nursery.start_soon(register, perm, version)
        await running.watch(version)
        assert running.answers[-1][1].code == ResponseCode.SUCCESS
    assert [one for one in running.seen if one not in ({-1}, {6}, {4})] == []
    assert len(running.seen) > 2 * COUNT // STEP_TOPICS
    assert running.seen[-1] == {4}
    assert namesrv.in_progress.held_bytes == 0, "nothing is in progress any more"


async def test_a_short_registration_takes_effect_at_once_beside_a_long_one(
    namesrv: FakeNamesrv, nursery: trio.Nursery
) -> None:
    running = Running(namesrv)
    nursery.start_soon(running.register, "long", *many())
    await begun()
    other = namesrv.connect(40001)
    await running.register("short", TopicConfig(topic_name="S"), name="b-b", address="b:1", connection=other)
    await running.watch(2)
    assert [label for label, _ in running.answers] == ["short", "long"]


@pytest.mark.parametrize("is_same_connection", [False, True])
async def test_registrations_of_a_broker_take_effect_in_their_order(
    namesrv: FakeNamesrv, nursery: trio.Nursery, is_same_connection: bool
) -> None:
    """The second one is short: without an order it would be over first, and the older topics would replace it."""
    running = Running(namesrv)
    second = namesrv.peer if is_same_connection else namesrv.connect(40001)
    nursery.start_soon(running.register, "first", *many(6))
    await begun()
    short = TopicConfig(topic_name="t0", perm=2)
    request = new_request(
        RequestCode.REGISTER_BROKER,
        body=registration(short, version=2).encode(),
        ext_fields={**broker_fields(), "haServerAddr": "h:1"},
        oneway=True,
    )
    namesrv.table.handle(second, request)
    await running.watch(1)
    with trio.fail_after(10):
        while perms(namesrv.routes, 1) != {2}:
            await trio.lowlevel.checkpoint()
    assert namesrv.routes.brokers.data_version("10.0.0.1:10911") == DataVersion(counter=2, timestamp=1_700_000_000_000)
    assert perms(namesrv.routes) == {2, 6}


@pytest.mark.parametrize("is_same_connection", [False, True])
async def test_the_third_request_for_a_broker_waits_for_the_second_after_the_end_of_the_first(
    namesrv: FakeNamesrv, nursery: trio.Nursery, is_same_connection: bool
) -> None:
    running = Running(namesrv)
    peers = [namesrv.peer if is_same_connection else namesrv.connect(40000 + number) for number in range(3)]
    for version, perm in ((1, 6), (2, 4)):
        register = partial(running.register, "", *many(perm), connection=peers[version - 1], version=version)
        nursery.start_soon(register)
        await begun()
    await running.watch(1)
    assert perms(namesrv.routes) == {6}
    request = new_request(
        RequestCode.REGISTER_BROKER,
        body=registration(TopicConfig(topic_name="t0", perm=2), version=3).encode(),
        ext_fields={**broker_fields(), "haServerAddr": "h:1"},
        oneway=True,
    )
    namesrv.table.handle(peers[2], request)
    assert perms(namesrv.routes) == {6}, "it waits"
    await running.watch(2)
    with trio.fail_after(10):
        while perms(namesrv.routes, 1) != {2}:
            await trio.lowlevel.checkpoint()
    assert perms(namesrv.routes) == {2, 4}


async def test_an_unregistration_goes_behind_the_registration_before_it(
    namesrv: FakeNamesrv, nursery: trio.Nursery
) -> None:
    running = Running(namesrv)
    nursery.start_soon(running.register, "first", *many())
    await begun()
    answer = await namesrv.ask(RequestCode.UNREGISTER_BROKER, broker_fields(), connection=namesrv.connect(40001))
    assert answer.code == ResponseCode.SUCCESS
    await running.watch(1)
    assert namesrv.routes.sizes()["brokers"] == 0
    assert perms(namesrv.routes) == {-1}


async def test_a_registration_whose_connection_closes_changes_nothing(
    namesrv: FakeNamesrv, nursery: trio.Nursery
) -> None:
    running = Running(namesrv)
    await namesrv.register("t0", version=1)
    other = namesrv.connect(40001)
    nursery.start_soon(lambda: running.register("gone", *many(4), version=2, connection=other))
    await begun()
    namesrv.disconnect(other)
    await running.watch(1)
    assert (perms(namesrv.routes, 1), perms(namesrv.routes)) == ({6}, {6, -1})
    with trio.fail_after(10):
        while namesrv.routes.sizes()["topics"] != 1:
            await trio.lowlevel.checkpoint()
    assert namesrv.in_progress.held_bytes == 0
    assert (await namesrv.register(*many(2), version=3)).code == ResponseCode.SUCCESS, "its place is given back"


async def test_a_long_body_is_checked_in_steps(namesrv: FakeNamesrv, nursery: trio.Nursery) -> None:
    body = registration(*many(letter="t" * 500)).encode()
    assert len(body) > 3 * CHECKSUM_BYTES
    fields = {**broker_fields(), "haServerAddr": "h:1", "bodyCrc32": str(zlib.crc32(body) & 0x7FFFFFFF)}
    assert (await namesrv.ask(RequestCode.REGISTER_BROKER, fields, body)).code == ResponseCode.SUCCESS
    fields["bodyCrc32"] = "1"
    answer = await namesrv.ask(RequestCode.REGISTER_BROKER, fields, body)
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "crc32 not match")


async def test_write_permission_of_many_topics_goes_in_steps(namesrv: FakeNamesrv, nursery: trio.Nursery) -> None:
    running = Running(namesrv)
    await namesrv.register(*many())

    async def wipe() -> None:
        running.answers.append(("", await namesrv.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "b-a"})))

    nursery.start_soon(wipe)
    await running.watch(1)
    assert running.answers[0][1].ext_fields == {"wipeTopicCount": str(COUNT)}
    assert len(running.seen) > COUNT // STEP_TOPICS
    assert all(one in ({6}, {4}) for one in running.seen)


def body_of(topics: dict[str, int], counter: int) -> Any:
    def read() -> Parts:
        for name, perm in topics.items():
            yield {name: TopicQueues(perm=perm)}
        return RestOfRegistration(DataVersion(counter=counter), [])

    return read


def begin(table: RouteTable, topics: dict[str, int], counter: int = 1, name: str = "b-a") -> Any:
    return table.registering(
        BrokerKey("C", name, 0, f"{name}:1"), body_of(topics, counter), ha_address="", owner=None, now=lambda: 0.0
    )


def finish(steps: Any) -> None:
    for _ in steps:
        pass


CHANGES = st.sampled_from(["delete", "wipe", "add", "unregister", "drop", "other"])


@given(st.lists(st.tuples(st.integers(0, 40), CHANGES), max_size=6), st.integers(0, 3))
def test_what_changes_between_the_steps_counts_before_the_registration(
    changes: list[tuple[int, str]], known: int
) -> None:
    """After it a table has what it would have if the registration had been made at once, at its end."""
    memory = TableMemory()
    table = RouteTable(account=memory.account("routes"), incoming_account=memory.account("registrations"))
    beside = RouteTable()

    def change(one: RouteTable, what: str) -> None:
        if what == "delete":
            one.delete_topic("t1")
        elif what == "wipe":
            one.wipe_write_perm("b-a")
        elif what == "add":
            one.add_write_perm("b-a")
        elif what == "unregister":
            one.unregister(BrokerKey("C", "b-a", 0, "b-a:1"))
        elif what == "drop":
            one.drop_owner(None)
        else:
            finish(begin(one, {"t1": 6, "o": 6}, counter=9, name="b-b"))

    for one in (table, beside):
        finish(begin(one, {f"t{number}": 6 for number in range(known)}))
    steps = begin(table, {f"t{number}": 4 for number in range(5)}, counter=2)
    due = sorted(changes)
    for at, _ in enumerate(steps):
        while due and due[0][0] <= at:
            what = due.pop(0)[1]
            change(table, what)
            change(beside, what)
    finish(begin(beside, {f"t{number}": 4 for number in range(5)}, counter=2))
    for topic in ("t0", "t1", "t4", "o", "none"):
        assert table.route(topic) == beside.route(topic)
    assert sorted(table.topics()) == sorted(beside.topics())
    assert (table.sizes(), table.route_count) == (beside.sizes(), beside.route_count)
    assert sorted(table.brokers.cluster_info().broker_addr_table) == sorted(
        beside.brokers.cluster_info().broker_addr_table
    )
    for name in ("b-a", "b-b"):
        table.unregister(BrokerKey("C", name, 0, f"{name}:1"))
    assert memory.held_bytes == 0


def test_a_registration_that_is_disturbed_again_and_again_ends() -> None:
    """Somebody who changes the table in each pause cannot keep a broker out."""
    table = RouteTable()
    finish(begin(table, {"t1": 6, "t2": 6}))
    steps = begin(table, {"t1": 2, "t2": 2}, counter=2)
    pauses = 0
    for _ in steps:
        pauses += 1
        (table.wipe_write_perm if pauses % 2 else table.add_write_perm)("b-a")
    assert pauses <= 3 * MOST_ATTEMPTS
    assert perms_of(table, "t1", "t2") == [2, 2]


def perms_of(table: RouteTable, *topics: str) -> list[int]:
    found = [table.route(topic) for topic in topics]
    return [route.queue_datas[0].perm for route in found if route is not None]


def test_a_registration_in_progress_takes_memory_and_gives_it_back() -> None:
    memory = TableMemory(120 * 1024)
    table = RouteTable(account=memory.account("routes"), incoming_account=memory.account("registrations"))
    steps = begin(table, {f"t{number}": 6 for number in range(120)})
    for _ in range(60):
        next(steps)
    assert memory.held_bytes > 60 * 200
    other = begin(table, {f"u{number}": 6 for number in range(1000)}, name="b-b")
    with pytest.raises(MemoryShort, match="registration of broker b-b"):
        finish(other)
    finish(steps)
    assert table.route("t119") is not None
    assert table.sizes() == {"topics": 120, "broker_names": 1, "brokers": 1}
    table.unregister(BrokerKey("C", "b-a", 0, "b-a:1"))
    assert memory.held_bytes == 0


def test_registrations_in_progress_share_the_limits() -> None:
    """What another one has prepared counts before it is visible, and no longer when it is refused or given up."""
    table = RouteTable(RouteLimits(topic_count=COUNT + 10))
    first = begin(table, {f"t{number}": 6 for number in range(COUNT)})
    while table.sizes()["topics"] < COUNT:
        next(first)
    with pytest.raises(RequestRefused, match=f"there would be {COUNT + 11} topics"):
        finish(begin(table, {f"u{number}": 6 for number in range(11)}, name="b-b"))
    assert table.topics() == []
    first.close()
    while table.work():
        pass
    assert table.sizes()["topics"] == 0
    finish(begin(table, {f"u{number}": 6 for number in range(COUNT + 10)}, name="b-b"))


def test_a_large_table_goes_at_once_and_is_cleaned_up_in_steps() -> None:
    table = RouteTable()
    finish(begin(table, {f"t{number}": 6 for number in range(COUNT)}))
    finish(begin(table, {"t0": 6}, name="b-b"))
    table.unregister(BrokerKey("C", "b-a", 0, "b-a:1"))
    assert table.topics() == ["t0"]
    assert [queues.broker_name for queues in _route(table, "t0").queue_datas] == ["b-b"]
    assert table.route_count == COUNT + 1 - STEP_TOPICS
    finish(begin(table, {"t1": 4}))  # it is back before the cleaning has ended
    while table.work():
        pass
    assert (table.route_count, sorted(table.topics())) == (2, ["t0", "t1"])
    assert not table.work()


def _route(table: RouteTable, topic: str) -> Any:
    route = table.route(topic)
    assert route is not None
    return route


def test_many_brokers_of_one_connection_go_in_steps_and_one_that_comes_back_stays() -> None:
    table = RouteTable()
    owner, later = object(), object()
    names = [f"b{number}" for number in range(3 * STEP_BROKERS)]

    def enter(name: str, of: object) -> None:
        key = BrokerKey("C", name, 0, f"{name}:1")
        finish(table.registering(key, body_of({"t": 6}, 1), ha_address="", owner=of, now=lambda: 0.0))

    for name in names:
        enter(name, owner)
    assert table.drop_owner(owner) == [f"{name}:1" for name in names]
    assert 2 * STEP_BROKERS <= table.sizes()["brokers"] < 3 * STEP_BROKERS
    enter(names[-1], later)
    while table.work():
        pass
    assert list(table.brokers.cluster_info().broker_addr_table) == names[-1:]


async def test_the_nameserver_finishes_removals_in_the_background(namesrv: FakeNamesrv) -> None:
    await namesrv.register(*many())
    await namesrv.ask(RequestCode.UNREGISTER_BROKER, broker_fields())
    assert namesrv.routes.sizes()["topics"] > 0
    with trio.fail_after(10):
        while namesrv.routes.sizes()["topics"]:
            await trio.lowlevel.checkpoint()


async def test_a_registration_up_to_a_size_takes_effect_before_the_next_request(namesrv: FakeNamesrv) -> None:
    for size, is_at_once in ((SHORT_BYTES, True), (SHORT_BYTES + 1, False)):
        body = registration("T").encode().ljust(size)
        request = new_request(
            RequestCode.REGISTER_BROKER,
            body=body,
            ext_fields={**broker_fields(name=f"b{size}"), "haServerAddr": "h:1"},
            oneway=True,
        )
        connection = FakeConnection(namesrv.nursery)
        namesrv.table.handle(connection, request)
        assert (f"b{size}" in namesrv.routes.brokers.cluster_info().broker_addr_table) == is_at_once


@pytest.mark.parametrize("is_wiping", [True, False])
@pytest.mark.parametrize("is_changed_before", [False, True])
def test_what_happens_between_the_steps_of_a_change_of_permissions_stays(
    is_wiping: bool, is_changed_before: bool
) -> None:
    """Also when another administrator's change has replaced the whole table before."""
    table = RouteTable()
    finish(begin(table, {f"t{number}": 6 for number in range(2 * STEP_TOPICS + 1)}))
    steps = table.wiping_write_perm("b-a") if is_wiping else table.adding_write_perm("b-a")
    next(steps)
    if is_changed_before:
        table.wipe_write_perm("b-a")
    table.delete_topic("t1")
    finish(begin(table, {"new": 2}, counter=2))
    finish(steps)
    assert table.topics_of.get("b-a", "t1") is None, "a topic that was deleted meanwhile"
    assert perms_of(table, "new", "t0") == ([0, 4] if is_wiping else [6, 6])


def of_host(table: RouteTable, name: str, address: str, origin: str) -> Any:
    """Begin a registration, in two steps, that comes from this host."""
    broker = BrokerKey("C", name, 0, address, origin)
    return table.registering(broker, body_of({"t0": 6}, 1), ha_address="", owner=None, now=lambda: 0.0)


@pytest.mark.parametrize("is_protected", [True, False])
def test_a_registration_in_steps_does_not_take_an_address_that_another_host_registers_meanwhile(
    is_protected: bool,
) -> None:
    """The other one has another name, so nothing changes in the table that the steps prepare."""
    table = RouteTable()
    table.brokers.is_protected = is_protected
    steps = of_host(table, "b-b", "b-a:1", "10.0.0.9")
    next(steps)
    finish(of_host(table, "b-a", "b-a:1", "10.0.0.1"))
    if is_protected:
        with pytest.raises(RequestRefused, match=r"registered from 10\.0\.0\.1; 10\.0\.0\.9 cannot"):
            finish(steps)
    else:
        finish(steps)
    assert sorted(table.brokers.cluster_info().broker_addr_table) == ["b-a"] if is_protected else ["b-a", "b-b"]


LONG = {f"t{number}": 4 for number in range(2 * STEP_TOPICS + 1)}


def long_registration(table: RouteTable, name: str) -> Any:
    """Begin a registration of LONG, with pauses while it is read and while the change is prepared."""

    def read() -> Parts:
        yield {topic: TopicQueues(perm=perm) for topic, perm in LONG.items()}
        return RestOfRegistration(DataVersion(counter=2), [])

    return table.registering(BrokerKey("C", name, 0, f"{name}:1"), read, ha_address="", owner=None, now=lambda: 0.0)


PAUSES = range(1, 9)


def test_a_long_registration_has_so_many_pauses() -> None:
    table = RouteTable()
    finish(begin(table, {"t0": 6, "t1": 6}))
    assert sum(1 for _ in long_registration(table, "b-a")) == len(PAUSES)


@pytest.mark.parametrize("pause", PAUSES)
def test_what_changes_in_any_pause_of_a_long_registration_counts_before_it(pause: int) -> None:
    """Also when the whole next table is prepared already."""
    table = RouteTable()
    finish(begin(table, {"t0": 6, "gone": 6}))
    steps = long_registration(table, "b-a")
    for _ in range(pause):
        next(steps)
    table.topics_of.enter("b-a", {"new": TopicQueues(perm=6)})
    table.delete_topic("gone")
    finish(steps)
    assert set(table.topics()) == {*LONG, "new"}
    assert table.topics_of.get("b-a", "gone") is None
    assert perms_of(table, "t0", "t256", "new") == [4, 4, 6]


@pytest.mark.parametrize("pause", PAUSES[:-3])
def test_a_long_registration_takes_no_place_that_another_one_took_in_a_pause(pause: int) -> None:
    table = RouteTable(RouteLimits(broker_count=2))
    finish(begin(table, {"t0": 6}, name="b-a"))
    steps = long_registration(table, "b-b")
    for _ in range(pause):
        next(steps)
    finish(begin(table, {"t0": 6}, name="b-c"))
    with pytest.raises(RequestRefused, match="2 brokers are registered, the limit"):
        finish(steps)
    assert sorted(table.brokers.cluster_info().broker_addr_table) == ["b-a", "b-c"]
