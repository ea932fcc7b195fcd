"""Dead letters on the dashboard of a whole broker: shown with their reason, sent again once, and exported."""

from __future__ import annotations

import csv
import io
import json
import urllib.request
import zlib
from pathlib import Path
from typing import Any

import pytest
import structlog
import trio
from broker_shown import Browser, Shown, hidden, operated, shown

from triomq.broker.views import letter_actions, letter_files

RESEND = "/act/letters/resend"
HOSTILE = "<img src=x onerror=alert(1)>"


async def filled(here: Shown, count: int = 3, group: str = "G") -> list[dict[str, Any]]:
    """Store dead letters of a group; return their rows, oldest first."""
    assert (await here.broker.ask(200, body=json.dumps({"groupName": group}).encode())).code == 0
    await here.broker.create_topic(f"%DLQ%{group}", queues=1)
    for number in range(count):
        texts = {"RETRY_TOPIC": "T", "KEYS": f"k{number}", "UNIQ_KEY": f"U{number}", "TAGS": "A"}
        if number == 0:
            texts.update({"DEAD_LETTER_REASON": HOSTILE, "DEAD_LETTER_TRIES": "2"})
        properties = "".join(f"{name}\x01{value}\x02" for name, value in texts.items())
        await here.broker.send(f"%DLQ%{group}", b"body %d" % number, queueId=0, properties=properties)
    rows: list[dict[str, Any]] = (await here.data("/letters", group=group))["rows"]
    return rows[::-1]


async def retried(here: Shown, group: str = "G") -> list[str]:
    """Return the bodies in the retry topic of a group, oldest first."""
    topics = [row["name"] for row in (await here.data("/topics", kind="retry"))["list"]["rows"]]
    if f"%RETRY%{group}" not in topics:
        return []
    rows = (await here.data("/messages", topic=f"%RETRY%{group}", time="2020-01-01"))["rows"]
    return [row["begin"] for row in rows]


async def resend(browser: Browser, which: str = "chosen", ids: str = "", again: str = "no") -> tuple[int, str]:
    return await browser.act(RESEND, group="G", which=which, again=again, ids=ids)


async def test_letters_are_shown_with_reason_and_tries_in_pages(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        rows = await filled(here, 60)
        first = await here.data("/letters", group="G")
        assert (first["total"], len(first["rows"]), first["older"], first["newer"]) == (60, 50, 10, None)
        assert [row["offset"] for row in first["rows"]] == list(range(59, 9, -1))
        older = await here.data("/letters", group="G", before="10")
        assert ([row["offset"] for row in older["rows"]], older["newer"]) == (list(range(9, -1, -1)), 60)
        letter = older["rows"][-1]
        assert (letter["reason"], letter["tries"], letter["topic"]) == (HOSTILE, 2, "T")
        assert rows[0]["resent"] == ""
        status, page = await here.get("/letters?group=G&before=10")
        assert (status, HOSTILE in page, "&lt;img src=x" in page) == (200, False, True)
        assert 'name="ids"' not in page, "only those who may act choose letters"
        assert (await here.get("/letters?group=nobody"))[0] == 404
        assert "/letters?group=G" in (await here.get("/dead"))[1]


async def test_the_preview_warns_that_no_member_receives_the_letters(tmp_path: Path) -> None:
    async with operated(tmp_path) as (here, browser):
        await filled(here)
        status, page = await browser.preview(RESEND, group="G", which="all", again="no", ids="")
        assert (status, letter_actions.NO_MEMBER in page) == (200, True), page


async def test_a_letter_of_a_group_without_retries_does_not_come_back_as_the_next(tmp_path: Path) -> None:
    async with operated(tmp_path) as (here, browser):
        await filled(here)
        group = json.dumps({"groupName": "G", "retryMaxTimes": 0}).encode()
        assert (await here.broker.ask(200, body=group)).code == 0
        await resend(browser, which="all")
        assert len(await retried(here)) == 3
        assert (await here.data("/letters", group="G"))["total"] == 3


async def test_a_chosen_letter_is_sent_to_its_group_once_and_marked(tmp_path: Path) -> None:
    async with operated(tmp_path) as (here, browser):
        rows = await filled(here)
        chosen = f"{rows[0]['id']} {rows[2]['id']}"
        _, page = await browser.get("/letters?group=G")
        assert page.count('name="ids"') == 3
        _, page = await browser.preview(RESEND, group="G", which="chosen", again="no", ids=chosen)
        assert await retried(here) == [], "a preview sends nothing"
        with structlog.testing.capture_logs() as lines:
            status, page = await resend(browser, ids=chosen)
        assert (status, page.count("The dead letter was sent again")) == (200, 2), page
        assert await retried(here) == ["body 0", "body 2"]
        marks = {row["id"]: row["resent"] for row in (await here.data("/letters", group="G"))["rows"]}
        assert [bool(marks[row["id"]]) for row in rows] == [True, False, True]
        copy = await here.data("/message", id=marks[rows[0]["id"]])
        texts = {one["name"]: one["value"] for one in copy["properties"]}
        assert (texts["UNIQ_KEY"], texts["RETRY_TOPIC"], texts["KEYS"], texts["TAGS"]) == (
            rows[0]["id"],
            "T",
            "k0",
            "A",
        )
        assert "DEAD_LETTER_REASON" not in texts
        [noted] = [line for line in lines if line["event"] == "dead letters resent"]
        assert (noted["group"], noted["sent"], noted["failed"], noted["via"]) == ("G", 2, 0, "dashboard")
        status, page = await resend(browser, ids=chosen)
        assert (status, page.count("This dead letter was resent before")) == (200, 2), page
        assert len(await retried(here)) == 2
        await resend(browser, ids=rows[0]["id"], again="yes")
        assert await retried(here) == ["body 0", "body 2", "body 0"]


async def test_two_operators_at_once_send_a_letter_once(tmp_path: Path) -> None:
    async with operated(tmp_path) as (here, browser):
        await filled(here, 20)
        fields = {"group": "G", "which": "all", "again": "no", "ids": ""}
        previews = [(await browser.preview(RESEND, **fields))[1] for _ in range(2)]
        async with trio.open_nursery() as nursery:
            for page in previews:
                form = {**fields, "csrf": hidden(page, "csrf"), "preview": hidden(page, "preview")}
                nursery.start_soon(browser.post, RESEND, form)
        assert len(await retried(here)) == 20


async def test_all_letters_are_sent_except_those_that_were(tmp_path: Path) -> None:
    async with operated(tmp_path) as (here, browser):
        rows = await filled(here, 12)
        await here.broker.create_topic("T", 1)
        fields = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 0}
        assert (await here.broker.ask(15, fields)).code == 0
        await resend(browser, ids=rows[5]["id"])
        assert [one["what"] for one in (await here.data("/"))["alarms"]] == [
            "group G gave up on messages within a day: 11 dead letters"
        ]
        _, page = await browser.preview(RESEND, group="G", which="all", again="no", ids="")
        assert ">11<" in page.replace("\n", ""), page
        status, page = await resend(browser, "all")
        assert (status, page.count("The dead letter was sent again")) == (200, 11), page
        assert sorted(await retried(here)) == sorted(f"body {number}" for number in range(12))
        await resend(browser, "all")
        assert len(await retried(here)) == 12
        assert (await here.data("/"))["alarms"] == []


async def test_the_mark_survives_a_restart(tmp_path: Path) -> None:
    async with operated(tmp_path) as (here, browser):
        rows = await filled(here)
        await resend(browser, ids=rows[1]["id"])
    async with operated(tmp_path) as (here, browser):
        after = (await here.data("/letters", group="G"))["rows"]
        assert [bool(row["resent"]) for row in after] == [False, True, False]
        await resend(browser, "all")
        assert len(await retried(here)) == 3


async def test_an_action_is_bounded_and_says_that_there_is_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(letter_actions, "MOST_SENT", 2)
    async with operated(tmp_path) as (here, browser):
        await filled(here, 5)
        for count, is_more in ((2, True), (4, True), (5, False)):
            _, page = await resend(browser, "all")
            assert ("There is more" in page, len(await retried(here))) == (is_more, count)
        status, page = await browser.preview(RESEND, group="G", which="all", again="yes", ids="")
        assert (status, "mqadmin dlq resend" in page) == (400, True)


async def test_a_letter_that_the_broker_refuses_does_not_stop_the_others(tmp_path: Path) -> None:
    async with operated(tmp_path) as (here, browser):
        rows = await filled(here)
        gone = "7F00000100002A9F" + "F" * 16
        status, page = await resend(browser, ids=f"{gone} {rows[0]['id']} nonsense")
        assert (status, "Not all of it was done" in page) == (200, True)
        assert (page.count("This dead letter is not there"), await retried(here)) == (2, ["body 0"])


async def test_letters_of_a_group_that_is_gone_are_not_sent_and_each_says_why(tmp_path: Path) -> None:
    async with operated(tmp_path, autoCreateSubscriptionGroup="false") as (here, browser):
        rows = await filled(here)
        assert (await here.broker.ask(207, {"groupName": "G", "cleanOffset": "false"})).code == 0
        _, page = await resend(browser, ids=rows[0]["id"])
        assert ("The dead letter was not sent" in page, "subscription group not exist" in page) == (True, True), page
        assert not [row for row in (await here.data("/letters", group="G"))["rows"] if row["resent"]]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"group": "G", "which": "chosen", "again": "no"}, "Choose a dead letter first"),
        ({"group": "nobody", "which": "all", "again": "no"}, "there are no dead letters"),
    ],
)
async def test_what_cannot_be_sent_is_refused(tmp_path: Path, fields: dict[str, str], reason: str) -> None:
    async with operated(tmp_path) as (here, browser):
        await filled(here, 1)
        status, page = await browser.preview(RESEND, **fields)
        assert (status, reason in page) == (400, True), page


async def test_without_an_index_nothing_is_resent(tmp_path: Path) -> None:
    async with operated(tmp_path, messageIndexEnable="false") as (here, browser):
        await filled(here, 1)
        status, page = await browser.preview(RESEND, group="G", which="all", again="no", ids="")
        assert (status, "messageIndexEnable" in page) == (400, True), page


async def test_letters_are_exported_as_json_lines_and_as_a_table(tmp_path: Path) -> None:
    async with operated(tmp_path) as (here, browser):
        rows = await filled(here, 3)
        await resend(browser, ids=rows[1]["id"])
        status, text = await here.get("/letters.jsonl?group=G")
        items = [json.loads(line) for line in text.splitlines()]
        assert (status, [item["body"] for item in items]) == (200, ["body 0", "body 1", "body 2"])
        assert (items[0]["reason"], items[0]["tries"], items[0]["originTopic"]) == (HOSTILE, 2, "T")
        assert [bool(item["resentAs"]) for item in items] == [False, True, False]
        status, text = await here.get("/letters.csv?group=G")
        table = list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline="")))
        assert (table[0]["body"], table[0]["keys"], table[0]["tries"]) == ("body 0", "k0", "2")
        assert [row["resentAs"] for row in table] == [item["resentAs"] or "" for item in items]
        assert (await here.get("/letters.csv?group=nobody"))[0] == 404


@pytest.mark.parametrize("begin", ["=", "+", "-", "@", "\t", "\r", "\n", " =", "\uff1d"])
async def test_no_cell_of_a_table_is_a_formula(tmp_path: Path, begin: str) -> None:
    async with shown(tmp_path) as here:
        await here.broker.create_topic("%DLQ%G", queues=1)
        evil = begin + 'HYPERLINK("http://evil.example"),\'\n2'
        await here.broker.send("%DLQ%G", evil.encode(), properties=f"KEYS\x01{begin.strip() or '='}1+1\x02")
        text = (await here.get("/letters.csv?group=G"))[1]
        [row] = csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
        assert (row["body"], row["keys"][0]) == ("'" + evil, "'")


async def test_an_export_is_bounded_and_says_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letter_files, "MOST_LETTERS", 2)
    async with shown(tmp_path) as here:
        await filled(here, 3)
        lines = (await here.get("/letters.jsonl?group=G"))[1].splitlines()
        assert ([json.loads(line).get("body") for line in lines], "stopped" in lines[-1]) == (
            ["body 0", "body 1", None],
            True,
        )


async def test_a_body_is_downloaded_as_it_is_and_never_shown_by_the_browser(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        await here.broker.create_topic("T", queues=1)
        plain = bytes(range(256)) * 1000 + b"<script>alert(1)</script>"
        await here.broker.send("T", plain)
        await here.broker.send("T", zlib.compress(plain), sysFlag=1)
        for row in (await here.data("/messages", topic="T"))["rows"]:
            url = f"http://127.0.0.1:{here.port}/body?id={row['id']}"
            status, headers, body = await trio.to_thread.run_sync(opened, url)
            assert (status, body == plain, headers["Content-Type"]) == (200, True, "application/octet-stream")
            assert headers["Content-Disposition"] == f'attachment; filename="{row["id"]}.bin"'
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert f"/body?id={row['id']}" in (await here.get(f"/message?id={row['id']}"))[1]
        assert (await here.get("/body?id=nonsense"))[0] == 404


def opened(url: str) -> tuple[int, dict[str, str], bytes]:
    with urllib.request.urlopen(url, timeout=30) as response:
        return response.status, dict(response.headers), response.read()
