"""Live messages: server-sent events of a topic, bounded, and a page that works without them."""

from __future__ import annotations

import json
import urllib.request
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import trio
from broker_shown import shown
from broker_whole import WholeBroker, whole_broker
from hypothesis import given
from hypothesis import strategies as st

from triomq.broker.views import tail
from triomq.broker.views.messages import Messages
from triomq.broker.views.tail import MOST_MESSAGES, MOST_QUEUES, Tail, positions_of
from triomq.dashboard.views import Ask, NotThere
from triomq.remoting.scheduling.step_line import NO_LINE

HOSTILE = "</script><img src=x onerror=alert(1)>\n\ndata: forged"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "TICK_SECONDS", 0.01)


def live(broker: WholeBroker) -> Tail:
    serving = broker.controller.serving
    assert serving is not None
    return Tail(serving, Messages(serving))


def parsed(event: bytes) -> tuple[str, dict[str, Any]]:
    """Return id and data of an event."""
    lines = dict(line.split(": ", 1) for line in event.decode().strip().split("\n"))
    return lines.get("id", ""), json.loads(lines.get("data", "{}"))


async def test_a_stream_has_what_is_stored_from_now_on(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=2)
        await broker.send("T", b"old")
        stream = live(broker).events(Ask({"topic": "T"}), "", NO_LINE)
        with trio.fail_after(30):
            async with aclosing(stream):
                assert (await anext(stream)).startswith(b"retry: ")
                assert parsed(await anext(stream))[1] == {"rows": [], "skipped": 0}
                for number in range(2):
                    await broker.send("T", HOSTILE.encode(), queueId=number)
                begins: list[str] = []
                while len(begins) < 2:
                    event = await anext(stream)
                    assert event.count(b"\n\n") == 1, "a body ends no event"
                    begins += [row["begin"] for row in parsed(event)[1]["rows"]]
        assert begins == [" ".join(HOSTILE.split())] * 2


async def test_a_stream_goes_on_where_the_browser_was(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=1)
        for number in range(4):
            await broker.send("T", b"%d" % number)
        stream = live(broker).events(Ask({"topic": "T"}), "0:2", NO_LINE)
        async with aclosing(stream):
            await anext(stream)
            place, data = parsed(await anext(stream))
        assert (place, [row["begin"] for row in data["rows"]]) == ("0:4", ["2", "3"])


async def test_a_stream_is_narrowed_like_a_list(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=1)
        for number in range(6):
            await broker.send("T", b"%d" % number, properties=f"TAGS\x01{'AB'[number % 2]}")
        stream = live(broker).events(Ask({"topic": "T", "tag": "B"}), "0:0", NO_LINE)
        async with aclosing(stream):
            await anext(stream)
            rows = parsed(await anext(stream))[1]["rows"]
        assert [row["begin"] for row in rows] == ["1", "3", "5"]


async def test_too_many_messages_at_once_are_counted_only(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=1)
        for _ in range(MOST_MESSAGES + 7):
            await broker.send("T")
        stream = live(broker).events(Ask({"topic": "T"}), "0:0", NO_LINE)
        async with aclosing(stream):
            await anext(stream)
            place, data = parsed(await anext(stream))
        assert (len(data["rows"]), data["skipped"], place) == (MOST_MESSAGES, 7, f"0:{MOST_MESSAGES + 7}")


async def test_streams_are_bounded_in_number_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail, "MOST_TAILS", 1)
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T")
        pages = live(broker)
        for _ in range(2):  # a stream that ended makes room
            first, second = (pages.events(Ask({"topic": "T"}), "", NO_LINE) for _ in range(2))
            async with aclosing(first):
                await anext(first)
                assert b"event: busy" in b"".join([event async for event in second])
        monkeypatch.setattr(tail, "SECONDS", 0)
        with trio.fail_after(30):
            assert len([event async for event in pages.events(Ask({"topic": "T"}), "", NO_LINE)]) == 1


async def test_a_topic_that_is_not_there_has_no_stream(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        with pytest.raises(NotThere, match="there is no topic"):
            live(broker).events(Ask({"topic": "nothing"}), "", NO_LINE)


@given(st.text(max_size=60))
def test_any_text_is_a_position_or_none(text: str) -> None:
    assert all(queue >= 0 and offset >= 0 for queue, offset in positions_of(text).items())


def test_a_position_is_bounded() -> None:
    assert positions_of("0:5,3:7") == {0: 5, 3: 7}
    assert [positions_of(text) for text in ("", "0:-1", "0", "0:x", "0:" + "9" * 40, "\u0663:1")] == [{}] * 6
    assert len(positions_of(",".join(f"{number}:1" for number in range(200)))) == MOST_QUEUES


def first_event(url: str, last_id: str) -> tuple[str, bytes]:
    request = urllib.request.Request(url, headers={"Last-Event-ID": last_id})
    with urllib.request.urlopen(request, timeout=30) as response:
        lines = b""
        while b"data: " not in lines:
            lines += response.readline()
        return response.headers["Content-Type"], lines


async def test_a_browser_gets_the_page_and_the_stream(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        await here.broker.create_topic("T", queues=1)
        await here.broker.send("T", HOSTILE.encode())
        status, page = await here.get("/tail?topic=T")
        assert (status, "<img src=x" in page, "&lt;img src=x" in page) == (200, False, True)
        assert 'data-events="/tail.events?topic=T' in page
        url = f"http://127.0.0.1:{here.port}/tail.events?topic=T"
        content_type, lines = await trio.to_thread.run_sync(first_event, url, "0:0")
        assert (content_type, b"onerror" in lines) == ("text/event-stream", True)
        assert (await here.get("/tail.events?topic=nothing"))[0] == 404
        assert (await here.get("/tail?topic=nothing"))[0] == 404
        assert (await here.get("/static/tail.js"))[0] == 200
