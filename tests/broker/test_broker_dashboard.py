"""The dashboard of a whole broker: what it shows is what the broker has, and what it costs when nobody looks."""

from __future__ import annotations

import time
import urllib.parse
from pathlib import Path

import pytest
import trio
from broker_scrape import Scrape, fetch, traffic
from broker_shown import shown
from broker_whole import whole_broker
from free_ports import free_port

from triomq.broker.acl.access_table import AccessTable
from triomq.broker.controller import BrokerController
from triomq.broker.views.accounts import AclAccounts
from triomq.daemon.errors import StartError

PAGES = (
    "/",
    "/cluster",
    "/topics",
    "/groups",
    "/messages",
    "/dead",
    "/waiting",
    "/connections",
    "/broker",
    "/quotas",
    "/configuration",
)
HOSTILE = "<img src=x onerror=alert(1)>&'\"" + "x" * 20


async def test_the_pages_show_what_the_broker_has(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        await traffic(here.broker)
        for path in (*PAGES, "/topic?name=T", "/group?name=G"):
            status, text = await here.get(path)
            assert (status, "<h1>" in text) == (200, True), path
        overview = await here.data("/")
        assert overview["is_ready"]
        assert overview["figures"]["connections"] == 1
        topics = (await here.data("/topics", q="t", kind="normal"))["list"]
        assert [(row["name"], row["messages"]) for row in topics["rows"]] == [("T", 7)]
        topic = await here.data("/topic", name="T")
        assert [(queue["min"], queue["max"]) for queue in topic["queues"]] == [(0, 5), (0, 2)]
        assert [(one["group"], one["lag"], one["members"]) for one in topic["consumers"]] == [("G", 4, 1)]
        groups = (await here.data("/groups"))["list"]["rows"]
        assert (groups[0]["name"], groups[0]["lag"], groups[0]["members"]) == ("G", 4, 1)
        group = await here.data("/group", name="G")
        assert [(one["committed"], one["lag"]) for one in group["queues"]] == [(3, 2), (None, 2)]
        assert [one["client"] for one in group["members"]] == ["c1"]
        rows = (await here.data("/connections", q="C1"))["rows"]
        assert [(row["client"], row["consumes"], row["produces"]) for row in rows] == [("c1", ["G"], ["P"])]
        changed = {row["key"] for row in (await here.data("/configuration", changed="1"))["rows"]}
        assert {"dashboardPort", "mappedFileSizeCommitLog"} <= changed
        assert "maxTopics" not in changed
        assert (await here.data("/broker"))["identity"]["role"] == "ASYNC_MASTER"
        assert (await here.get("/group?name=nobody"))[0] == (await here.get("/topic?name=nothing"))[0] == 404


async def test_topics_and_groups_of_the_broker_stand_apart_from_those_of_users(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        await traffic(here.broker)

        async def names(path: str, **query: str) -> list[str]:
            return [row["name"] for row in (await here.data(path, **query))["list"]["rows"]]

        assert (await names("/topics"), await names("/groups")) == (["%RETRY%G", "T"], ["G"])
        system = set(await names("/topics", kind="system"))
        assert "TBW102" in system
        assert set(await names("/topics", kind="all")) >= system | {"T"}
        system = set(await names("/groups", kind="system"))
        assert "TOOLS_CONSUMER" in system
        assert "G" not in system
        figures = (await here.data("/"))["figures"]
        assert (figures["topics"], figures["groups"]) == (2, 1)
        assert "kind=system" in (await here.get("/groups?kind=system&sort=lag"))[1]


async def test_delayed_messages_count_before_any_of_their_level_was_delivered(tmp_path: Path) -> None:
    port = free_port()
    async with shown(tmp_path, metricsPort=str(port)) as here:
        await here.broker.create_topic("T")
        for _ in range(2):
            await here.broker.send("T", properties="DELAY\x0118")
        assert (await here.data("/"))["figures"]["delayed"] == 2
        _, _, text = await trio.to_thread.run_sync(fetch, port, "/metrics")
        assert Scrape(text).value("triomq_delay_pending_messages", level="18") == 2


async def test_the_uptime_begins_with_the_broker_not_with_the_first_visitor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shown(tmp_path) as here:
        now = time.monotonic()
        monkeypatch.setattr(time, "monotonic", lambda: now + 3600)
        assert (await here.data("/"))["figures"]["uptime_seconds"] >= 3600
        assert (await here.data("/broker"))["identity"]["uptime_seconds"] >= 3600


async def test_names_with_markup_and_another_site_s_host_do_no_harm(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        await here.broker.create_topic("T")
        fields = {"consumerGroup": HOSTILE, "topic": "T", "queueId": 0, "commitOffset": 0}
        assert (await here.broker.ask(15, fields)).code == 0
        for path in ("/groups", "/topic?name=T", "/group?" + urllib.parse.urlencode({"name": HOSTILE})):
            status, text = await here.get(path)
            assert (status, "<img src=x" in text, "&lt;img src=x" in text) == (200, False, True), path
        title = (await here.get("/topic?name=T"))[1].partition("<title>")[2].partition("</title>")[0]
        assert title.startswith("T ·"), "several tabs are told apart"
        assert (await here.get("/", host="evil.example"))[0] == 421


async def test_a_list_of_thousands_is_made_in_steps(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        assert here.broker.controller.serving is not None
        topics = here.broker.controller.serving.tables.metadata.topics
        for number in range(3000):
            topics.create_on_send(f"topic-{number}", "TBW102", "10.0.0.1:1", 4, 0)
        page = (await here.data("/topics", sort="messages", page="3"))["list"]
        assert (len(page["rows"]), page["number"]) == (50, 3)
        assert page["total"] >= 3000


async def test_a_broker_that_other_machines_reach_needs_login_and_tls(tmp_path: Path) -> None:
    with pytest.raises(ExceptionGroup) as raised:
        async with shown(tmp_path, dashboardAddress="0.0.0.0"):
            pass
    error: BaseException = raised.value
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, StartError)
    assert "dashboardInsecure=true" in str(error)


async def test_without_a_port_there_is_no_dashboard(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        assert isinstance(broker.controller, BrokerController)
        assert broker.controller.dashboard is None


async def test_accounts_see_what_they_may_consume(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/plain_acl.yml").write_text(
        "accounts:\n"
        "- {accessKey: reader-1, secretKey: secret-of-reader, topicPerms: [open=SUB, sent=PUB], groupPerms: [G=SUB]}\n"
        "- {accessKey: administrator, secretKey: secret-of-admin, admin: true}\n"
    )
    table = AccessTable(tmp_path, now_ms=lambda: 0)
    table.load()
    accounts = AclAccounts(table)
    assert accounts.log_in("reader-1", "wrong") is None
    assert accounts.log_in("nobody", "\0") is None
    assert accounts.viewer("nobody") is None
    reader, admin = accounts.log_in("reader-1", "secret-of-reader"), accounts.log_in("administrator", "secret-of-admin")
    assert reader is not None
    assert admin is not None
    assert [reader.may_read(topic) for topic in ("open", "sent", "other")] == [True, False, False]
    assert [reader.may_read_group(group) for group in ("G", "other")] == [True, False]
    assert (admin.may_read("other"), admin.may_read_group("other"), reader.is_admin) == (True, True, False)
    assert reader.stamp != admin.stamp


async def test_with_accounts_a_login_comes_first(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/plain_acl.yml").write_text(
        "accounts:\n- {accessKey: administrator, secretKey: secret-of-admin, admin: true}\n"
    )
    async with shown(tmp_path, aclEnable="true", rocketmqHome=str(tmp_path)) as here:
        status, text = await here.get("/topics")
        assert (status, 'name="secret"' in text, "TBW102" in text) == (200, True, False)  # sent on to the login
        assert (await here.get("/api/topics"))[0] == 401
