"""Topics created at the same moment: once a creation succeeds, every NameServer has the route."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from broker_whole import WholeBroker, send_fields, whole_broker
from fake_clock import FakeClock
from trio.testing import MockClock

from triomq.broker.configuration import Configuration
from triomq.broker.nameservers.address_server import AddressServer
from triomq.broker.nameservers.nameserver_list import NameServerList
from triomq.broker.nameservers.registration import Registration
from triomq.broker.tables.topics import TopicEvents, TopicTable
from triomq.namesrv.brokers import BrokerKey
from triomq.namesrv.config import NamesrvSettings
from triomq.namesrv.controller import serve
from triomq.namesrv.routes import RouteTable
from triomq.protocol.bodies.route import TopicRouteData
from triomq.protocol.bodies.topic_config import RegisterBrokerBody, TopicConfig
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.frame import FrameDecoder, encode_frame
from triomq.protocol.headers.namesrv import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader
from triomq.remoting.client import RemotingClient, open_client
from triomq.remoting.config import ServerSettings
from triomq.remoting.errors import ConnectFailed, ConnectionClosed

A, B = "10.0.0.8:9876", "10.0.0.9:9876"

# -- NameServers in memory, with the rules of the real one -------------------------------------------------------------


class NameServers:
    """NameServers by address, each with a real route table, over connections that take `seconds` in each direction,
    close, or are refused. Stands in for a RemotingClient.
    """

    def __init__(self, *addresses: str) -> None:
        self.tables = {address: RouteTable() for address in addresses}
        self.seconds: dict[str, Callable[[], float]] = {}
        self.gone: set[str] = set()
        self.under_way = dict.fromkeys(addresses, 0)
        self.most_under_way = 0
        self.registrations: list[tuple[str, set[str]]] = []
        self._connections: dict[str, object] = {}
        self._close_hooks: list[Callable[[str, Any], None]] = []

    def on_connection_closed(self, hook: Callable[[str, Any], None]) -> None:
        self._close_hooks.append(hook)

    def close(self, address: str) -> None:
        """Break the connection to a NameServer, which then forgets the brokers that registered over it."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            self.tables[address].drop_owner(connection)
            for hook in self._close_hooks:
                hook(address, None)

    async def invoke(self, address: str, command: RemotingCommand, timeout_seconds: float = 3.0) -> RemotingCommand:
        if address in self.gone:
            await trio.lowlevel.checkpoint()
            raise ConnectFailed(f"connect to {address} failed: refused")
        connection = self._connections.setdefault(address, object())
        wait = self.seconds.get(address, lambda: 0.0)
        self.under_way[address] += 1
        self.most_under_way = max(self.most_under_way, self.under_way[address])
        try:
            await trio.sleep(wait())
            self._check(address, connection)
            if command.code == RequestCode.REGISTER_BROKER:
                self._register(address, command, connection)
            await trio.sleep(wait())
            self._check(address, connection)
        finally:
            self.under_way[address] -= 1
        return new_response(command)

    def _check(self, address: str, connection: object) -> None:
        if self._connections.get(address) is not connection:
            raise ConnectionClosed(f"connection to {address} was closed")

    def _register(self, address: str, command: RemotingCommand, connection: object) -> None:
        header = command.header(RegisterBrokerRequestHeader)
        wrapper = RegisterBrokerBody.decode(command.body).topic_config_serialize_wrapper
        self.registrations.append((address, set(wrapper.topic_config_table)))
        self.tables[address].register(
            BrokerKey(header.cluster_name, header.broker_name, header.broker_id, header.broker_addr),
            ha_address=header.ha_server_addr,
            data_version=wrapper.data_version,
            topics=wrapper.topic_config_table,
            filter_servers=[],
            owner=connection,
            now=trio.current_time(),
        )

    def perm(self, address: str, topic: str) -> int | None:
        """Return the permission in a topic's route; None without a route."""
        route = self.tables[address].route(topic)
        return None if route is None else route.queue_datas[0].perm


class Surroundings:
    def __init__(self, nursery: trio.Nursery, *addresses: str, **keys: str) -> None:
        configuration = Configuration.from_values(
            {"brokerName": "b-a", "brokerClusterName": "C", "namesrvAddr": ";".join(addresses), **keys}
        )
        self.topics = TopicTable(now_ms=FakeClock(), built_in=[TopicConfig(topic_name="Built")])
        self.nameservers = NameServers(*addresses)
        self.registration = Registration(
            configuration,
            self.topics,
            cast(RemotingClient, self.nameservers),
            address="b:1",
            ha_address="b:2",
            nameservers=NameServerList(configuration, AddressServer.from_properties({})),
        )
        self.topics.tell(
            TopicEvents(changed=self.registration.topic_changed, made_by_use=self.registration.register_soon)
        )
        nursery.start_soon(self.registration.run)

    async def create(self, topic: str, perm: int = 6, *, disk_seconds: float = 0.0) -> None:
        """Do what UPDATE_AND_CREATE_TOPIC does."""
        self.topics.update(TopicConfig(topic_name=topic, perm=perm))
        await trio.sleep(disk_seconds)
        await self.registration.registered()


async def test_topics_of_one_moment_share_registrations_and_all_have_a_route(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    around = Surroundings(nursery, A, B)
    await around.registration.start()
    around.nameservers.registrations.clear()
    around.nameservers.seconds = {A: lambda: 0.01, B: lambda: 0.02}

    async def create(number: int) -> None:
        await around.create(f"T{number}")
        assert all(around.nameservers.perm(address, f"T{number}") == 6 for address in (A, B))

    async with trio.open_nursery() as creators:
        for number in range(500):
            creators.start_soon(create, number)
    assert around.nameservers.most_under_way == 1
    sent_to_a = [topics for address, topics in around.nameservers.registrations if address == A]
    assert len(sent_to_a) <= 2, "the first, and one for all who came meanwhile"
    assert sum(map(len, sent_to_a)) == 500, "each topic is sent once"


async def test_those_who_come_while_one_is_under_way_share_the_next(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    around = Surroundings(nursery, A)
    await around.registration.start()
    around.nameservers.registrations.clear()
    around.nameservers.seconds[A] = lambda: 1.0
    async with trio.open_nursery() as creators:
        creators.start_soon(around.create, "First")
        await trio.sleep(0.5)
        for number in range(40):
            creators.start_soon(around.create, f"T{number}")
        await trio.sleep(1)  # the NameServer has accepted the first one, and its response is in transit
        creators.start_soon(around.create, "Late")
    assert around.nameservers.registrations == [(A, {"First"}), (A, {"Late"} | {f"T{n}" for n in range(40)})]


async def test_a_change_whose_maker_waits_for_the_disk_is_not_lost_to_the_registration_of_another(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The other one registers under the version of both; the first topic would never be accepted under that version
    again.
    """
    around = Surroundings(nursery, A)
    await around.registration.start()
    async with trio.open_nursery() as creators:
        creators.start_soon(lambda: around.create("SlowDisk", disk_seconds=1.0))
        creators.start_soon(around.create, "Fast")
    assert around.nameservers.perm(A, "SlowDisk") == around.nameservers.perm(A, "Fast") == 6


async def test_one_slow_nameserver_and_one_that_is_gone_cost_the_other_nothing(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    slow, gone = "10.0.0.1:9876", "10.0.0.2:9876"
    around = Surroundings(nursery, A, slow, gone, registerBrokerTimeoutMills="6000")
    around.nameservers.gone.add(gone)
    around.nameservers.seconds[slow] = lambda: 2.0
    await around.registration.start()
    known_to_a: list[float] = []
    answered: list[float] = []

    async def create(number: int) -> None:
        began = trio.current_time()
        async with trio.open_nursery() as watching:
            watching.start_soon(watch, number, began)
            await around.create(f"T{number}")
        answered.append(trio.current_time() - began)
        assert around.nameservers.perm(slow, f"T{number}") == 6, "slow is not unreachable"

    async def watch(number: int, began: float) -> None:
        while around.nameservers.perm(A, f"T{number}") is None:  # noqa: ASYNC110 (the clock jumps)
            await trio.sleep(0.01)
        known_to_a.append(trio.current_time() - began)

    async with trio.open_nursery() as creators:
        for number in range(60):
            creators.start_soon(create, number)
            await trio.sleep(0.1)
    assert max(known_to_a) <= 0.02
    assert max(answered) <= 8.1, "the one under way and the next, 4 s each"


async def test_a_nameserver_that_never_responds_holds_an_answer_no_longer_than_two_time_limits(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    around = Surroundings(nursery, A, B, registerBrokerTimeoutMills="1000")
    await around.registration.start()
    around.nameservers.seconds[B] = lambda: 1e6

    async def create(number: int) -> None:
        began = trio.current_time()
        await around.create(f"T{number}")
        assert around.nameservers.perm(A, f"T{number}") == 6
        assert trio.current_time() - began <= 2.0

    async with trio.open_nursery() as creators:
        for number in range(50):
            creators.start_soon(create, number)
            await trio.sleep(0.07)


async def test_a_nameserver_that_restarts_during_a_registration_gets_all_topics(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """If only the topics in flight went to a NameServer that forgot the others, the version would look complete."""
    around = Surroundings(nursery, A)
    await around.registration.start()
    around.nameservers.seconds[A] = lambda: 1.0
    async with trio.open_nursery() as creators:
        creators.start_soon(around.create, "T")
        await trio.sleep(0.5)
        around.nameservers.close(A)
    assert around.nameservers.registrations[-1] == (A, {"Built", "T"})
    assert around.nameservers.perm(A, "Built") == around.nameservers.perm(A, "T") == 6


async def test_a_registration_taken_over_a_connection_that_is_closed_by_now_counts_for_nothing(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Its response was read, then the connection broke, before the task that waits for the response ran."""
    around = Surroundings(nursery, A)
    await around.registration.start()
    invoke = around.nameservers.invoke

    async def closing(address: str, command: RemotingCommand, seconds: float = 3.0) -> RemotingCommand:
        response = await invoke(address, command, seconds)
        around.nameservers.close(address)
        return response

    around.registration._known_links[A]._send = closing
    await around.create("T")
    around.registration._known_links[A]._send = invoke
    await around.create("U")
    assert around.nameservers.registrations[-1] == (A, {"Built", "T", "U"})


async def test_an_administrator_who_leaves_takes_nobodys_registration_along(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    around = Surroundings(nursery, A)
    await around.registration.start()
    around.nameservers.seconds[A] = lambda: 1.0
    async with trio.open_nursery() as creators:
        with trio.move_on_after(0.5):
            async with trio.open_nursery() as leaving:
                leaving.start_soon(around.create, "Left")
                await trio.sleep(0.1)
                creators.start_soon(around.create, "Stays")
                await trio.sleep_forever()
    assert around.nameservers.perm(A, "Stays") == around.nameservers.perm(A, "Left") == 6


async def test_a_topic_deleted_while_its_creation_is_registered_does_not_come_back(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    around = Surroundings(nursery, A)
    await around.registration.start()
    around.nameservers.registrations.clear()
    async with trio.open_nursery() as creators:
        creators.start_soon(lambda: around.create("Short", disk_seconds=1.0))
        await trio.sleep(0.5)
        around.topics.delete("Short")
    assert "Short" not in set().union(*(topics for _, topics in around.nameservers.registrations))
    assert around.nameservers.perm(A, "Short") is None


async def test_a_stopped_broker_is_not_brought_back_by_a_registration_under_way(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    around = Surroundings(nursery, A)
    await around.registration.start()
    codes: list[int] = []
    invoke = around.nameservers.invoke

    async def recording(address: str, command: RemotingCommand, seconds: float = 3.0) -> RemotingCommand:
        response = await invoke(address, command, seconds)
        codes.append(command.code)
        return response

    around.registration._client.invoke = recording  # type: ignore[method-assign]
    around.nameservers.seconds[A] = lambda: 0.5
    async with trio.open_nursery() as creators:
        creators.start_soon(around.create, "T")
        await trio.sleep(0.2)
        await around.registration.stop()
    assert codes[-1] == RequestCode.UNREGISTER_BROKER


@pytest.mark.parametrize("seed", range(25))
async def test_whatever_happens_meanwhile_an_answered_topic_has_a_route(
    nursery: trio.Nursery, autojump_clock: MockClock, seed: int
) -> None:
    """Creations, permission changes, deletions, topics created by use; broken connections; periodic registrations."""
    rng = random.Random(seed)
    around = Surroundings(nursery, A, B, registerBrokerTimeoutMills="6000")
    nameservers = around.nameservers
    for address in (A, B):
        nameservers.seconds[address] = lambda: rng.choice((0.0, 0.01, 0.3))
    await around.registration.start()
    breaks = dict.fromkeys((A, B), -1.0)
    deletions: dict[str, float] = {}

    async def change(topic: str) -> None:
        perm = rng.choice((2, 4, 6))
        began = trio.current_time()
        await around.create(topic, perm, disk_seconds=rng.choice((0.0, 0.02, 0.5)))
        if deletions.get(topic, -1.0) >= began:
            return
        for address in (A, B):
            if breaks[address] >= began:
                continue  # the NameServer lost its state and gets it again with the next registration
            assert nameservers.perm(address, topic) is not None, (topic, address)

    async with trio.open_nursery() as work:
        for number in range(150):
            kind = rng.random()
            topic = f"T{rng.randrange(40)}"
            if kind < 0.6:
                work.start_soon(change, topic)
            elif kind < 0.7:
                deletions[topic] = trio.current_time()
                around.topics.delete(topic)
            elif kind < 0.85:
                around.topics.create_on_send_back(f"Use{number}", 1, 6, 0)
            elif kind < 0.9:
                work.start_soon(around.registration.register_all)
            elif kind < 0.93:
                address = rng.choice((A, B))
                breaks[address] = trio.current_time()
                nameservers.close(address)
            await trio.sleep(rng.choice((0.0, 0.0, 0.05)))
    await around.registration.register_all()
    assert nameservers.most_under_way == 1
    for address in (A, B):
        for config in around.topics.configs():
            assert nameservers.perm(address, config.topic_name) == config.perm, (config.topic_name, address)


# -- a whole broker beside a real NameServer ---------------------------------------------------------------------------


@asynccontextmanager
async def nameserver() -> AsyncIterator[str]:
    async with trio.open_nursery() as nursery:

        async def life(*, task_status: trio.TaskStatus[int]) -> None:
            settings = ServerSettings(listen_port=0, bind_address="127.0.0.1")
            await serve(NamesrvSettings(), settings, task_status=task_status)

        port = await nursery.start(life)
        yield f"127.0.0.1:{port}"
        nursery.cancel_scope.cancel()


async def perm_of(client: RemotingClient, address: str, topic: str) -> int | None:
    request = new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic))
    answer = await client.invoke(address, request)
    return TopicRouteData.decode(answer.body).queue_datas[0].perm if answer.code == 0 else None


def creation(topic: str, opaque: int, perm: int = 6) -> bytes:
    fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": "4",
        "writeQueueNums": "4",
        "perm": str(perm),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    command = new_request(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=fields)
    command.opaque = opaque
    return encode_frame(command)


async def create_in_one_read(broker: WholeBroker, topics: list[str], known: Callable[[str], Any]) -> None:
    """Send all creations at once. Await `known(topic)` as soon as each gets its response."""
    host, port = broker.address.rsplit(":", 1)
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await stream.send_all(b"".join(creation(topic, number) for number, topic in enumerate(topics)))
        decoder = FrameDecoder()
        missing = set(topics)
        with trio.fail_after(20):
            while missing:
                for answer in decoder.feed(await stream.receive_some()):
                    assert isinstance(answer, RemotingCommand)
                    assert answer.code == 0, answer.remark
                    await known(topics[answer.opaque])
                    missing.discard(topics[answer.opaque])


async def test_thirty_two_topics_of_one_read_all_have_a_route_when_answered(tmp_path: Path) -> None:
    async with (
        nameserver() as first,
        nameserver() as second,
        whole_broker(tmp_path, namesrvAddr=f"{first};{second}") as broker,
        open_client() as asking,
    ):

        async def known(topic: str) -> None:
            for address in (first, second):
                assert await perm_of(asking, address, topic) == 6, topic

        await create_in_one_read(broker, [f"T{number}" for number in range(32)], known)


async def test_topics_made_over_several_connections_by_administration_and_by_use(tmp_path: Path) -> None:
    gone = "127.0.0.1:1"
    async with (
        nameserver() as address,
        whole_broker(tmp_path, namesrvAddr=f"{gone};{address}", registerBrokerTimeoutMills="2000") as broker,
        open_client() as asking,
    ):
        assert (await broker.ask(RequestCode.SEND_MESSAGE, send_fields("Kept"), b"x")).code == 0

        async def known(topic: str) -> None:
            assert await perm_of(asking, address, topic) == 6, topic

        async def use(number: int) -> None:
            for turn in range(5):
                fields = send_fields(f"Used{number}x{turn}")
                assert (await broker.ask(RequestCode.SEND_MESSAGE, fields, b"x")).code == 0

        async def change_and_delete(number: int) -> None:
            for perm in (6, 4, 2):
                await broker.create_topic(f"Changed{number}", perm=perm)
                assert await perm_of(asking, address, f"Changed{number}") == perm
            await broker.create_topic(f"Deleted{number}")
            assert (await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": f"Deleted{number}"})).code == 0

        async with trio.open_nursery() as clients:
            for number in range(8):
                topics = [f"Made{number}x{each}" for each in range(16)]
                clients.start_soon(create_in_one_read, broker, topics, known)
                clients.start_soon(use, number)
                clients.start_soon(change_and_delete, number)
        with trio.fail_after(10):
            for number in range(8):
                for turn in range(5):
                    while await perm_of(asking, address, f"Used{number}x{turn}") is None:  # noqa: ASYNC110
                        await trio.sleep(0.02)
