"""A message sent through the dashboard of a whole broker."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog
from broker_shown import operated

from triomq.dashboard.acting import MOST_TEXT_CHARACTERS

SEND = "/act/send"


def message(body: str, topic: str = "T", tags: str = "", keys: str = "") -> dict[str, str]:
    return {"topic": topic, "tags": tags, "keys": keys, "body": body}


async def test_a_message_is_stored_once_with_its_tags_keys_and_lines(tmp_path: Path) -> None:
    async with operated(tmp_path) as (here, browser):
        await here.broker.create_topic("T", queues=1)
        assert "/send?topic=T" in (await browser.get("/topic?name=T"))[1]
        assert (await browser.get("/send?topic=T"))[0] == 200
        assert (await browser.get("/send?topic=nothing"))[0] == 404
        body = "first line\r\n<b>second</b>" + "x" * 1000
        _, page = await browser.preview(SEND, **message(body, tags="A", keys="k1 k2"))
        assert "<b>second" not in page
        assert (await here.data("/messages", topic="T"))["rows"] == []
        with structlog.testing.capture_logs() as lines:
            status, page = await browser.act(SEND, **message(body, tags="A", keys="k1 k2"))
        assert (status, "The message was stored" in page) == (200, True), page
        [row] = (await here.data("/messages", topic="T"))["rows"]
        assert (row["tags"], row["keys"], row["bytes"]) == ("A", "k1 k2", len(body) - 1)
        shown = await here.data("/message", id=row["id"])
        assert shown["body"]["text"] == body.replace("\r\n", "\n")
        [noted] = [line for line in lines if line["event"] == "message sent"]
        assert (noted["topic"], noted["message_id"], noted["via"]) == ("T", row["id"], "dashboard")


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        (message("x", topic="nothing"), "there is no topic"),
        (message("x", topic="SCHEDULE_TOPIC_XXXX"), "system topic"),
        (message(""), "a message has a body"),
        (message("x", tags="a\x01b"), "control characters"),
        (message("x" * (MOST_TEXT_CHARACTERS + 1)), "too long"),
        (message("x", tags="x" * 513), "too long"),
    ],
)
async def test_what_cannot_be_sent_is_refused(tmp_path: Path, form: dict[str, str], reason: str) -> None:
    async with operated(tmp_path) as (here, browser):
        await here.broker.create_topic("T")
        status, page = await browser.preview(SEND, **form)
        assert (status, reason in page) == (400, True), page


async def test_a_message_that_the_broker_does_not_take_is_no_success(tmp_path: Path) -> None:
    async with operated(tmp_path, maxMessageSize="1024") as (here, browser):
        await here.broker.create_topic("T")
        status, page = await browser.act(SEND, **message("x" * 2000))
        assert (status, "the message is illegal" in page) == (400, True), page
        assert (await here.data("/messages", topic="T"))["rows"] == []
