"""The page of the cluster: one broker shows all of them, and the NameServers that it registers at."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest
import trio
from broker_shown import Browser, cells, operated, shown
from free_ports import free_port

import triomq
from triomq import Message, blocking
from triomq.admin.__main__ import main
from triomq.broker.views import group_actions, topic_actions
from triomq.broker.views.brokers import Brokers, Place, Places
from triomq.broker.views.operator import Operator, Requests
from triomq.dashboard.actions import ActionRefused, Actor, Outcome
from triomq.protocol.bodies.route import BrokerData, ClusterInfo
from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.remoting.processor_table import ProcessorTable
from triomq.store.config import BrokerRole
from triomq.testing import LocalCluster


async def test_the_cluster_is_one_page_of_a_broker(tmp_path: Path) -> None:
    gone = free_port()
    port = free_port()
    settings = {"dashboardPort": str(port)}
    with LocalCluster(store=tmp_path / "other", settings=settings) as other:
        servers = f"{other.name_server};127.0.0.1:{gone}"
        async with shown(tmp_path, namesrvAddr=servers, brokerName="broker-b") as here:
            assert "nobody has looked" in (await here.get("/"))[1]
            data = await here.data("/cluster")
            brokers = {one["name"]: one for one in data["brokers"]}
            assert len(brokers) == 2
            assert brokers["broker-b"]["role"] == "ASYNC_MASTER"
            assert f"http://127.0.0.1:{port}/" in {one["dashboard"] for one in brokers.values()}
            assert {one["build"] for one in brokers.values()} == {f"TrioMQ {triomq.__version__}"}
            first, second = data["name_servers"]
            assert (first["build"], second["build"]) == (f"TrioMQ {triomq.__version__}", "")
            assert (first["registered"], first["why"], second["registered"]) == (True, "", False)
            assert second["why"]
            assert second["failure"]
            status, text = await here.get("/cluster")
            assert f"TrioMQ {triomq.__version__} (V4_9_7)" in text
            assert (status, "broker-b" in text, f":{gone}" in text) == (200, True, True)
            cluster = (await here.data("/"))["cluster"]["seen"]
            assert f"127.0.0.1:{gone}" in [one["subject"] for one in cluster["alarms"]]
            assert f"NameServer 127.0.0.1:{gone} does not respond" in (await here.get("/"))[1]


@pytest.mark.parametrize("has_tools_account", [False, True])
async def test_with_accounts_the_cluster_answers_an_administrator_and_others_have_no_link(
    tmp_path: Path, has_tools_account: bool
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/plain_acl.yml").write_text(
        "accounts:\n- {accessKey: administrator, secretKey: secret-of-admin, admin: true}\n"
        "- {accessKey: reader-1, secretKey: secret-of-reader, defaultTopicPerm: SUB}\n"
    )
    if has_tools_account:
        (tmp_path / "conf/tools.yml").write_text("accessKey: administrator\nsecretKey: secret-of-admin\n")
    with LocalCluster(store=tmp_path / "other") as other:
        settings = {"aclEnable": "true", "rocketmqHome": str(tmp_path), "namesrvAddr": other.name_server}
        async with shown(tmp_path, **settings, brokerName="broker-b") as here:
            browser = Browser(here.port)
            await browser.post("/login", {"name": "administrator", "secret": "secret-of-admin"})
            data = json.loads((await browser.get("/api/cluster"))[1])
            brokers = {one["name"]: one for one in data["brokers"]}
            assert (brokers["broker-b"]["why"], brokers["broker-b"]["role"]) == ("", "ASYNC_MASTER")
            assert brokers["broker-b"]["uptime_seconds"] is not None
            reader = Browser(here.port)
            await reader.post("/login", {"name": "reader-1", "secret": "secret-of-reader"})
            page = (await reader.get("/"))[1] + (await reader.get("/topics"))[1]
            closed = ("/cluster", "/connections", "/waiting", "/configuration", "/quotas", "/accounts")
            assert [path for path in closed if f'href="{path}"' in page] == []
            for path in closed:
                status, text = await reader.get(path)
                assert (status, "only administrators see this page" in text) == (404, True)


def mqadmin(name_server: str, *words: str) -> list[dict[str, object]]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main([*words, "-n", name_server, "--output", "json"]) == 0
    found: list[dict[str, object]] = json.loads(printed.getvalue())
    return found


def prepare(name_server: str) -> None:
    """Send to both brokers, and let a group begin at the first message."""
    with blocking.Producer("P", name_server=name_server) as producer:
        for number in range(40):
            producer.send(Message("T", b"%d" % number))
    mqadmin(name_server, "offsets", "reset", "G", "T", "--to", "first", "--create", "--yes")


async def test_an_action_is_done_at_all_masters_of_the_cluster(tmp_path: Path) -> None:
    with LocalCluster(store=tmp_path / "other") as other:
        names = other.name_server
        async with operated(tmp_path, namesrvAddr=names, brokerName="broker-b") as (_, browser):
            made = {"topic": "T", "read_queues": "2", "write_queues": "2", "permission": "6"}
            status, page = await browser.act(topic_actions.CHANGE, **made)
            assert (status, page.count("The topic was created")) == (200, 2), page
            await trio.to_thread.run_sync(prepare, names)
            reset = {"group": "G", "topic": "T", "target": "end", "time": ""}
            _, page = await browser.preview(group_actions.RESET, **reset)
            assert sorted(row[0] for row in cells(page)[1:]) == [
                *("broker-a: 0 changed", "broker-a: 1 changed", "broker-b: 0 changed", "broker-b: 1 changed")
            ]
            status, page = await browser.act(group_actions.RESET, typed="G", **reset)
            assert (status, page.count("The offsets were reset")) == (200, 2), page
            rows = await trio.to_thread.run_sync(mqadmin, names, "offsets", "show", "G")
            assert [(row["brokerName"], row["backlog"]) for row in rows] == [("broker-a", 0)] * 2 + [
                ("broker-b", 0)
            ] * 2
            _, page = await browser.preview(topic_actions.DELETE, topic="T")
            assert "broker-b, broker-a" in page and ">40<" in page
            status, page = await browser.act(topic_actions.DELETE, typed="T", topic="T")
            assert (status, page.count("The topic was deleted")) == (200, 2), page
            topics = [row["topic"] for row in await trio.to_thread.run_sync(mqadmin, names, "topicList")]
            assert "T" not in topics


async def test_an_action_says_that_other_brokers_are_unknown(tmp_path: Path) -> None:
    async with operated(tmp_path, namesrvAddr=f"127.0.0.1:{free_port()}") as (_, browser):
        made = {"topic": "T", "read_queues": "2", "write_queues": "2", "permission": "6"}
        assert "no NameServer says which others there are" in (await browser.preview(topic_actions.CHANGE, **made))[1]
        status, page = await browser.act(topic_actions.CHANGE, **made)
        assert (status, "The topic was created" in page, "Other brokers were not changed" in page) == (200, True, True)


class Refusing(Requests):
    """A broker that refuses if it has a reason."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason

    @property
    def place(self) -> str:
        return "h:1"

    async def request(
        self, actor: Actor, code: int, fields: dict[str, object] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        if self.reason:
            raise ActionRefused(self.reason)
        return new_request(code)


async def test_a_broker_that_refuses_is_an_outcome_unless_it_is_this_one() -> None:
    async def act(broker: Requests) -> int:
        return (await broker.request(Actor("", "127.0.0.1"), 1)).code

    places = Places([Place("a", Refusing()), Place("b", Refusing("it is full")), Place("c", Refusing())])
    assert [place.name for place, _ in await places.each(act, "Nothing was done")] == ["a", "c"]
    assert places.outcomes() == [Outcome("Nothing was done", "b", ok=False, detail="it is full")]
    assert [fact.value for fact in places.facts()] == ["a, b, c", "b: it is full"]
    with pytest.raises(ActionRefused, match="no disk"):
        await Places([Place("a", Refusing("no disk")), Place("b", Refusing())]).each(act, "Nothing was done")


async def test_slaves_are_among_the_brokers_where_mqadmin_acts_at_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shown(tmp_path) as here:
        serving = here.broker.controller.serving
        assert serving is not None
        tables = serving.tables
        own, cluster = tables.configuration.broker.broker_name, tables.configuration.broker.broker_cluster_name
        table = {
            name: BrokerData(cluster=cluster, broker_name=name, broker_addrs={0: f"{name}:1", 2: f"{name}:2"})
            for name in (own, "zeta")
        }
        info = ClusterInfo(broker_addr_table=table, cluster_addr_table={cluster: frozenset(table)})

        async def ask(*_: object) -> tuple[RemotingCommand, str]:
            return new_response(new_request(1), body=info.encode()), ""

        monkeypatch.setattr(Brokers, "_ask", ask)
        operator = Operator(ProcessorTable(), tables.surroundings.turn, None, serving.host, tables.now_ms)
        brokers = Brokers(serving, operator)
        assert [place.name for place in (await brokers.of_cluster()).every] == [own, "zeta"]
        every = (await brokers.of_cluster(with_slaves=True)).every
        assert [place.name for place in every] == [own, f"{own}/2", "zeta", "zeta/2"]
        assert [place.requests.place for place in every[1:]] == [f"{own}:2", "zeta:1", "zeta:2"]
        tables.configuration.role.take(BrokerRole.SLAVE, 2)
        every = (await brokers.of_cluster(with_slaves=True)).every
        assert [place.name for place in every] == [f"{own}/2", own, "zeta", "zeta/2"]
