"""Consumer groups made, changed and deleted, and their offsets reset, through the dashboard of a whole broker."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
import structlog
from broker_scrape import traffic
from broker_shown import Browser, Shown, cells, operated
from free_ports import free_port

from triomq import Message, blocking
from triomq.protocol.bodies import fastjson_reader
from triomq.testing import LocalCluster

CHANGE, DELETE, RESET = "/act/group", "/act/group/delete", "/act/group/reset"


async def group_of(here: Shown, name: str) -> dict[str, Any] | None:
    table: dict[str, Any] = json.loads((await here.broker.ask(201)).body)["subscriptionGroupTable"]
    return table.get(name)


def change(
    group: str, consume: str = "yes", retries: int = 16, queues: int = 1, in_order: str = "no"
) -> dict[str, str]:
    more = {"most_retries": str(retries), "retry_queues": str(queues), "in_order": in_order}
    return {"group": group, "may_consume": consume, "may_broadcast": "yes", **more}


def reset(group: str = "G", topic: str = "T", target: str = "start", time: str = "") -> dict[str, str]:
    return {"group": group, "topic": topic, "target": target, "time": time}


async def commit(here: Shown, queue_id: int, offset: int, group: str = "G", topic: str = "T") -> None:
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
    assert (await here.broker.ask(15, fields)).code == 0


async def offsets(here: Shown, group: str = "G", topic: str = "T") -> dict[int, int]:
    table: dict[str, dict[int, int]] = fastjson_reader.loads((await here.broker.ask(43)).body)["offsetTable"]
    return table.get(f"{topic}@{group}", {})


async def test_a_group_is_made_changed_and_deleted(tmp_path: Path) -> None:
    async with operated(tmp_path) as (here, browser):
        assert "/edit-group" in (await browser.get("/groups"))[1]
        assert (await browser.get("/edit-group"))[0] == 200
        status, _ = await browser.preview(CHANGE, **change("Readers"))
        assert (status, await group_of(here, "Readers")) == (200, None)
        _, result = await browser.act(CHANGE, **change("Readers"))
        assert "The group was created" in result
        made = await group_of(here, "Readers")
        assert made is not None
        assert (made["consumeEnable"], made["retryMaxTimes"], made["retryQueueNums"]) == (True, 16, 1)

        assert (await browser.get("/edit-group?name=Readers"))[0] == 200
        _, result = await browser.act(CHANGE, **change("Readers", "no", 3, 2))
        assert "The group was changed" in result
        assert cells(result)[1:] == [
            ["May consume changed", "yes", "no"],
            ["May broadcast", "yes", "yes"],
            ["In order, for gRPC clients", "no", "no"],
            ["Most retries changed", "16", "3"],
            ["Retry queues changed", "1", "2"],
        ]
        changed = await group_of(here, "Readers")
        assert changed is not None
        assert {name: value for name, value in changed.items() if made[name] != value} == {
            "consumeEnable": False,
            "retryMaxTimes": 3,
            "retryQueueNums": 2,
        }
        assert "consumeMessageOrderly" not in changed
        _, result = await browser.act(CHANGE, **change("Readers", "no", 3, 2, "yes"))
        assert ["In order, for gRPC clients changed", "no", "yes"] in cells(result)
        changed = await group_of(here, "Readers")
        assert changed is not None and changed["consumeMessageOrderly"] is True
        await browser.act(CHANGE, **change("Readers", "no", 3, 2))
        changed = await group_of(here, "Readers")
        assert changed is not None and changed["consumeMessageOrderly"] is False
        assert (await browser.act(DELETE, typed="readers", group="Readers", offsets="keep"))[0] == 409
        _, result = await browser.act(DELETE, typed="Readers", group="Readers", offsets="keep")
        assert "The group was deleted" in result
        assert await group_of(here, "Readers") is None
        assert (await browser.preview(DELETE, group="Readers", offsets="keep"))[0] == 400


async def test_a_deletion_keeps_or_removes_the_offsets_as_its_preview_says(tmp_path: Path) -> None:
    async with operated(tmp_path) as (here, browser):
        await here.broker.create_topic("T")
        await browser.act(CHANGE, **change("G"))
        await commit(here, 0, 0)
        _, page = await browser.preview(DELETE, group="G", offsets="keep")
        assert "<dt>Queues with offsets</dt>\n  <dd>2</dd>" in page
        assert "<dt>Offsets removed</dt>\n  <dd>0</dd>" in page
        await browser.act(DELETE, typed="G", group="G", offsets="keep")
        assert await offsets(here) == {0: 0}
        await browser.act(DELETE, typed="G", group="G", offsets="remove")
        assert await offsets(here) == {}


@pytest.mark.parametrize(
    ("path", "form", "reason"),
    [
        (CHANGE, change(""), "no groupName"),
        (CHANGE, change("G", queues=70000), "retryQueueNums"),
        (CHANGE, {**change("G"), "most_retries": "many"}, "not a number"),
        (DELETE, {"group": "nobody", "offsets": "keep"}, "there is no group"),
        (RESET, reset("nobody"), "there is no group"),
        (RESET, reset(topic="nothing"), "there is no topic"),
        (RESET, reset(target="nowhere"), "target is"),
        (RESET, reset(target="time", time="soon"), "This time is not one"),
        (RESET, reset(topic="wide"), "mqadmin offsets reset"),
    ],
)
async def test_what_the_broker_would_refuse_is_refused_before_its_preview(
    tmp_path: Path, path: str, form: dict[str, str], reason: str
) -> None:
    async with operated(tmp_path) as (here, browser):
        await here.broker.create_topic("T")
        await here.broker.create_topic("wide", queues=1025)
        await commit(here, 0, 0)
        status, page = await browser.preview(path, **form)
        assert (status, reason in page) == (400, True), page


async def test_offsets_of_a_group_without_members_go_where_the_preview_says(tmp_path: Path) -> None:
    async with operated(tmp_path) as (here, browser):
        await here.broker.create_topic("T")
        for queue_id in (0, 0, 0, 0, 1):
            assert (await here.broker.send("T", queueId=queue_id)).code == 0
        await commit(here, 0, 2)
        with structlog.testing.capture_logs() as lines:
            for target, time, wanted in (
                ("end", "", [("0", "2", "4"), ("1", "0", "1")]),
                ("start", "", [("0", "4", "0"), ("1", "1", "0")]),
                ("time", "2100-01-01 00:00:00", [("0", "0", "4"), ("1", "0", "1")]),
                ("time", "2001-01-01 00:00:00", [("0", "4", "0"), ("1", "1", "0")]),
            ):
                before = await offsets(here)
                rows = [[f"{queue} changed", was, now] for queue, was, now in wanted]
                _, page = await browser.preview(RESET, **reset(target=target, time=time))
                assert (cells(page)[1:], await offsets(here)) == (rows, before), "a preview changes nothing"
                assert (await browser.act(RESET, typed="T", **reset(target=target, time=time)))[0] == 409
                _, page = await browser.act(RESET, typed="G", **reset(target=target, time=time))
                assert "The offsets were reset" in page
                assert cells(page)[1:] == rows
                assert await offsets(here) == {int(queue): int(now) for queue, _, now in wanted}
        noted = [line for line in lines if line["event"] == "offsets reset"]
        assert len(noted) == 4
        assert (noted[0]["account"], noted[0]["remote"]) == ("(token of the dashboard)", "127.0.0.1:0")
        assert (noted[0]["via"], noted[0]["group"], noted[0]["topic"]) == ("dashboard", "G", "T")
        assert (noted[0]["before"], noted[0]["after"]) == ({"0": 2}, {"0": 4, "1": 1})


async def test_members_that_are_online_are_told_their_offsets(tmp_path: Path) -> None:
    async with operated(tmp_path) as (here, browser):
        await traffic(here.broker)
        name = urllib.parse.quote("G")
        assert "the time below" in (await browser.get(f"/edit-group?name={name}"))[1]
        with structlog.testing.capture_logs() as lines:
            status, page = await browser.act(RESET, typed="G", **reset(target="end"))
        assert (status, "The members received their offsets" in page) == (200, True), page
        assert cells(page)[1:] == [["0 changed", "3", "5"], ["1 changed", "0", "2"]]
        [noted] = [line for line in lines if line["event"] == "offset reset sent to the consumers"]
        assert (noted["via"], noted["after"]) == ("dashboard", {"0": 5})
        [first] = [line for line in lines if line["event"] == "offsets reset"]
        assert (first["before"], first["after"]) == ({}, {"1": 2}), "that queue had none"


def test_the_preview_has_the_numbers_of_mqadmin(tmp_path: Path) -> None:
    port = free_port()
    with LocalCluster(store=tmp_path, settings={"dashboardPort": str(port), "dashboardReadOnly": "false"}) as cluster:
        with blocking.Producer("P", name_server=cluster.name_server) as producer:
            for number in range(20):
                producer.send(Message("T", b"%d" % number))

        def mqadmin(*words: str) -> Any:
            command = [sys.executable, "-m", "triomq.admin", *words, "--output", "json", "-n", cluster.name_server]
            return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)

        mqadmin("offsets", "reset", "G", "T", "--to", "last", "--create", "--yes")
        browser = Browser(port)
        browser.fetch("/")
        [token] = tmp_path.rglob("dashboard.token")
        browser.fetch("/login", {"secret": token.read_text().strip()})
        csrf = browser.csrf()
        for target, words in (("start", "first"), ("end", "last"), ("time", "2100-01-01T00:00:00+00:00")):
            form = reset(target=target, time="2100-01-01 00:00:00")
            _, page = browser.fetch(RESET, {"csrf": csrf, **form})
            steps = mqadmin("offsets", "reset", "G", "T", "--to", words, "--dry-run")
            told = [(str(step["queueId"]), str(step["before"]), str(step["after"])) for step in steps]
            shown = [(row[0].removesuffix(" changed"), *row[1:]) for row in cells(page)[1:]]
            assert shown == told
            assert len(shown) > 1
