"""Assignments: which queues a client of RocketMQ 5 has, whether it pulls or receives, and what is kept of that."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from broker_fakes import FakeConnection, MemoryFile
from broker_metadata import metadata
from broker_whole import WholeBroker, whole_broker
from fake_clock import FakeClock

from triomq.broker.configuration import Configuration
from triomq.broker.errors import TableFull
from triomq.broker.nameservers import routes as module
from triomq.broker.nameservers.routes import ASK_SECONDS, FRESH_SECONDS, MAX_QUEUES, RETRY_SECONDS, Route, Routes
from triomq.broker.pop.sharing import STRATEGIES, pulled, received
from triomq.broker.processors.assignments import QUEUES_IN_A_STEP, AssignmentProcessor
from triomq.broker.tables.consumers import Consumption
from triomq.broker.tables.request_modes import RequestModes
from triomq.protocol.bodies.assignment import POP, PULL, RequestMode
from triomq.protocol.bodies.route import QueueData, TopicRouteData
from triomq.protocol.bodies.topic_config import TopicConfig
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.errors import RequestRefused
from triomq.remoting.errors import RemotingError

NAMESERVERS = ["10.0.0.1:9876", "10.0.0.2:9876"]
TWO_BROKERS: Route = (("broker-a", 3), ("broker-b", 2))


# -- sharing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("queues", range(12))
@pytest.mark.parametrize("count", range(1, 8))
def test_each_queue_is_pulled_by_exactly_one_client(strategy: str, queues: int, count: int) -> None:
    clients = [f"c{number}" for number in range(count)]
    parts = [pulled(strategy, queues, clients, client) for client in clients]
    assert sorted(queue for part in parts for queue in part) == list(range(queues))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert not pulled(strategy, queues, clients, "stranger")


def test_what_the_strategies_of_java_give() -> None:
    clients = ["a", "b", "c"]
    assert [list(pulled("AVG", 8, clients, each)) for each in clients] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert [list(pulled("AVG_BY_CIRCLE", 8, clients, each)) for each in clients] == [[0, 3, 6], [1, 4, 7], [2, 5]]


def test_clients_that_receive_share_their_queues_with_those_behind_them() -> None:
    clients = ["a", "b", "c", "d"]
    assert received("AVG", 8, clients, "a", 0) is None, "all receive from all"
    assert received("AVG", 8, clients, "a", 3) is None, "as many as there are others"
    assert received("AVG", 8, clients, "a", 1) == [0, 1, 2, 3]
    assert received("AVG", 8, clients, "d", 1) == [0, 1, 6, 7]
    assert received("AVG", 8, clients, "c", 2) == [0, 1, 4, 5, 6, 7]
    assert received("AVG", 2, clients, "d", 1) == [1], "no client is without a queue"
    assert received("AVG", 8, clients, "stranger", 1) == []
    assert received("AVG", 0, clients, "a", 1) == []


# -- the table ---------------------------------------------------------------------------------------------------------


def mode_of(topic: str, group: str, mode: str = POP, shared_by: int = 0) -> RequestMode:
    return RequestMode(topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=shared_by)


def filled(file: MemoryFile | None = None, max_modes: int = 4) -> RequestModes:
    modes = RequestModes(file, max_modes=max_modes)
    for topic, group in [("T", "G"), ("T", "H"), ("U", "G")]:
        modes.set(topic, group, mode_of(topic, group, shared_by=2))
    return modes


def test_the_file_is_rocketmqs_and_is_read_again() -> None:
    file = MemoryFile()
    modes = filled(file)
    modes.set("T", "H", mode_of("T", "H", PULL))
    assert json.loads(file.text)["messageRequestModeMap"]["U"] == {
        "G": {"consumerGroup": "G", "mode": "POP", "popShareQueueNum": 2, "topic": "U"}
    }
    loaded = RequestModes(file)
    loaded.load()
    assert len(loaded) == 3
    for topic, group in [("T", "G"), ("T", "H"), ("U", "G")]:
        assert loaded.get(topic, group) == modes.get(topic, group) is not None
    loaded.set("V", "G", mode_of("V", "G"))
    assert sorted(json.loads(file.text)["messageRequestModeMap"]) == ["T", "U", "V"]


def test_a_mode_goes_with_its_topic_and_with_its_group() -> None:
    file = MemoryFile()
    modes = filled(file)
    modes.topic_gone("U")
    assert (modes.get("U", "G"), len(modes)) == (None, 2)
    modes.group_gone("H")
    assert (modes.get("T", "H"), len(modes)) == (None, 1)
    modes.group_gone("G")
    assert json.loads(file.text) == {"messageRequestModeMap": {}}


def test_a_start_forgets_the_modes_of_what_is_gone() -> None:
    modes = filled()
    modes.keep_only(lambda topic: topic == "T", lambda group: group == "G")
    assert len(modes) == 1 and modes.get("T", "G") is not None


def test_beyond_the_limit_only_new_modes_are_refused() -> None:
    modes = filled(max_modes=3)
    with pytest.raises(TableFull):
        modes.set("V", "G", mode_of("V", "G"))
    modes.set("T", "G", mode_of("T", "G", PULL))
    modes.topic_gone("U")
    modes.set("V", "G", mode_of("V", "G"))
    assert len(modes) == 3


# -- routes ------------------------------------------------------------------------------------------------------------


class NameServers:
    """Answers for both: a route, None for an unknown topic, an error."""

    def __init__(self) -> None:
        self.answers: dict[str, TopicRouteData | RemotingError | None] = {}
        self.asked: list[str] = []
        self.seconds = 0.0
        self.addresses = list(NAMESERVERS)
        self.routes = Routes(lambda: self.addresses, self.send, lambda: "broker-a", {"T": 4}.get)

    async def send(self, address: str, request: RemotingCommand, seconds: float) -> RemotingCommand:
        assert request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
        self.asked.append(address)
        with trio.move_on_after(seconds):
            await trio.sleep(self.seconds)
            answer = self.answers[address]
            if isinstance(answer, RemotingError):
                raise answer
            if answer is None:
                return RemotingCommand(code=ResponseCode.TOPIC_NOT_EXIST)
            return RemotingCommand(code=0, body=answer.encode())
        raise RemotingError(f"{address}: no response")

    def answer(self, answer: TopicRouteData | RemotingError | None) -> None:
        self.answers = dict.fromkeys(NAMESERVERS, answer)


def route_data(perm: int = 6, **queues: int) -> TopicRouteData:
    return TopicRouteData(
        queue_datas=[
            QueueData(broker_name=f"broker-{name}", perm=perm, read_queue_nums=count) for name, count in queues.items()
        ]
    )


async def test_a_route_is_kept_for_a_while_and_asked_for_once(autojump_clock: trio.testing.MockClock) -> None:
    servers = NameServers()
    servers.answer(route_data(b=2, a=3))
    servers.seconds = 0.5
    found: list[Route | None] = []

    async def find() -> None:
        found.append(await servers.routes.find("T"))

    async with trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(find)
    assert found == [TWO_BROKERS] * 5
    assert servers.asked == NAMESERVERS[:1]
    servers.answer(route_data(a=8))
    await trio.sleep(FRESH_SECONDS - 1)
    assert await servers.routes.find("T") == TWO_BROKERS
    await trio.sleep(1)
    assert await servers.routes.find("T") == (("broker-a", 8),)


async def test_who_waits_asks_when_the_one_that_asked_is_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    servers = NameServers()
    servers.answer(route_data(a=1))
    servers.seconds = 0.5
    first = trio.CancelScope()

    async def ask() -> None:
        with first:
            await servers.routes.find("T")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(servers.routes.find, "T")
        await trio.testing.wait_all_tasks_blocked()
        assert len(servers.asked) == 1
        first.cancel()
    assert len(servers.asked) == 2
    assert await servers.routes.find("T") == (("broker-a", 1),)


async def test_a_route_stays_in_use_while_no_nameserver_responds(autojump_clock: trio.testing.MockClock) -> None:
    servers = NameServers()
    servers.answer(RemotingError("refused"))
    with pytest.raises(RequestRefused, match="the route of topic T is not known: refused"):
        await servers.routes.find("T")
    servers.answer(route_data(b=2, a=3))
    await trio.sleep(RETRY_SECONDS)
    assert await servers.routes.find("T") == TWO_BROKERS
    servers.seconds = 60
    await trio.sleep(FRESH_SECONDS)
    began = trio.current_time()
    assert await servers.routes.find("T") == TWO_BROKERS
    assert trio.current_time() - began <= ASK_SECONDS
    assert await servers.routes.find("T") == TWO_BROKERS
    assert trio.current_time() - began <= ASK_SECONDS, "not everybody waits for them"


async def test_the_next_nameserver_is_asked_about_what_one_does_not_know() -> None:
    servers = NameServers()
    servers.answers = {NAMESERVERS[0]: None, NAMESERVERS[1]: route_data(a=1)}
    assert await servers.routes.find("T") == (("broker-a", 1),)
    servers.answers = {NAMESERVERS[0]: RemotingError("refused"), NAMESERVERS[1]: None}
    assert await servers.routes.find("unknown") is None


async def test_without_nameservers_a_broker_knows_its_own_queues() -> None:
    servers = NameServers()
    servers.addresses = []
    assert await servers.routes.find("T") == (("broker-a", 4),)
    assert await servers.routes.find("unknown") is None
    assert not servers.asked


async def test_a_broker_whose_queues_cannot_be_read_is_not_in_a_route() -> None:
    servers = NameServers()
    servers.answer(route_data(perm=2, a=4))
    assert await servers.routes.find("T") == ()


async def test_the_route_used_longest_ago_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ROUTES", 2)
    servers = NameServers()
    servers.answer(route_data(a=1))
    for topic in ("A", "B", "A", "C"):
        await servers.routes.find(topic)
    assert len(servers.asked) == 3
    await servers.routes.find("A")
    assert len(servers.asked) == 3
    await servers.routes.find("B")
    assert len(servers.asked) == 4


async def test_a_route_has_no_more_queues_than_a_topic_may_have() -> None:
    servers = NameServers()
    servers.answer(route_data(a=2**31 - 1, b=-5))
    assert await servers.routes.find("T") == (("broker-a", MAX_QUEUES), ("broker-b", 0))


# -- the requests ------------------------------------------------------------------------------------------------------


class Desk:
    """The processor with tables in memory, and a cluster of two brokers."""

    def __init__(self) -> None:
        self.tables = metadata(FakeClock())
        self.tables.topics.update(TopicConfig(topic_name="T", read_queue_nums=3, write_queue_nums=3, perm=6))
        self.modes = RequestModes()
        self.servers = NameServers()
        self.servers.answer(route_data(a=3, b=2))
        self.before_answer: Callable[[], None] = lambda: None
        self.processor = AssignmentProcessor(
            Configuration.from_values({}), self.tables, self.modes, self.servers.routes
        )

    def join(self, *client_ids: str, group: str = "G") -> None:
        for client_id in client_ids:
            self.tables.consumers.register(group, FakeConnection(), client_id, 0, 0, Consumption(), [])

    async def ask(self, code: int, body: dict[str, Any]) -> RemotingCommand:
        request = new_request(code, body=json.dumps(body).encode())
        connection: Any = FakeConnection()
        return await self.processor.processors()[code](connection, request)  # type: ignore[misc, no-any-return]

    async def set_mode(self, mode: str = POP, topic: str = "T", shared_by: int = 0) -> RemotingCommand:
        body = {"topic": topic, "consumerGroup": "G", "mode": mode, "popShareQueueNum": shared_by}
        return await self.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body)

    async def query(self, client_id: str = "a", **changes: Any) -> list[tuple[str, int, str]] | None:
        """Return broker name, queue id and mode of each queue that a client has."""
        body = {"topic": "T", "consumerGroup": "G", "clientId": client_id, "strategyName": "AVG"}
        response = await self.ask(RequestCode.QUERY_ASSIGNMENT, {**body, "messageModel": "CLUSTERING", **changes})
        assert response.code == 0
        assignments = json.loads(response.body).get("messageQueueAssignments")
        if assignments is None:
            return None
        queues = [(each["messageQueue"], each["mode"]) for each in assignments]
        return [(queue["brokerName"], queue["queueId"], mode) for queue, mode in queues]


async def test_the_clients_of_a_group_pull_from_the_queues_of_all_brokers() -> None:
    desk = Desk()
    assert await desk.query() is None, "no member is known: the client keeps what it has"
    desk.join("b", "a", "stranger@other", group="Other")
    desk.join("b", "a")
    assert await desk.query("a") == [("broker-a", 0, PULL), ("broker-a", 1, PULL), ("broker-a", 2, PULL)]
    assert await desk.query("b") == [("broker-b", 0, PULL), ("broker-b", 1, PULL)]
    assert await desk.query("b", strategyName="AVG_BY_CIRCLE") == [("broker-a", 1, PULL), ("broker-b", 0, PULL)]
    assert await desk.query("c") == []
    assert len(await desk.query("c", messageModel="BROADCASTING", strategyName=None) or []) == 5


async def test_the_clients_of_a_group_in_pop_mode_receive_from_all_brokers() -> None:
    desk = Desk()
    desk.join("a", "b", "c")
    assert (await desk.set_mode()).code == 0
    assert await desk.query() == [("broker-a", -1, POP), ("broker-b", -1, POP)]
    assert await desk.query(consumerGroup="Other") is None
    assert (await desk.set_mode(shared_by=1)).code == 0
    assert await desk.query("c") == [("broker-a", 0, POP), ("broker-a", 1, POP), ("broker-b", 1, POP)]
    assert (await desk.set_mode(PULL)).code == 0
    assert await desk.query("c") == [("broker-b", 1, PULL)]


async def test_a_retry_topic_is_pulled_whatever_the_mode() -> None:
    desk = Desk()
    desk.join("a")
    desk.modes.set("%RETRY%G", "G", mode_of("%RETRY%G", "G"))
    assert {mode for _, _, mode in await desk.query(topic="%RETRY%G") or []} == {PULL}
    refused = await refusal(desk.set_mode(topic="%RETRY%G"))
    assert (refused.code, refused.remark) == (ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")


async def test_a_topic_that_is_not_known_leaves_the_client_what_it_has() -> None:
    desk = Desk()
    desk.join("a")
    desk.servers.answer(None)
    assert await desk.query() is None
    desk.servers.answer(route_data(perm=2, a=3))
    assert await desk.query(topic="U") is None


async def test_a_light_queue_is_at_this_broker() -> None:
    desk = Desk()
    desk.join("a")
    [(broker_name, queue_id, _)] = await desk.query(topic="%LMQ%1") or []
    assert (broker_name, queue_id) == (Configuration.from_values({}).broker.broker_name, 0)
    assert not desk.servers.asked


async def test_who_joins_while_the_route_is_asked_for_has_its_share(autojump_clock: trio.testing.MockClock) -> None:
    desk = Desk()
    desk.join("a")
    desk.servers.seconds = 0.5
    found: list[Any] = []

    async def query() -> None:
        found.append(await desk.query())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(query)
        await trio.sleep(0.1)
        desk.join("b")
        desk.modes.set("T", "G", mode_of("T", "G", PULL))
    assert found == [[("broker-a", 0, PULL), ("broker-a", 1, PULL), ("broker-a", 2, PULL)]]


async def test_a_long_assignment_has_steps(autojump_clock: trio.testing.MockClock) -> None:
    desk = Desk()
    desk.join("a")
    desk.servers.answer(route_data(a=QUEUES_IN_A_STEP + 1))
    assert [queue_id for _, queue_id, _ in await desk.query() or []] == list(range(QUEUES_IN_A_STEP + 1))


async def refusal(asked: Any) -> RequestRefused:
    with pytest.raises(RequestRefused) as caught:
        await asked
    return caught.value


async def test_what_cannot_be_asked_or_set_is_refused_with_the_reason() -> None:
    desk = Desk()
    desk.join("a")
    by_hash = await refusal(desk.query(strategyName="CONSISTENT_HASH"))
    assert "strategyName=CONSISTENT_HASH: a broker assigns by AVG or AVG_BY_CIRCLE" in str(by_hash)
    assert "needs topic and consumerGroup" in str(await refusal(desk.query(topic=None)))
    assert (await refusal(desk.set_mode(topic="unknown"))).code == ResponseCode.TOPIC_NOT_EXIST
    assert "mode=PUSH: PULL or POP" in str(await refusal(desk.set_mode("PUSH")))
    desk.tables.groups._auto_create = False
    assert (await refusal(desk.set_mode())).code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert not len(desk.modes)


async def test_a_slave_neither_assigns_nor_takes_modes() -> None:
    desk = Desk()
    slave = Configuration.from_values({"brokerRole": "SLAVE", "brokerId": "1"})
    desk.processor = AssignmentProcessor(slave, desk.tables, desk.modes, desk.servers.routes)
    assert (await refusal(desk.query())).code == ResponseCode.NO_PERMISSION
    assert "slave" in str(await refusal(desk.set_mode()))


# -- a whole broker ----------------------------------------------------------------------------------------------------


async def test_a_mode_outlives_a_restart_and_goes_with_its_topic_or_group(tmp_path: Path) -> None:
    async def set_mode(broker: WholeBroker, topic: str, group: str) -> None:
        body = {"topic": topic, "consumerGroup": group, "mode": POP, "popShareQueueNum": 0}
        response = await broker.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, None, json.dumps(body).encode())
        assert response.code == 0, response.remark

    def modes(broker: WholeBroker) -> list[tuple[str, str]]:
        assert broker.controller.serving is not None
        table = broker.controller.serving.tables.request_modes
        return [(topic, group) for topic in ("T", "U") for group in ("G", "H") if table.get(topic, group) is not None]

    async with whole_broker(tmp_path) as broker:
        for topic in ("T", "U"):
            await broker.create_topic(topic, 1)
            for group in ("G", "H"):
                await set_mode(broker, topic, group)
    async with whole_broker(tmp_path) as broker:
        assert modes(broker) == [("T", "G"), ("T", "H"), ("U", "G"), ("U", "H")]
        body = {"topic": "T", "consumerGroup": "G", "clientId": "c", "strategyName": "AVG"}
        response = await broker.ask(RequestCode.QUERY_ASSIGNMENT, None, json.dumps(body).encode())
        assert (response.code, json.loads(response.body)) == (0, {}), "the group has no members"
        assert (await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "U"})).code == 0
        assert modes(broker) == [("T", "G"), ("T", "H")]
        await broker.create_topic("U", 1)
        fields = {"groupName": "G", "removeOffset": "false"}
        assert (await broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)).code == 0
        assert modes(broker) == [("T", "H")]
    path = tmp_path / "store" / "config" / "messageRequestMode.json"
    assert list(json.loads(path.read_text())["messageRequestModeMap"]["T"]) == ["H"]
    path.write_text(path.read_text().replace('"T":', '"Gone":'))
    async with whole_broker(tmp_path) as broker:
        assert broker.controller.serving is not None
        assert len(broker.controller.serving.tables.request_modes) == 0
