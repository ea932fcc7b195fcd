from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, cast

import pytest
import structlog
import trio
import trio.testing
from fake_clock import FakeClock
from golden_data import golden_frames
from msgspec.structs import replace
from registrations_read import compressed_registration
from trio.testing import MockClock

from triomq.broker.configuration import Configuration
from triomq.broker.nameservers.address_server import AddressServer
from triomq.broker.nameservers.link import CONTEST_SECONDS, REST_SECONDS
from triomq.broker.nameservers.nameserver_list import NameServerList, split_addresses
from triomq.broker.nameservers.registration import Registration
from triomq.broker.tables.built_in_topics import built_in_topics
from triomq.broker.tables.topics import TopicEvents, TopicTable
from triomq.namesrv.config import NamesrvSettings
from triomq.namesrv.controller import serve
from triomq.protocol.bodies.kv_table import KVTable
from triomq.protocol.bodies.route import TopicRouteData
from triomq.protocol.bodies.topic_config import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RPC_ONEWAY, RemotingCommand, new_request, new_response
from triomq.protocol.frame import FrameDecoder, encode_frame
from triomq.protocol.headers.namesrv import (
    GetRouteInfoRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
)
from triomq.remoting.client import RemotingClient, open_client
from triomq.remoting.config import ServerSettings
from triomq.remoting.errors import ConnectFailed
from triomq.remoting.http_get import HttpFailed
from triomq.store.config import BrokerRole

A, B = "10.0.0.8:9876", "10.0.0.9:9876"
Answer = Callable[[RemotingCommand], "RemotingCommand | None"]


class FakeClient:
    """NameServers by address. Each responds as configured, or not at all. Records what is sent."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, RemotingCommand]] = []
        self.answers: dict[str, Answer] = {}
        self.seconds: dict[str, float] = {}
        self.closed: list[Callable[[str, Any], None]] = []

    def on_connection_closed(self, hook: Callable[[str, Any], None]) -> None:
        self.closed.append(hook)

    def close(self, address: str) -> None:
        for hook in self.closed:
            hook(address, None)

    async def invoke(self, address: str, command: RemotingCommand, timeout_seconds: float = 3.0) -> RemotingCommand:
        self.sent.append((address, command))
        await trio.sleep(self.seconds.get(address, 0))
        answer = self.answers.get(address, new_response)(command)
        if answer is None:
            raise ConnectFailed(f"connect to {address} failed: refused")
        return answer

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_seconds: float = 3.0) -> None:
        command.flag |= RPC_ONEWAY
        await self.invoke(address, command)

    def take(self) -> list[tuple[str, int]]:
        """Return (address, code) of the requests since the last call, parallel ones by address."""
        taken = [(address, command.code) for address, command in self.sent]
        codes = [code for _, code in taken]
        self.sent.clear()
        return sorted(taken, key=lambda pair: (codes.index(pair[1]), pair[0]))


class Surroundings:
    """A registration with fakes around it."""

    def __init__(self, **keys: str) -> None:
        self.configuration = Configuration.from_values(
            {"brokerName": "b-a", "brokerClusterName": "C", "namesrvAddr": f"{A};{B}", **keys}
        )
        self.clock = FakeClock()
        self.topics = TopicTable(now_ms=self.clock, built_in=[TopicConfig(topic_name="Built")])
        self.client = FakeClient()
        self.masters: list[tuple[str | None, str | None]] = []
        self.nameservers = NameServerList(self.configuration, AddressServer.from_properties({}))
        self.registration = Registration(
            self.configuration,
            self.topics,
            cast(RemotingClient, self.client),
            address="10.0.0.1:10911",
            ha_address="10.0.0.2:10912",
            nameservers=self.nameservers,
            on_master=lambda address, ha_address: self.masters.append((address, ha_address)),
        )
        self.topics.tell(
            TopicEvents(changed=self.registration.topic_changed, made_by_use=self.registration.register_soon)
        )


Surround = Callable[..., Surroundings]


@pytest.fixture
def surround(nursery: trio.Nursery) -> Surround:
    """Create surroundings in which registrations are performed."""

    def make(**keys: str) -> Surroundings:
        around = Surroundings(**keys)
        nursery.start_soon(around.registration.run)
        return around

    return make


def body_of(command: RemotingCommand) -> RegisterBrokerBody:
    header = command.header(RegisterBrokerRequestHeader)
    assert header.body_crc32 == zlib.crc32(command.body) & 0x7FFFFFFF
    decode = compressed_registration if header.compressed else RegisterBrokerBody.decode
    return decode(command.body)


def topics_of(command: RemotingCommand) -> set[str]:
    return set(body_of(command).topic_config_serialize_wrapper.topic_config_table)


# -- what is sent ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compressed", ["false", "true"])
async def test_a_registration_says_who_and_what(surround: Surround, compressed: str) -> None:
    around = surround(compressedRegister=compressed)
    await around.registration.start()
    command = around.client.sent[0][1]
    assert {address for address, _ in around.client.sent} == {A, B}
    assert command.ext_fields == {
        "brokerName": "b-a",
        "brokerAddr": "10.0.0.1:10911",
        "clusterName": "C",
        "haServerAddr": "10.0.0.2:10912",
        "brokerId": "0",
        "compressed": compressed,
        "bodyCrc32": str(zlib.crc32(command.body) & 0x7FFFFFFF),
    }
    wrapper = body_of(command).topic_config_serialize_wrapper
    assert wrapper.data_version == around.topics.data_version
    assert set(wrapper.topic_config_table) == {"Built"}


async def test_a_table_that_is_too_large_for_a_frame_goes_compressed(surround: Surround) -> None:
    around = surround()
    names = [f"%RETRY%{number:0200}" for number in range(35_000)]
    topics = {name: TopicConfig(topic_name=name) for name in names}
    around.topics.replace_all(TopicConfigSerializeWrapper(topic_config_table=topics))
    await around.registration.start()
    command = around.client.sent[0][1]
    assert command.header(RegisterBrokerRequestHeader).compressed
    assert len(encode_frame(command)) < 16 * 1024**2
    assert len(topics_of(command)) == 35_000


def real_registrations() -> list[RemotingCommand]:
    frames = [
        frame
        for file in ("clients_json", "clients_rocketmq", "master_slave_json", "acl_json")
        for frame in golden_frames(file)
        if frame["code_name"] in ("REGISTER_BROKER", "QUERY_DATA_VERSION", "UNREGISTER_BROKER")
    ]
    commands = [command for frame in frames for command in FrameDecoder().feed(bytes.fromhex(frame["frame_hex"]))]
    assert len(commands) > 40
    return cast("list[RemotingCommand]", commands)


async def test_requests_are_those_of_the_real_broker(surround: Surround) -> None:
    """The same broker with the same topics sends the same header fields and an equivalent body."""
    for real in real_registrations():
        fields = dict(real.ext_fields or {})
        ours = await _our_request(surround, real, fields)
        assert not ours.flag & RPC_ONEWAY, "RocketMQ's are one way after automatic creation, and may get lost"
        ours_fields = dict(ours.ext_fields or {})
        if real.code == RequestCode.REGISTER_BROKER:
            assert body_of(ours) == body_of(real)
            ours_fields.pop("bodyCrc32"), fields.pop("bodyCrc32")  # the order of topics is that of a Java HashMap
        else:
            assert ours.body == real.body
        assert ours_fields == fields
        ours.opaque, ours.serialize_type = real.opaque, real.serialize_type
        (again,) = FrameDecoder().feed(encode_frame(ours))
        assert (again.code, again.version, again.language) == (real.code, real.version, real.language)


async def _our_request(surround: Surround, real: RemotingCommand, fields: dict[str, str]) -> RemotingCommand:
    around = surround(
        brokerName=fields["brokerName"],
        brokerClusterName=fields["clusterName"],
        brokerId=fields["brokerId"],
        brokerRole="SLAVE" if fields["brokerId"] != "0" else "ASYNC_MASTER",
        compressedRegister=fields.get("compressed", "false"),
        forceRegister="false",
        namesrvAddr=A,
    )
    around.registration._requests._address = fields["brokerAddr"]
    around.registration._requests._ha_address = fields.get("haServerAddr", "")
    if real.code == RequestCode.UNREGISTER_BROKER:
        await around.registration.stop()
    elif real.code == RequestCode.QUERY_DATA_VERSION:
        around.topics.data_version = DataVersion.decode(real.body)
        await around.registration.register_all()
    else:
        wrapper = body_of(real).topic_config_serialize_wrapper
        if len(wrapper.topic_config_table) == 1:
            await around.registration.start()
            around.client.sent.clear()
            (topic,) = wrapper.topic_config_table.values()
            around.topics.update(topic)
            around.topics.data_version = wrapper.data_version
            await around.registration.registered()
        else:
            around.topics.replace_all(wrapper)
            await around.registration.register_all(force=True)
    return around.client.sent[0][1]


async def test_a_limited_broker_permission_is_that_of_every_topic(surround: Surround) -> None:
    around = surround(brokerPermission="4")
    around.topics.update(
        TopicConfig(topic_name="T", read_queue_nums=3, write_queue_nums=2, perm=6, order=True, topic_sys_flag=1)
    )
    await around.registration.register_all()
    table = body_of(around.client.sent[0][1]).topic_config_serialize_wrapper.topic_config_table
    assert table["T"] == TopicConfig(topic_name="T", read_queue_nums=3, write_queue_nums=2, perm=4)
    assert {config.perm for config in table.values()} == {4}
    kept = around.topics.get("T")
    assert kept is not None
    assert kept.perm == 6


# -- one topic -------------------------------------------------------------------------------------------------------


async def test_one_topic_goes_alone_only_where_all_others_are_known(surround: Surround) -> None:
    around = surround()
    await around.registration.start()
    around.client.close(B)  # and it forgot us
    around.client.sent.clear()
    topic = TopicConfig(topic_name="T")
    around.topics.update(topic)
    await around.registration.registered()
    assert {address: topics_of(command) for address, command in around.client.sent} == {A: {"T"}, B: {"Built", "T"}}
    around.client.sent.clear()
    around.topics.update(topic)
    await around.registration.registered()
    assert {address: topics_of(command) for address, command in around.client.sent} == {A: {"T"}, B: {"T"}}


async def test_one_topic_after_a_failure_brings_all_of_them(surround: Surround) -> None:
    around = surround()
    around.client.answers[B] = lambda request: new_response(request, ResponseCode.SYSTEM_ERROR, "crc32 not match")
    await around.registration.start()
    around.client.sent.clear()
    await around.registration.registered()
    around.topics.update(TopicConfig(topic_name="T"))
    del around.client.answers[B]
    await around.registration.registered()
    assert [topics_of(command) for address, command in around.client.sent if address == B] == [
        {"Built"},
        {"Built", "T"},
    ]


# -- when it is sent -------------------------------------------------------------------------------------------------


async def test_topics_that_come_by_use_are_registered_together(surround: Surround, autojump_clock: MockClock) -> None:
    around = surround(namesrvAddr=A)
    for number in range(50):
        around.topics.create_on_send_back(f"T{number}", 1, 6, 0)
    await trio.testing.wait_all_tasks_blocked()
    assert around.client.take() == [(A, RequestCode.REGISTER_BROKER)]
    around.topics.create_on_send_back("Later", 1, 6, 0)
    await trio.testing.wait_all_tasks_blocked()
    assert around.client.take() == [], "a rest, so that a flood of new topics is no flood of registrations"
    await trio.sleep(1)
    assert [topics_of(command) for _, command in around.client.sent] == [{"Later"}]


async def test_what_depends_on_a_new_topic_waits_for_name_servers_that_respond(
    surround: Surround, autojump_clock: MockClock
) -> None:
    around = surround()
    await around.registration.start()
    around.client.sent.clear()
    around.client.seconds = {A: 0.25, B: 1000}
    began = trio.current_time()
    around.topics.create_on_send_back("T", 1, 6, 0)
    await around.registration.in_routes(began + 1)
    assert trio.current_time() == began + 1, "B may yet respond"
    await trio.sleep(10)  # by now it counts as away
    around.topics.create_on_send_back("Next", 1, 6, 0)
    began = trio.current_time()
    await around.registration.in_routes(began + 1)
    assert trio.current_time() == began + 0.25
    assert [topics_of(command) for address, command in around.client.sent if address == A] == [{"T"}, {"Next"}]


async def test_without_force_the_version_is_asked_first(surround: Surround) -> None:
    around = surround(forceRegister="false")
    known = {A: around.topics.data_version, B: around.topics.data_version}

    def answer(address: str, request: RemotingCommand) -> RemotingCommand:
        if request.code != RequestCode.QUERY_DATA_VERSION:
            return new_response(request)
        asked = DataVersion.decode(request.body)
        header = QueryDataVersionResponseHeader(changed=asked != known[address])
        return new_response(request, header=header, body=known[address].encode())

    around.client.answers = {address: partial(answer, address) for address in (A, B)}
    query, register = RequestCode.QUERY_DATA_VERSION, RequestCode.REGISTER_BROKER
    await around.registration.register_all()
    assert around.client.take() == [(A, query), (B, query)]
    await around.registration.start()
    assert around.client.take() == [(A, register), (B, register)], "the first one is never asked for"
    around.topics.bump_version()
    known[A] = around.topics.data_version
    await around.registration.register_all()
    assert around.client.take() == [(A, query), (B, query), (A, register), (B, register)]
    known[B] = around.topics.data_version
    around.client.answers[B] = lambda request: None
    await around.registration.register_all()
    assert around.client.take()[2:] == [(A, register), (B, register)], "who does not answer may need it"


async def test_an_answer_about_the_version_that_cannot_be_read_counts_as_another_version(surround: Surround) -> None:
    """Registering once too often does no harm; not registering hides the broker's topics."""
    around = surround(forceRegister="false")
    query, register = RequestCode.QUERY_DATA_VERSION, RequestCode.REGISTER_BROKER
    await around.registration.start()
    around.client.take()

    def answer(request: RemotingCommand) -> RemotingCommand:
        if request.code != query:
            return new_response(request)
        return new_response(request, header=QueryDataVersionResponseHeader(changed=False), body=b"{broken")

    around.client.answers[A] = answer
    await around.registration.register_all()
    assert (A, register) in around.client.take()


async def test_a_silent_nameserver_costs_the_others_nothing(surround: Surround, autojump_clock: MockClock) -> None:
    around = surround(registerBrokerTimeoutMills="6000")
    around.client.seconds[A] = 1e9
    around.client.answers[B] = lambda request: new_response(request, body=KVTable(table={"Built": "b-a:8"}).encode())
    began = trio.current_time()
    assert await around.registration.register_all()
    assert trio.current_time() - began == 6.0
    built = around.topics.get("Built")
    assert built is not None
    assert built.order, "what the other one said was heard"
    began = trio.current_time()
    await around.registration.stop()
    assert trio.current_time() - began == 3.0


async def test_an_unreachable_nameserver_is_logged_at_once_and_then_once_a_minute(
    surround: Surround, autojump_clock: MockClock
) -> None:
    around = surround(namesrvAddr=A)
    around.client.answers[A] = lambda request: None
    with structlog.testing.capture_logs() as captured:
        for _ in range(15):  # every ten seconds
            await around.registration.register_all()
            await trio.sleep(10)
    assert [entry["event"] for entry in captured] == ["NameServer not reached; retrying"] * 3


async def test_an_unreachable_nameserver_is_logged_once_until_it_is_back(surround: Surround) -> None:
    around = surround(namesrvAddr=A)
    around.client.answers[A] = lambda request: None
    with structlog.testing.capture_logs() as captured:
        for _ in range(3):
            assert not await around.registration.register_all()
            await around.registration.registered()
        del around.client.answers[A]
        for _ in range(3):
            assert await around.registration.register_all()
        around.client.answers[A] = lambda request: None
        await around.registration.register_all()
    assert [entry["event"] for entry in captured] == [
        "NameServer not reached; retrying",
        "NameServer reached again",
        "NameServer not reached; retrying",
    ]
    assert captured[0]["nameserver"] == A


async def test_a_closed_connection_is_followed_by_a_registration_at_once_but_not_by_a_flood(
    surround: Surround, autojump_clock: MockClock
) -> None:
    around = surround(namesrvAddr=A)
    await around.registration.start()
    around.client.take()
    for _ in range(50):
        around.client.close(A)
        await trio.testing.wait_all_tasks_blocked()
    assert around.client.take() == [(A, RequestCode.REGISTER_BROKER)]
    await trio.sleep(REST_SECONDS)
    around.client.close(A)
    await trio.testing.wait_all_tasks_blocked()
    assert around.client.take() == [(A, RequestCode.REGISTER_BROKER)]


async def test_a_registration_that_is_lost_again_and_again_is_contested_for_a_while(
    surround: Surround, autojump_clock: MockClock
) -> None:
    around = surround(namesrvAddr=A)
    await around.registration.start()
    with structlog.testing.capture_logs() as captured:
        around.client.close(A)
        await trio.sleep(CONTEST_SECONDS + 1)
        around.client.close(A)
        assert around.registration.contested() == [], "a NameServer may restart"
        for _ in range(3):  # each time the broker registers again, and the other one does, too
            await trio.sleep(REST_SECONDS + 1)
            around.client.close(A)
            assert around.registration.contested() == [A]
        await trio.sleep(CONTEST_SECONDS + 1)
        assert around.registration.contested() == []
    assert [(each["event"], each["nameserver"]) for each in captured] == [("registration contested", A)]


@pytest.mark.parametrize("leads", [False, True])
async def test_a_closed_connection_is_followed_by_no_registration_while_another_broker_may_have_the_id(
    surround: Surround, autojump_clock: MockClock, leads: bool
) -> None:
    """A NameServer closes the connection of a leader that stood still because another one has registered."""
    around = surround(namesrvAddr=A)
    await around.registration.start()
    is_doubtful = True
    around.registration.wait_while(lambda: is_doubtful)
    around.client.take()
    around.client.close(A)
    await trio.sleep(1)
    assert around.client.take() == []
    if not leads:
        around.configuration.role.take(BrokerRole.SLAVE, 3)
    is_doubtful = False
    await trio.sleep(1)
    [(_, command)] = around.client.sent
    assert command.header(RegisterBrokerRequestHeader).broker_id == (0 if leads else 3)


async def test_a_connection_closed_by_the_stop_is_followed_by_nothing(surround: Surround) -> None:
    around = surround(namesrvAddr=A)
    await around.registration.start()
    await around.registration.stop()
    around.client.take()
    around.client.close(A)
    await trio.testing.wait_all_tasks_blocked()
    assert around.client.take() == []


async def test_without_nameservers_nothing_is_sent(surround: Surround) -> None:
    around = surround(namesrvAddr="")
    await around.registration.start()
    around.topics.update(TopicConfig(topic_name="T"))
    await around.registration.registered()
    await around.registration.stop()
    assert around.client.sent == []


async def test_the_list_may_change_while_the_broker_runs(surround: Surround) -> None:
    around = surround(namesrvAddr=A)
    await around.registration.start()
    await around.registration.update_nameservers()
    assert around.client.take() == [(A, RequestCode.REGISTER_BROKER)]
    around.configuration.broker = replace(around.configuration.broker, namesrv_addr=f"{B};{A}")
    await around.registration.update_nameservers()
    assert around.client.take() == [(A, RequestCode.REGISTER_BROKER), (B, RequestCode.REGISTER_BROKER)]
    await around.registration.update_nameservers()
    assert around.client.take() == []


# -- what comes back -------------------------------------------------------------------------------------------------


async def test_ordered_topics_come_from_the_answer(surround: Surround) -> None:
    around = surround(namesrvAddr=A)
    around.topics.update(TopicConfig(topic_name="Was", order=True))
    await around.registration.register_all()
    assert around.topics.is_ordered("Was"), "no table in the answer says nothing"
    around.client.answers[A] = lambda request: new_response(request, body=KVTable(table={"Built": "b-a:8"}).encode())
    await around.registration.register_all()
    assert (around.topics.is_ordered("Was"), around.topics.is_ordered("Built")) == (False, True)


async def test_a_slave_learns_of_its_master(surround: Surround) -> None:
    around = surround(brokerRole="SLAVE", brokerId="1")
    header = RegisterBrokerResponseHeader(ha_server_addr="10.0.0.5:10912", master_addr="10.0.0.5:10911")
    around.client.answers[B] = lambda request: new_response(request, header=header)
    around.client.answers[A] = lambda request: None
    await around.registration.register_all()
    del around.client.answers[B]
    await around.registration.register_all()
    assert around.masters == [("10.0.0.5:10911", "10.0.0.5:10912"), (None, None)]


async def test_an_answer_that_cannot_be_read_does_no_harm(surround: Surround) -> None:
    around = surround(namesrvAddr=A)
    around.client.answers[A] = lambda request: new_response(request, body=b"{{{")
    assert await around.registration.register_all()


# -- the address server ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def http_server(answer: bytes, *, silent: bool = False) -> AsyncIterator[tuple[AddressServer, list[bytes]]]:
    requests: list[bytes] = []

    async def handle(stream: trio.SocketStream) -> None:
        requests.append(await stream.receive_some(4096))
        if silent:
            await trio.sleep_forever()
        with suppress(trio.BrokenResourceError):
            await stream.send_all(answer)
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, handle, 0, host="127.0.0.1"))
        yield AddressServer(f"127.0.0.1:{listeners[0].socket.getsockname()[1]}", "group"), requests
        nursery.cancel_scope.cancel()


async def test_the_address_server_is_asked_over_http() -> None:
    async with http_server(b"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n10.0.0.8:9876;10.0.0.9:9876\n") as (server, requests):
        assert await server.fetch() == f"{A};{B}"
    assert requests[0].startswith(b"GET /rocketmq/group HTTP/1.0\r\nHost: 127.0.0.1:")
    assert requests[0].endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 404 Not Found\r\n\r\nnothing", "404"),
        (b"not http at all", "responded"),
        (b"", "responded"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 100_000, "longer than"),
    ],
)
async def test_other_answers_are_refused(answer: bytes, reason: str) -> None:
    async with http_server(answer) as (server, _):
        with pytest.raises(HttpFailed, match=reason):
            await server.fetch()


async def test_an_address_server_that_is_silent_or_absent() -> None:
    with pytest.raises(HttpFailed, match=r"http://127\.0\.0\.1:1/rocketmq/nsaddr"):
        await AddressServer("127.0.0.1:1").fetch()
    with pytest.raises(HttpFailed):
        await AddressServer("127.0.0.1:port").fetch()


async def test_a_fetch_has_its_time_limit(autojump_clock: MockClock) -> None:
    async with http_server(b"", silent=True) as (server, _):
        with pytest.raises(HttpFailed, match="no response in 3 s"):
            await server.fetch()


def test_where_the_address_server_is() -> None:
    assert AddressServer.from_properties({}).url == "http://jmenv.tbsite.net:8080/rocketmq/nsaddr"
    named = {"rocketmq.namesrv.domain": "addr.example:80", "rocketmq.namesrv.domain.subgroup": "mine"}
    assert AddressServer.from_properties(named).url == "http://addr.example:80/rocketmq/mine"


class FakeAddressServer:
    def __init__(self, *texts: str | Exception) -> None:
        self.texts = list(texts)
        self.times_asked = 0

    async def fetch(self) -> str:
        self.times_asked += 1
        text = self.texts.pop(0)
        if isinstance(text, Exception):
            raise text
        return text


async def test_a_fetched_list_is_kept_until_there_is_a_new_one(surround: Surround) -> None:
    around = surround(namesrvAddr="", fetchNamesrvAddrByAddressServer="true")
    around.nameservers._address_server = cast(AddressServer, FakeAddressServer(A, HttpFailed("down"), "", f"{B};{A}"))
    await around.registration.start()
    assert around.client.take() == [(A, RequestCode.REGISTER_BROKER)]
    seen: list[list[str]] = []
    for _ in range(3):
        await around.nameservers.fetch()
        seen.append(around.nameservers.addresses())
    assert seen == [[A], [A], [B, A]]


@pytest.mark.parametrize(
    ("keys", "nameservers", "times_asked"),
    [
        ({"namesrvAddr": A, "fetchNamesrvAddrByAddressServer": "true"}, [A], 0),
        ({"namesrvAddr": "", "fetchNamesrvAddrByAddressServer": "false"}, [], 0),
        ({"namesrvAddr": "", "fetchNamesrvAddrByAddressServer": "true"}, [B], 1),
    ],
)
async def test_the_address_server_is_asked_only_when_it_is_switched_on_and_there_is_no_list(
    surround: Surround, keys: dict[str, str], nameservers: list[str], times_asked: int
) -> None:
    around = surround(**keys)
    server = FakeAddressServer(B)
    around.nameservers._address_server = cast(AddressServer, server)
    await around.nameservers.fetch()
    assert around.nameservers.addresses() == nameservers
    assert server.times_asked == times_asked


def test_splitting_a_list() -> None:
    assert split_addresses(f" {A} ;{B};; {A};\n") == [A, B]
    assert len(split_addresses(";".join(f"h:{port}" for port in range(1000)))) == 64


# -- a real NameServer -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def nameserver() -> AsyncIterator[tuple[str, Callable[[], Awaitable[None]]]]:
    """Start a NameServer. Return its address, and a function that stops it."""
    async with trio.open_nursery() as nursery:
        scope = trio.CancelScope()
        stopped = trio.Event()

        async def life(*, task_status: trio.TaskStatus[int]) -> None:
            settings = ServerSettings(listen_port=0, bind_address="127.0.0.1")
            with scope:
                await serve(NamesrvSettings(), settings, task_status=task_status)
            stopped.set()

        port = await nursery.start(life)

        async def stop() -> None:
            scope.cancel()
            await stopped.wait()

        yield f"127.0.0.1:{port}", stop
        scope.cancel()


async def route_of(client: RemotingClient, address: str, topic: str) -> TopicRouteData | None:
    request = new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic))
    answer = await client.invoke(address, request)
    return TopicRouteData.decode(answer.body) if answer.code == 0 else None


def registration_of(client: RemotingClient, nameservers: str, **keys: str) -> tuple[Registration, TopicTable]:
    configuration = Configuration.from_values(
        {"brokerName": "b-a", "brokerClusterName": "C", "namesrvAddr": nameservers, **keys}
    )
    topics = TopicTable(
        now_ms=FakeClock(), built_in=built_in_topics(cluster="C", broker_name="b-a", default_queue_count=8)
    )
    registration = Registration(
        configuration,
        topics,
        client,
        address="10.0.0.1:10911",
        ha_address="10.0.0.1:10912",
        nameservers=NameServerList(configuration, AddressServer.from_properties({})),
    )
    topics.tell(TopicEvents(changed=registration.topic_changed, made_by_use=registration.register_soon))
    return registration, topics


@pytest.mark.parametrize("compressed", ["false", "true"])
async def test_a_real_nameserver_takes_it(nursery: trio.Nursery, compressed: str) -> None:
    async with nameserver() as (address, _), open_client() as client, open_client() as asking:
        registration, topics = registration_of(client, address, compressedRegister=compressed, forceRegister="false")
        nursery.start_soon(registration.run)
        order = PutKVConfigRequestHeader(namespace="ORDER_TOPIC_CONFIG", key="TBW102", value="b-a:8")
        assert (await asking.invoke(address, new_request(RequestCode.PUT_KV_CONFIG, order))).code == 0
        await registration.start()
        route = await route_of(asking, address, "TBW102")
        assert route is not None
        assert route.broker_datas[0].broker_addrs == {0: "10.0.0.1:10911"}
        assert topics.is_ordered("TBW102")
        topic = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4)
        topics.update(topic)
        await registration.registered()
        route = await route_of(asking, address, "T")
        assert route is not None
        assert route.queue_datas[0].read_queue_nums == 4
        topics.create_on_send("Auto", "TBW102", "10.0.0.3:1", 2, 0)
        with trio.fail_after(5):
            while await route_of(asking, address, "Auto") is None:  # noqa: ASYNC110 (another process would be asked so)
                await trio.sleep(0.01)
        assert await registration.register_all(), "unchanged, and they say so"
        await registration.stop()
        assert await route_of(asking, address, "T") is None
        nursery.cancel_scope.cancel()


async def test_one_of_two_real_nameservers_is_down(nursery: trio.Nursery) -> None:
    async with nameserver() as (first, _), nameserver() as (second, stop), open_client() as client:
        registration, _ = registration_of(client, f"{second};{first}")
        nursery.start_soon(registration.run)
        await stop()
        await registration.start()
        async with open_client() as asking:
            assert await route_of(asking, first, "TBW102") is not None
        await registration.stop()
        nursery.cancel_scope.cancel()


async def test_the_whole_table_is_encoded_again_only_when_it_or_the_settings_changed() -> None:
    around = Surroundings()
    requests = around.registration._requests
    first = requests.whole()
    assert requests.whole().body is first.body
    around.topics.bump_version()
    second = requests.whole()
    assert second.body is not first.body
    around.configuration.broker = replace(around.configuration.broker)
    assert requests.whole().body is not second.body


async def test_what_concerns_all_topics_has_the_whole_table_registered_everywhere(
    surround: Surround, autojump_clock: trio.testing.MockClock
) -> None:
    around = surround()
    await around.registration.start()
    around.client.sent.clear()
    around.registration.register_all_soon()
    await trio.sleep(1)
    assert sorted((address, topics_of(command)) for address, command in around.client.sent) == [
        (A, {"Built"}),
        (B, {"Built"}),
    ]


async def test_topics_created_by_use_wake_the_registration_once(
    nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    """Otherwise it would check its links forever with nothing to register."""
    around = Surroundings()
    asked: list[str] = []
    links = around.registration._links

    def recording() -> list[Any]:
        asked.append("links")
        return links()

    nursery.start_soon(around.registration.run)
    await trio.sleep(1)
    around.registration._links = recording  # type: ignore[method-assign]
    around.registration.register_soon()
    await trio.sleep(600)
    assert asked == ["links"]
