"""A stored message that the dashboard of a whole broker hands to one consumer."""

from __future__ import annotations

import html
from pathlib import Path

import pytest
import structlog
from asked_member import AskedMember
from broker_shown import Browser, Shown, operated

from triomq.broker.processors import reset
from triomq.broker.views.hand_actions import HAND, MOST_ANSWER_BYTES, MOST_TEXT
from triomq.protocol.bodies.running_info import ConsumeMessageDirectlyResult
from triomq.protocol.record import decode_record

CONSUME_DIRECTLY = 309
HOSTILE = "<img src=x onerror=alert(1)>"


def result(consumed: str = "CR_SUCCESS", remark: str | None = None) -> bytes:
    return ConsumeMessageDirectlyResult(consume_result=consumed, remark=remark, spent_time_mills=12).encode()


async def stored(here: Shown, topic: str = "T") -> str:
    """Store a message, and return its id."""
    await here.broker.create_topic(topic)
    await here.broker.send(topic, b"the body")
    [row] = (await here.data("/messages", topic=topic))["rows"]
    return str(row["id"])


async def handed(browser: Browser, message: str, client: str = "c1", group: str = "G") -> tuple[int, str]:
    return await browser.act(HAND, id=message, group=group, client=client)


async def test_a_message_goes_to_the_client_that_was_chosen_and_no_offset_changes(tmp_path: Path) -> None:
    async with operated(tmp_path) as (here, browser):
        message = await stored(here)
        member = AskedMember(here, CONSUME_DIRECTLY, result(remark="as it says"))
        await member.join()
        assert f"/hand?id={message}" in (await browser.get(f"/message?id={message}"))[1]
        status, page = await browser.get(f"/hand?id={message}")
        assert (status, ">c1<" in page, 'name="client" value="c1"' in page) == (200, True, True), page
        before = (await here.data("/group", name="G"))["queues"]
        _, page = await browser.preview(HAND, id=message, group="G", client="c1")
        assert message in page and "No offset changes" in page
        assert member.asked == []
        with structlog.testing.capture_logs() as lines:
            status, page = await handed(browser, message)
        assert (status, "The client consumed the message" in page) == (200, True), page
        assert "CR_SUCCESS" in page and "12 ms" in page and "as it says" in page
        [(fields, record)] = member.asked
        assert (fields["consumerGroup"], fields["clientId"], fields["msgId"]) == ("G", "c1", message)
        assert decode_record(record).body == b"the body"
        [noted] = [line for line in lines if line["event"] == "a message was handed to a consumer"]
        assert (noted["client"], noted["message_id"], noted["via"]) == ("c1", message, "dashboard")
        assert (await here.data("/group", name="G"))["queues"] == before


@pytest.mark.parametrize(
    ("body", "code", "remark", "text"),
    [
        (result("CR_LATER"), 0, None, "The client did not consume the message"),
        (result("CR_THROW_EXCEPTION", HOSTILE + "x" * 9000), 0, None, html.escape(HOSTILE)),
        (result(HOSTILE), 0, None, html.escape(HOSTILE)),
        (b"{", 0, None, "its response cannot be read (1 bytes)"),
        (b" " * (MOST_ANSWER_BYTES + 1), 0, None, "bytes, and up to"),
        (b"", 1, HOSTILE * 1000, html.escape(HOSTILE)),
        (b"", 1, None, "refused with code 1"),
    ],
)
async def test_what_a_client_says_is_shown_as_text_and_bounded(
    tmp_path: Path, body: bytes, code: int, remark: str | None, text: str
) -> None:
    async with operated(tmp_path) as (here, browser):
        message = await stored(here)
        await AskedMember(here, CONSUME_DIRECTLY, body, code, remark).join()
        status, page = await handed(browser, message)
        assert (status, text in page, "Not all of it was done" in page) == (200, True, True), page
        assert "<img src=x" not in page
        assert len(page) < 6000 + 6 * MOST_TEXT


async def test_a_client_that_hangs_may_have_the_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reset, "CALL_TIMEOUT_SECONDS", 0.05)
    async with operated(tmp_path) as (here, browser):
        message = await stored(here)
        member = AskedMember(here, CONSUME_DIRECTLY)
        member.is_silent = True
        await member.join()
        status, page = await handed(browser, message)
        assert (status, "its listener may have the message, or not" in page) == (200, True), page
        assert "Timeout" in page


async def test_what_cannot_be_handed_over_is_refused_before_the_client_is_asked(tmp_path: Path) -> None:
    async with operated(tmp_path) as (here, browser):
        message, other = await stored(here), await stored(here, "U")
        member = AskedMember(here, CONSUME_DIRECTLY, result())
        await member.join()
        for form, reason in (
            ({"id": "nonsense", "group": "G", "client": "c1"}, "there is no message with this id"),
            ({"id": message, "group": "G", "client": "c2"}, "is not a member of group"),
            ({"id": message, "group": "H", "client": "c1"}, "is not a member of group"),
            ({"id": other, "group": "G", "client": "c1"}, "does not subscribe to the topic U"),
        ):
            status, page = await browser.preview(HAND, **form)
            assert (status, reason in page) == (400, True), page
        assert "Nobody who subscribes to this topic is online" in (await browser.get(f"/hand?id={other}"))[1]
        assert (await browser.get("/hand?id=nonsense"))[0] == 404
        assert member.asked == []
        assert (await here.get(f"/hand?id={message}"))[0] == 403
