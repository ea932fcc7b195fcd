"""What an operator looks for at night: all checks, accounts without secrets, members that disagree."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

import trio
from broker_scrape import traffic
from broker_shown import Browser, shown
from free_ports import free_port

from triomq.broker.tables.consumers import DISAGREEMENT_MS
from triomq.monitoring.process import anonymous_bytes, resident_bytes

ADMIN_SECRET = "secret-of-admin"
READER_SECRET = "secret-of-reader"


def report_of(port: int) -> dict[str, object]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health/ready", timeout=30) as response:
        found: dict[str, object] = json.loads(response.read())
        return found


async def test_the_checks_are_all_those_of_the_health_page(tmp_path: Path) -> None:
    port = free_port()
    async with shown(tmp_path, metricsPort=str(port)) as here:
        expected = (await trio.to_thread.run_sync(report_of, port))["checks"]
        assert isinstance(expected, list)
        for path in ("/", "/broker"):
            checks = (await here.data(path))["checks"]
            assert [one["name"] for one in checks] == [one["name"] for one in expected]
        page = (await here.get("/?lang=zh"))[1]
        assert {one["name"] for one in expected} >= {"state", "event loop", "store", "ports"}
        assert "<strong>event loop" not in page, "each has a name in Chinese"


async def test_the_memory_without_files_stands_beside_the_resident_one(tmp_path: Path) -> None:
    assert 0 < (anonymous_bytes() or 0) <= (resident_bytes() or 0)
    async with shown(tmp_path) as here:
        figures = (await here.data("/"))["figures"]
        assert 0 < figures["anonymous_bytes"] <= figures["memory_bytes"]


async def test_api_lists_its_pages_and_each_is_there(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        index = json.loads((await here.get("/api"))[1])
        assert index["kind"] == "broker"
        paths = {one["path"] for one in index["pages"]}
        assert {"/api/", "/api/topics", "/api/letters", "/api/messages"} <= paths
        for path in ("/api/", "/api/topics", "/api/groups", "/api/dead", "/api/configuration"):
            assert (await here.get(path))[0] == 200
        assert {"/letters.csv", "/body"} <= {one["path"] for one in index["files"]}
        assert "/api/edit-topic" not in paths, "a form has no data of its own"


async def test_accounts_are_shown_to_administrators_without_their_secrets(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/plain_acl.yml").write_text(
        "globalWhiteRemoteAddresses: [10.1.2.3]\n"
        "accounts:\n"
        f"- {{accessKey: reader-1, secretKey: {READER_SECRET}, topicPerms: [open=SUB], groupPerms: [G=SUB]}}\n"
        f"- {{accessKey: administrator, secretKey: {ADMIN_SECRET}, admin: true}}\n"
    )
    async with shown(tmp_path, aclEnable="true", rocketmqHome=str(tmp_path)) as here:
        admin, reader = Browser(here.port), Browser(here.port)
        await admin.post("/login", {"name": "administrator", "secret": ADMIN_SECRET})
        await reader.post("/login", {"name": "reader-1", "secret": READER_SECRET})
        status, page = await admin.get("/accounts")
        assert (status, "reader-1" in page, "open=SUB" in page, "10.1.2.3" in page) == (200, True, True, True)
        status, text = await admin.get("/api/accounts?q=READ")
        assert [row["name"] for row in json.loads(text)["rows"]] == ["reader-1"]
        for shown_text in (page, text):
            assert ADMIN_SECRET not in shown_text
            assert READER_SECRET not in shown_text
        assert (await reader.get("/accounts"))[0] == 404
        assert (await reader.get("/api"))[0] == 200
        assert (await Browser(here.port).get("/api"))[0] == 401


async def test_without_access_control_there_is_no_page_of_accounts(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        assert (await here.get("/accounts"))[0] == 404


async def test_a_group_whose_members_subscribe_differently_says_so_in_red(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        await traffic(here.broker)
        serving = here.broker.controller.serving
        assert serving is not None
        group = serving.tables.metadata.consumers.get("G")
        assert group is not None
        assert (await here.data("/group", name="G"))["disagreement"] == ""
        assert group.compare("c2", [], serving.tables.now_ms())
        page = (await here.get("/group?name=G"))[1]
        assert 'class="warning" role="alert">members of group G subscribe differently' in page
        group.disagreed_ms -= DISAGREEMENT_MS + 60_000
        assert (await here.data("/group", name="G"))["disagreement"] == ""


async def test_a_topic_shows_its_size_its_largest_backlog_and_what_is_read(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        await here.broker.create_topic("big", queues=2)
        assert (await here.data("/topic", name="big"))["stored_bytes"] == 0
        for number in range(12):
            await here.broker.send("big", b"x" * 1000, queueId=number % 2)
        topic = await here.data("/topic", name="big")
        ids = [row["id"] for row in (await here.data("/messages", topic="big"))["rows"]]
        expected = sum([(await here.data("/message", id=one))["stored_bytes"] for one in ids])
        assert topic["stored_bytes"] == expected, "all messages have one size, so the estimate is exact"
        for group, offset in (("near", 5), ("far", 2)):
            fields = {"consumerGroup": group, "topic": "big", "queueId": 0, "commitOffset": offset}
            assert (await here.broker.ask(15, fields)).code == 0
        lags = {one["group"]: one["lag"] for one in (await here.data("/topic", name="big"))["consumers"]}
        assert (await here.data("/topic", name="big"))["backlog"] == lags["far"] > lags["near"]
        page = (await here.get("/topic?name=big"))[1]
        assert all(text in page for text in ("In the log, about", "Largest backlog", "Read a second"))


async def test_the_overview_has_what_the_doctor_says_of_groups(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        assert (await here.data("/"))["alarms"] == []
        await here.broker.create_topic("T", queues=1)
        await here.broker.send("T")
        for group, offset in (("<b>nobody", 0), ("beyond", 9)):
            fields = {"consumerGroup": group, "topic": "T", "queueId": 0, "commitOffset": offset}
            assert (await here.broker.ask(15, fields)).code == 0
        await here.broker.create_topic("%DLQ%beyond", queues=1)
        await here.broker.send("%DLQ%beyond")
        found = {(one["code"], one["subject"]) for one in (await here.data("/"))["alarms"]}
        assert found == {("nobody-reads", "<b>nobody"), ("offset-beyond-end", "beyond"), ("dead-letters", "beyond")}
        page = (await here.get("/"))[1]
        assert ("is at 9 of 1" in page, "mqadmin dlq resend beyond" in page, "<b>nobody" in page) == (True, True, False)
