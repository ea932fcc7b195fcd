"""Quotas shown and changed through the dashboard of a whole broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from broker_shown import Browser, cells, operated

from triomq.broker.views.brokers import Brokers, Place, Places
from triomq.broker.views.operator import Requests
from triomq.broker.views.quota_actions import ALL, REMOVE, SET
from triomq.dashboard.actions import Actor
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.testing import LocalCluster

OPEN = {"configUpdateWithoutAcl": "true"}


def quota(kind: str, name: str, **limits: str) -> dict[str, str]:
    return {"kind": kind, "name": name, **dict.fromkeys(ALL, ""), **limits}


async def rows_of(browser: Browser, query: str = "") -> dict[str, dict[str, object]]:
    status, text = await browser.get(f"/api/quotas{query}")
    assert status == 200, text
    return {f"{row['kind']} {row['name']}": row for row in json.loads(text)["list"]["rows"]}


async def test_a_quota_is_set_shown_with_its_use_and_removed(tmp_path: Path) -> None:
    async with operated(tmp_path, **OPEN, quotaPerAddress="connections=10", quotaBurstMillis="1000") as (here, browser):
        assert "/edit-quota" in (await browser.get("/quotas"))[1]
        status, page = await browser.act(SET, **quota("group", "P", messagesIn="1000", bytesIn="1"))
        assert (status, "The quota was set" in page) == (200, True), page
        assert cells(page)[1:] == [["Own limits changed", "none", "bytesIn=1,messagesIn=1000"]]
        await here.broker.create_topic("T")
        codes = [(await here.broker.send("T", b"x" * 1000)).code for _ in range(2)]
        assert (codes[0], codes[1] != 0) == (0, True), "the first is in debt for minutes"
        rows = await rows_of(browser)
        assert rows["group P"]["own"] == "bytesIn=1,messagesIn=1000"
        assert [one["quota"] for one in rows["group P"]["limits"]] == ["bytesIn", "messagesIn"]  # type: ignore[attr-defined]
        assert float(str(rows["group P"]["used"])) > 100
        assert rows["address 127.0.0.1"]["limits"] == [{"quota": "connections", "limit": 10, "used": 0.1}]
        assert list(await rows_of(browser, "?sort=used")) == ["group P", "address 127.0.0.1"]
        refusals = json.loads((await browser.get("/api/quotas"))[1])["refusals"]
        assert [(one["kind"], one["quota"], one["refused"]) for one in refusals] == [("group", "bytesIn", 1)]
        status, page = await browser.get("/quotas")
        assert (status, "group P" in page, "messagesIn 1" in page) == (200, True, True)
        status, form = await browser.get("/edit-quota?kind=group&name=P")
        assert (status, 'value="1000"' in form, "/act/quota/remove" in form) == (200, True, True)
        status, page = await browser.act(REMOVE, kind="group", name="P")
        assert (status, "The quota was removed" in page) == (200, True), page
        assert cells(page)[1:] == [["Own limits changed", "bytesIn=1,messagesIn=1000", "none"]]
        assert "group P" not in await rows_of(browser)
        assert (await browser.preview(REMOVE, kind="group", name="P"))[0] == 400


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        (quota("group", "G", topicsPerHour="1"), "not a quota of this kind"),
        (quota("address", "10.0.0.300", bytesIn="1"), "10.0.0.300"),
        (quota("account", "a; group G", bytesIn="1"), "no blank, semicolon"),
        (quota("account", "a\ngroup", bytesIn="1"), "no blank, semicolon"),
        (quota("account", "", bytesIn="1"), "names no account"),
        (quota("account", "x" * 300, bytesIn="1"), "300 characters"),
        (quota("account", "a", bytesIn="-1"), "not a number"),
        (quota("account", "a", bytesIn="1,connections=5"), "not a number"),
        (quota("account", "a", bytesIn="9" * 17), "must be a number"),
        (quota("account", "a"), "give a limit"),
        (quota("<b>", "a", bytesIn="1"), "it must begin with"),
        (quota("account", "x" * 16_000, bytesIn="1"), "missing, or too long"),
    ],
)
async def test_what_the_broker_would_refuse_has_no_preview(tmp_path: Path, form: dict[str, str], reason: str) -> None:
    async with operated(tmp_path, **OPEN) as (_, browser):
        status, page = await browser.preview(SET, **form)
        assert (status, reason in page) == (400, True), page
        assert "<b>" not in page.partition("<main")[2]


async def test_markup_in_the_name_of_an_account_stays_text(tmp_path: Path) -> None:
    async with operated(tmp_path, **OPEN) as (_, browser):
        name = "<img/src=x>'&"
        status, page = await browser.act(SET, **quota("account", name, connections="3"))
        assert (status, name in page) == (200, False)
        assert name not in (await browser.get("/quotas"))[1]
        assert f"account {name}" in await rows_of(browser)


async def test_a_quota_is_set_at_all_brokers_of_the_cluster(tmp_path: Path) -> None:
    with LocalCluster(store=tmp_path / "other", settings=OPEN) as other:
        names = {"namesrvAddr": other.name_server, "brokerName": "broker-b"}
        async with operated(tmp_path, **OPEN, **names) as (_, browser):
            form = quota("address", "10.1.2.3", bytesIn="5")
            status, page = await browser.act(SET, **form)
            assert (status, page.count("The quota was set")) == (200, 2), page
            _, page = await browser.preview(SET, **{**form, "bytesIn": "7"})
            rows = [[f"broker-{one}: Own limits changed", "bytesIn=5", "bytesIn=7"] for one in "ba"]
            assert cells(page)[1:] == rows
            status, page = await browser.act(REMOVE, kind="address", name="10.1.2.3")
            assert (status, page.count("The quota was removed")) == (200, 2), page


class Follower(Requests):
    """A member of a DLedger group that does not lead."""

    @property
    def place(self) -> str:
        return "h:1"

    async def request(
        self, actor: Actor, code: int, fields: dict[str, object] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        assert code == RequestCode.GET_BROKER_CONFIG, "it is asked for nothing else"
        listed = b"quotaPerAccount=\nenableDLegerCommitLog=true\nbrokerId=2\nquotaOverrides=account a bytesIn=1\n"
        return new_response(new_request(code), body=listed)


async def test_members_of_a_group_follow_their_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def of_cluster(brokers: Brokers, *, with_slaves: bool = False) -> Places:
        assert with_slaves
        return Places([*brokers.here().every, Place("broker-a/2", Follower())])

    monkeypatch.setattr(Brokers, "of_cluster", of_cluster)
    async with operated(tmp_path, **OPEN) as (_, browser):
        status, page = await browser.act(SET, **quota("account", "a", bytesIn="5"))
        assert (status, page.count("The quota was set"), "It follows the master" in page) == (200, 1, True)
        assert [row[1:] for row in cells(page)[1:]] == [["none", "bytesIn=5"]]
