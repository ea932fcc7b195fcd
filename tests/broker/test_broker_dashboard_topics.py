"""Topics made, changed and deleted through the dashboard of a whole broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import structlog
from broker_shown import Browser, Shown, cells, operated, shown

from triomq.dashboard.site import MOST_FORM_BYTES

CHANGE, DELETE = "/act/topic", "/act/topic/delete"
ACCOUNTS = (
    "accounts:\n- {accessKey: administrator, secretKey: secret-of-admin, admin: true}\n"
    "- {accessKey: bound-admin, secretKey: secret-of-bound, admin: true, boundSignature: true}\n"
    "- {accessKey: reader-1, secretKey: secret-of-reader, topicPerms: [T=SUB]}\n"
)


async def topic_of(here: Shown, name: str) -> dict[str, Any] | None:
    table: dict[str, Any] = json.loads((await here.broker.ask(21)).body)["topicConfigTable"]
    return table.get(name)


def change(topic: str, read: int = 4, write: int = 4, permission: int = 6) -> dict[str, str]:
    return {"topic": topic, "read_queues": str(read), "write_queues": str(write), "permission": str(permission)}


async def test_a_topic_is_made_changed_and_deleted(tmp_path: Path) -> None:
    async with operated(tmp_path) as (here, browser):
        assert "/edit-topic" in (await browser.get("/topics"))[1]
        assert (await browser.get("/edit-topic"))[0] == 200
        status, preview = await browser.preview(CHANGE, **change("Orders"))
        assert (status, await topic_of(here, "Orders")) == (200, None)
        assert ["Read queues changed", "none", "4"] in cells(preview)
        status, result = await browser.act(CHANGE, **change("Orders"))
        assert (status, "The topic was created" in result) == (200, True)
        made = await topic_of(here, "Orders")
        assert made is not None
        assert (made["readQueueNums"], made["writeQueueNums"], made["perm"]) == (4, 4, 6)

        status, form = await browser.get("/edit-topic?name=Orders")
        assert (status, 'value="4"' in form) == (200, True)
        status, result = await browser.act(CHANGE, **change("Orders", 8, 4, 4))
        assert "The topic was changed" in result
        assert cells(result)[1:] == [
            ["Read queues changed", "4", "8"],
            ["Write queues", "4", "4"],
            ["Permission changed", "6 · read and write", "4 · read"],
        ]
        changed = await topic_of(here, "Orders")
        assert changed is not None
        assert (changed["readQueueNums"], changed["perm"]) == (8, 4)

        status, result = await browser.act(DELETE, topic="Orders", typed="Orders")
        assert (status, "The topic was deleted" in result) == (200, True)
        assert await topic_of(here, "Orders") is None
        assert (await browser.preview(DELETE, topic="Orders"))[0] == 400, "it is gone"


async def test_the_preview_of_a_deletion_says_what_is_lost_and_who_reads_it(tmp_path: Path) -> None:
    async with operated(tmp_path) as (here, browser):
        await here.broker.create_topic("T")
        for number in range(3):
            await here.broker.send("T", queueId=number % 2)
        assert (
            await here.broker.ask(15, {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 1})
        ).code == 0
        _, page = await browser.preview(DELETE, topic="T")
        for card in ("<dd>2</dd>", "<dd>3</dd>", "<dd>G</dd>"):
            assert card in page.replace("\n", "")
        status, page = await browser.act(DELETE, topic="T", typed="t")
        assert status == 409
        assert await topic_of(here, "T") is not None


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        (change("no spaces"), "illegal characters"),
        (change(""), "blank"),
        (change("<b>"), "illegal characters"),
        (change("TBW102"), "system topic"),
        (change("T", read=70000), "must be within 0..65536"),
        (change("T", permission=9), "perm must be within"),
        ({**change("T"), "write_queues": "-1"}, "not a number"),
        ({**change("T"), "write_queues": "\u0663"}, "not a number"),
    ],
)
async def test_what_the_broker_would_refuse_is_refused_before_its_preview(
    tmp_path: Path, form: dict[str, str], reason: str
) -> None:
    async with operated(tmp_path) as (_, browser):
        status, page = await browser.preview(CHANGE, **form)
        assert (status, reason in page) == (400, True), page
        assert "<b>" not in page.partition("<main")[2]
        assert (await browser.preview(DELETE, topic="TBW102"))[0] == 400


async def test_an_action_is_in_the_audit_with_account_and_address(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/plain_acl.yml").write_text(ACCOUNTS)
    settings = {"dashboardReadOnly": "false", "aclEnable": "true", "rocketmqHome": str(tmp_path)}
    with structlog.testing.capture_logs() as lines:
        async with shown(tmp_path, **settings) as here:
            for name, secret in (("administrator", "secret-of-admin"), ("bound-admin", "secret-of-bound")):
                browser = Browser(here.port)
                await browser.post("/login", {"name": name, "secret": secret})
                status, page = await browser.act(CHANGE, **change(f"of-{name}"))
                assert (status, "The topic was created" in page) == (200, True), page
            reader = Browser(here.port)
            await reader.post("/login", {"name": "reader-1", "secret": "secret-of-reader"})
            assert "/edit-topic" not in (await reader.get("/topics"))[1]
            assert (await reader.preview(CHANGE, **change("X")))[0] == 403
    made = [line for line in lines if line["event"] == "topic created"]
    assert [(line["account"], line["remote"], line["via"], line["code"]) for line in made] == [
        ("administrator", "127.0.0.1:0", "dashboard", 17),
        ("bound-admin", "127.0.0.1:0", "dashboard", 17),
    ]
    assert [line["account"] for line in lines if line["event"] == "a change was refused"] == ["reader-1"]
    assert "secret" not in str(lines)


async def test_by_default_the_dashboard_is_read_only(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        browser = Browser(here.port)
        _, page = await browser.get("/topics")
        assert "/edit-topic" not in page
        assert "/login" not in page
        assert not (tmp_path / "store/dashboard.token").exists()
        assert (await browser.get("/edit-topic"))[0] == 403
        assert (await browser.post(CHANGE, change("T")))[0] == 403
        assert await topic_of(here, "T") is None


async def test_a_form_beyond_the_bound_is_not_read(tmp_path: Path) -> None:
    async with operated(tmp_path) as (here, browser):
        status, _ = await browser.post(CHANGE, {**change("T"), "more": "x" * MOST_FORM_BYTES})
        assert status == 413
        assert await topic_of(here, "T") is None
