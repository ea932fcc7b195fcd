"""Settings changed through the dashboard of a whole broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from broker_shown import Shown, cells, operated
from free_ports import free_port

from triomq.broker.config import BrokerSettings
from triomq.broker.views.settings_actions import CHANGE, NEXT_START, is_editable
from triomq.protocol.settings import declarations
from triomq.store.config import StoreSettings
from triomq.testing import LocalCluster

OPEN = {"configUpdateWithoutAcl": "true"}


def change(key: str, value: str, place: str = "here") -> dict[str, str]:
    return {"key": key, "value": value, "place": place}


async def value_of(here: Shown, key: str) -> str:
    lines = (await here.broker.ask(26)).body.decode().split("\n")
    return next(line.partition("=")[2] for line in lines if line.startswith(f"{key}="))


async def test_a_setting_is_changed_and_its_page_says_what_it_is(tmp_path: Path) -> None:
    async with operated(tmp_path, **OPEN) as (here, browser):
        _, page = await browser.get("/configuration?q=maxMessageSize")
        assert "/edit-setting?key=maxMessageSize" in page
        assert "/edit-setting?key=dashboardPort" not in (await browser.get("/configuration?q=dashboardPort"))[1]
        status, form = await browser.get("/edit-setting?key=maxMessageSize")
        assert (status, 'value="65536"' in form, "<code>4194304</code>" in form) == (200, True, True)
        status, page = await browser.preview(CHANGE, **change("maxMessageSize", " 2097152 "))
        assert status == 200, page
        assert cells(page)[1:] == [["maxMessageSize changed", "65536", "2097152"]]
        assert "lasts until the broker stops" in page
        assert await value_of(here, "maxMessageSize") == "65536", "a preview changes nothing"
        status, page = await browser.act(CHANGE, **change("maxMessageSize", "2097152"))
        assert (status, "The setting was changed" in page) == (200, True), page
        assert await value_of(here, "maxMessageSize") == "2097152"
        _, page = await browser.act(CHANGE, **change("autoCreateTopicEnable", "false"))
        assert cells(page)[1:] == [["autoCreateTopicEnable changed", "true", "false"]]
        _, page = await browser.preview(CHANGE, **change("sendThreadPoolQueueCapacity", "77"))
        assert "counts from the next one on" in page


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("maxMessageSize", "many", "is not a whole number"),
        ("maxMessageSize", "", "is not a whole number"),
        ("autoCreateTopicEnable", "yes", "neither true nor false"),
        ("deleteWhen", "99", "deleteWhen"),
        ("namesrvAddr", "nonsense", "host:port"),
        ("messageDelayLevel", "1s never", "messageDelayLevel"),
        ("regionId", "a\nautoCreateTopicEnable=false", "no line break"),
        ("quotaPerAccount", "bytesIn", "quotaPerAccount"),
        ("listenPort", "1", "edit the file and restart"),
        ("dashboardReadOnly", "true", "edit the file and restart"),
        ("haMasterAddress", "127.0.0.1:1", "edit the file and restart"),
        ("quotaOverrides", "account a", "there is no setting"),
        ("<b>", "1", "there is no setting"),
        ("regionId", "x" * 16_385, "missing, or too long"),
    ],
)
async def test_what_the_broker_or_its_next_start_would_refuse_has_no_preview(
    tmp_path: Path, key: str, value: str, reason: str
) -> None:
    async with operated(tmp_path, **OPEN) as (_, browser):
        status, page = await browser.preview(CHANGE, **change(key, value))
        assert (status, reason in page) == (400, True), page
        assert "<b>" not in page.partition("<main")[2]
        assert (await browser.preview(CHANGE, **change("regionId", "x", "elsewhere")))[0] == 400


async def test_any_text_is_kept_as_it_was_typed(tmp_path: Path) -> None:
    async with operated(tmp_path, **OPEN) as (here, browser):
        for text in ("=a=b#c", "c:\\new\\u0041", "<img src=x>'\"&", "x" * 16_000, "\u00e9\u4e2d"):
            status, page = await browser.act(CHANGE, **change("regionId", text))
            assert status == 200, page
            assert await value_of(here, "regionId") == text
            assert "<img" not in page.partition("<main")[2]


async def test_without_access_control_a_setting_is_changed_only_where_everybody_may(tmp_path: Path) -> None:
    async with operated(tmp_path) as (_, browser):
        status, page = await browser.preview(CHANGE, **change("regionId", "north"))
        assert (status, "configUpdateWithoutAcl=true" in page) == (400, True)


async def test_a_setting_is_changed_at_all_brokers_that_are_chosen(tmp_path: Path) -> None:
    settings = {**OPEN, "regionId": "east", "maxMessageSize": "1000000"}
    with LocalCluster(store=tmp_path / "other", settings=settings) as other:
        names = {"namesrvAddr": other.name_server, "brokerName": "broker-b"}
        async with operated(tmp_path, **OPEN, **names) as (here, browser):
            _, page = await browser.preview(CHANGE, **change("regionId", "north", "masters"))
            rows = [["broker-b: regionId changed", "DefaultRegion", "north"]]
            rows += [["broker-a: regionId changed", "east", "north"]]
            assert cells(page)[1:] == rows
            status, page = await browser.act(CHANGE, **change("regionId", "north", "all"))
            assert (status, page.count("The setting was changed")) == (200, 2), page
            _, page = await browser.preview(CHANGE, **change("regionId", "south", "masters"))
            assert ["broker-a: regionId changed", "north", "south"] in cells(page)
            _, page = await browser.act(CHANGE, **change("regionId", "here", "here"))
            assert cells(page)[1:] == [["regionId changed", "north", "here"]]
            assert await value_of(here, "regionId") == "here"


async def test_brokers_that_refuse_or_are_unknown_are_lines_of_the_result(tmp_path: Path) -> None:
    with LocalCluster(store=tmp_path / "other") as other:
        names = {"namesrvAddr": other.name_server, "brokerName": "broker-b"}
        async with operated(tmp_path, **OPEN, **names) as (here, browser):
            status, page = await browser.act(CHANGE, **change("regionId", "north", "masters"))
            assert (status, "The setting was not changed" in page, "no access control" in page) == (200, True, True)
            assert await value_of(here, "regionId") == "north"
    async with operated(tmp_path / "alone", **OPEN, namesrvAddr=f"127.0.0.1:{free_port()}") as (_, browser):
        _, page = await browser.preview(CHANGE, **change("regionId", "north", "all"))
        assert "no NameServer says which others there are" in page


async def test_a_broker_that_refuses_every_change_offers_no_form_and_says_what_to_set(tmp_path: Path) -> None:
    async with operated(tmp_path) as (_, browser):
        for path in ("/configuration", "/quotas"):
            status, page = await browser.get(path)
            assert (status, "/edit-setting" in page, "/edit-quota" in page) == (200, False, False), path
            assert "set aclEnable=true, or configUpdateWithoutAcl=true" in page, path


async def test_what_cannot_be_changed_has_no_form(tmp_path: Path) -> None:
    async with operated(tmp_path, **OPEN) as (_, browser):
        for key, reason in (("listenPort", "edit the file and restart"), ("none-such", "there is no setting")):
            status, page = await browser.get(f"/edit-setting?key={key}")
            assert (status, reason in page) == (404, True)
        rows = json.loads((await browser.get("/api/configuration"))[1])["rows"]
        assert not [row["key"] for row in rows if row["can_change"] and row["value"] == "***"]


def test_settings_that_are_read_at_the_start_exist_and_can_be_changed() -> None:
    declared = [one for cls in (BrokerSettings, StoreSettings) for one in declarations(cls)]
    assert {one.key for one in declared if is_editable(one)} >= NEXT_START
