"""Accounts changed through the dashboard of a whole broker."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import structlog
import yaml
from broker_shown import Browser, Shown, cells, shown

from triomq.broker.views.account_actions import CHANGE, CREATE, DELETE, MOST_CHARACTERS, WHITE
from triomq.testing import LocalCluster

FILE = (
    "accounts:\n- {accessKey: administrator, secretKey: secret-of-admin, admin: true, boundSignature: true}\n"
    "- {accessKey: reader-1, secretKey: secret-of-reader, whiteRemoteAddress: 10.9.9.9, topicPerms: [T=SUB, U=PUB],"
    " groupPerms: [G=SUB]}\n"
)
ABOUT = {
    "admin": "no",
    "addresses": "",
    "default_topic": "DENY",
    "default_group": "DENY",
    "permissions": "topic T=PUB|SUB\r\ngroup G=SUB",
}


def home(folder: Path) -> Path:
    (folder / "conf").mkdir(parents=True)
    (folder / "conf/plain_acl.yml").write_text(FILE)
    return folder


def account_in(folder: Path, name: str) -> dict[str, object] | None:
    accounts = yaml.safe_load((folder / "conf/plain_acl.yml").read_text())["accounts"]
    found: dict[str, dict[str, object]] = {one["accessKey"]: one for one in accounts}
    return found.get(name)


@asynccontextmanager
async def administered(folder: Path, **settings: str) -> AsyncIterator[tuple[Shown, Browser]]:
    """A broker with accounts, and the browser of an administrator."""
    more = {"dashboardReadOnly": "false", "aclEnable": "true", "rocketmqHome": str(home(folder))}
    async with shown(folder, **more, **settings) as here:
        browser = Browser(here.port)
        await browser.post("/login", {"name": "administrator", "secret": "secret-of-admin"})
        yield here, browser


@contextmanager
def another(folder: Path) -> Iterator[LocalCluster]:
    """A NameServer, and another broker with the same accounts."""
    settings = {"aclEnable": "true", "rocketmqHome": str(home(folder))}
    with LocalCluster(store=folder / "store", settings=settings) as cluster:
        yield cluster


def secret_on(page: str) -> str:
    found = re.search(r"no other page shows: <code>([\w-]+)</code>", page)
    assert found is not None, page
    return found[1]


async def test_an_account_is_created_and_its_secret_is_shown_once(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as lines:
        async with administered(tmp_path) as (here, browser):
            page = (await browser.get("/accounts"))[1]
            assert "/edit-account" in page
            assert page.count("<td>everything</td>") == 1, "administrators are bound by no permissions"
            assert (await browser.get("/edit-account"))[0] == 200
            form = {**ABOUT, "name": "writer-1"}
            status, preview = await browser.preview(CREATE, **form)
            assert (status, account_in(tmp_path, "writer-1")) == (200, None)
            assert ["Secret key changed", "none", "new"] in cells(preview)
            assert ["topic T changed", "none", "PUB|SUB"] in cells(preview)
            status, page = await browser.act(CREATE, **form)
            assert (status, "The account was created" in page) == (200, True), page
            secret = secret_on(page)
            assert '<p class="secret">' in page, "it is no warning"
            made = account_in(tmp_path, "writer-1")
            assert made == {
                "accessKey": "writer-1",
                "secretKey": secret,
                "admin": False,
                "defaultTopicPerm": "DENY",
                "defaultGroupPerm": "DENY",
                "topicPerms": ["T=PUB|SUB"],
                "groupPerms": ["G=SUB"],
            }
            for path in ("/accounts", "/api/accounts", "/edit-account?name=writer-1"):
                status, text = await browser.get(path)
                assert (status, secret in text, "secret-of" in text) == (200, False, False)
            assert (await browser.preview(CREATE, **form))[0] == 400, "it is there"
            writer = Browser(here.port)
            status, page = await writer.post("/login", {"name": "writer-1", "secret": secret})
            assert (status, "Log out (writer-1)" in page) == (200, True)
            assert (await writer.get("/edit-account"))[0] == 403
            assert (await writer.preview(CREATE, **form))[0] == 403
    created = [line for line in lines if line["event"] == "account created"]
    assert [(line["account"], line["key"], line["via"]) for line in created] == [
        ("administrator", "writer-1", "dashboard")
    ]
    assert secret not in str(lines)
    assert "secret-of" not in str(lines)


async def test_an_account_is_changed_and_keeps_its_secret_unless_a_new_one_is_wanted(tmp_path: Path) -> None:
    async with administered(tmp_path) as (_, browser):
        status, form = await browser.get("/edit-account?name=reader-1")
        assert (status, "topic T=SUB\ntopic U=PUB\ngroup G=SUB" in form) == (200, True)
        change = {**ABOUT, "name": "reader-1", "default_topic": "SUB", "secret": "keep"}
        status, page = await browser.preview(CHANGE, **change)
        assert status == 200, page
        rows = cells(page)[1:]
        assert ["Secret key", "as now", "as now"] in rows
        assert ["Addresses that need no signature changed", "10.9.9.9", "none"] in rows
        assert rows[-3:-1] == [["topic T changed", "SUB", "PUB|SUB"], ["topic U changed", "PUB", "none"]]
        assert "refused as soon as" not in page
        status, page = await browser.act(CHANGE, **change)
        assert (status, "The account was changed" in page, "no other page shows" in page) == (200, True, False), page
        changed = account_in(tmp_path, "reader-1")
        assert changed is not None
        assert (changed["secretKey"], changed["topicPerms"]) == ("secret-of-reader", ["T=PUB|SUB"])
        assert changed["defaultTopicPerm"] == "SUB"
        rows = json.loads((await browser.get("/api/accounts?q=reader-1"))[1])["rows"]
        assert [row["addresses"] for row in rows] == [""]
        _, page = await browser.preview(CHANGE, **{**change, "secret": "new"})
        assert "old secret key are refused" in page
        status, page = await browser.act(CHANGE, **{**change, "secret": "new"})
        changed = account_in(tmp_path, "reader-1")
        assert changed is not None
        assert changed["secretKey"] == secret_on(page) != "secret-of-reader"


async def test_an_administrator_keeps_the_account_and_its_rights_but_may_have_a_new_secret(tmp_path: Path) -> None:
    async with administered(tmp_path) as (_, browser):
        status, page = await browser.preview(DELETE, name="administrator")
        assert (status, "you are logged in with this account" in page) == (400, True)
        own = {**ABOUT, "name": "administrator", "admin": "yes", "permissions": "", "secret": "new"}
        status, page = await browser.preview(CHANGE, **{**own, "admin": "no"})
        assert (status, "you are logged in with this account" in page) == (400, True)
        assert "/act/account/delete" not in (await browser.get("/edit-account?name=administrator"))[1]
        status, page = await browser.act(CHANGE, **own)
        assert status == 200, page
        changed = account_in(tmp_path, "administrator")
        assert changed is not None
        assert (changed["secretKey"], changed["boundSignature"]) == (secret_on(page), "true")
        assert 'name="secret"' in (await browser.get("/accounts"))[1], "the session ended with the old secret"


async def test_an_account_is_deleted_when_its_name_was_typed(tmp_path: Path) -> None:
    async with administered(tmp_path) as (_, browser):
        (tmp_path / "conf/tools.yml").write_text("accessKey: reader-1\nsecretKey: secret-of-reader\n")
        _, page = await browser.preview(DELETE, name="reader-1")
        assert ["topic T changed", "SUB", "none"] in cells(page)
        assert "refused as soon as" in page
        assert "conf/tools.yml" in page
        assert (await browser.act(DELETE, name="reader-1", typed="reader"))[0] == 409
        assert account_in(tmp_path, "reader-1") is not None
        status, page = await browser.act(DELETE, name="reader-1", typed="reader-1")
        assert (status, "The account was deleted" in page) == (200, True), page
        assert account_in(tmp_path, "reader-1") is None
        assert (await browser.preview(DELETE, name="reader-1"))[0] == 400
        assert (await browser.get("/edit-account?name=reader-1"))[0] == 404


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"name": "short"}, "at least 7 characters"),
        ({"name": "writer\n- x"}, "at least 7 characters"),
        ({"name": " writer-1"}, "no blank at its ends"),
        ({"default_topic": "ALL"}, "a permission is one of"),
        ({"permissions": "T=SUB"}, "is not like topic NAME=PUB"),
        ({"permissions": "topic T=SUB\n<b>"}, "is not like topic NAME=PUB"),
        ({"permissions": "topic T=U=SUB"}, "a permission is one of"),
        ({"permissions": "topic T,U=SUB"}, "is not like topic NAME=PUB"),
        ({"permissions": "topic T=SUB\ntopic T=PUB"}, "there twice"),
        ({"addresses": "10.0.0.300"}, "10.0.0.300"),
        ({"addresses": "10.0.0.1\nx"}, "whiteRemoteAddress"),
        ({"permissions": "topic T=SUB\n" + "x" * 16_384}, "missing, or too long"),
    ],
)
async def test_what_the_broker_would_refuse_has_no_preview(tmp_path: Path, form: dict[str, str], reason: str) -> None:
    async with administered(tmp_path) as (_, browser):
        status, page = await browser.preview(CREATE, **{**ABOUT, "name": "writer-1", **form})
        assert (status, reason in page) == (400, True), page
        assert "<b>" not in page.partition("<main")[2]
        change = {**ABOUT, "name": "reader-1", "permissions": "group G=SUB", "secret": "keep"}
        status, page = await browser.preview(CHANGE, **change)
        assert (status, "cannot forget the last permission" in page) == (400, True)
        assert (await browser.preview(CHANGE, **{**change, "name": "nobody-1"}))[0] == 400


async def test_what_a_form_cannot_hold_is_left_to_mqadmin(tmp_path: Path) -> None:
    permissions = [f"topic-{number:04}=SUB" for number in range(MOST_CHARACTERS // 20)]
    (tmp_path / "conf").mkdir()
    text = FILE + f"- {{accessKey: reader-2, secretKey: secret-of-reader, topicPerms: {json.dumps(permissions)}}}\n"
    (tmp_path / "conf/plain_acl.yml").write_text(text)
    settings = {"dashboardReadOnly": "false", "aclEnable": "true", "rocketmqHome": str(tmp_path)}
    async with shown(tmp_path, **settings) as here:
        browser = Browser(here.port)
        await browser.post("/login", {"name": "administrator", "secret": "secret-of-admin"})
        status, page = await browser.get("/edit-account?name=reader-2")
        assert (status, "mqadmin updateAclConfig" in page) == (404, True)
        _, page = await browser.preview(DELETE, name="reader-2")
        assert len(page) < 64_000


async def test_the_addresses_that_need_no_account_are_changed(tmp_path: Path) -> None:
    async with administered(tmp_path) as (_, browser):
        status, page = await browser.act(WHITE, addresses="10.0.0.{1,2}\r\n10.1.*.*, 10.2.0.1")
        assert (status, "The addresses were changed" in page) == (200, True), page
        assert "10.0.0.{1,2}\n10.1.*.*\n10.2.0.1" in (await browser.get("/edit-white"))[1]
        _, page = await browser.preview(WHITE, addresses="*\n10.2.0.1")
        assert cells(page)[1:3] == [["* changed", "no", "yes"], ["10.2.0.1", "yes", "yes"]]
        assert "stands for all addresses" in page
        status, page = await browser.preview(WHITE, addresses="10.0.0.1\n<b>")
        assert (status, "<b>" in page.partition("<main")[2]) == (400, False)
        status, page = await browser.act(WHITE, addresses="")
        assert status == 200, page
        assert json.loads((await browser.get("/api/accounts"))[1])["white_addresses"] == []


async def test_an_account_is_one_of_all_brokers_of_the_cluster(tmp_path: Path) -> None:
    away = tmp_path / "other"
    with another(away) as other:
        names = {"namesrvAddr": other.name_server, "brokerName": "broker-b"}
        async with administered(tmp_path / "own", **names) as (_, browser):
            status, page = await browser.act(CREATE, **ABOUT, name="writer-1")
            assert (status, page.count("The account was created")) == (200, 2), page
            made = account_in(away, "writer-1")
            assert made is not None
            assert made["secretKey"] == secret_on(page)
            status, page = await browser.act(DELETE, name="writer-1", typed="writer-1")
            assert (status, page.count("The account was deleted")) == (200, 2), page
            assert account_in(away, "writer-1") is None
            status, page = await browser.act(WHITE, addresses="10.0.0.1")
            assert (status, page.count("The addresses were changed")) == (200, 2), page
            own = {**ABOUT, "name": "administrator", "admin": "yes", "permissions": "", "secret": "new"}
            status, page = await browser.act(CHANGE, **own)
            assert (status, page.count("The account was changed")) == (200, 2), page
            for folder in (away, tmp_path / "own"):
                changed = account_in(folder, "administrator")
                assert changed is not None
                assert changed["secretKey"] == secret_on(page), "the others were asked with the old secret"


async def test_a_broker_that_checks_no_access_is_a_line_of_preview_and_result(tmp_path: Path) -> None:
    with LocalCluster(store=tmp_path / "other") as other:
        names = {"namesrvAddr": other.name_server, "brokerName": "broker-b"}
        async with administered(tmp_path / "own", **names) as (_, browser):
            _, page = await browser.preview(CREATE, **ABOUT, name="writer-1")
            assert "Not reached" in page
            assert "aclEnable=true" in page
            status, page = await browser.act(CREATE, **ABOUT, name="writer-1")
            assert (status, "The account was created" in page, "The account was not changed" in page) == (
                200,
                True,
                True,
            )
