"""What a group receives one by one (POP), on its page: figures by queue, the request mode, and the release."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog
from broker_shown import Shown, cells, operated, shown
from broker_whole import ack_fields, pop_fields

from triomq.broker.views import in_flight
from triomq.protocol.codes import RequestCode
from triomq.protocol.record import decode_records

RELEASE = "/act/group/release"
LONG_MS = 600_000


async def filled(here: Shown, counts: tuple[int, ...] = (4, 3), topic: str = "T") -> None:
    """Make a topic with this number of messages in each queue."""
    await here.broker.create_topic(topic, len(counts))
    for queue_id, count in enumerate(counts):
        for _ in range(count):
            assert (await here.broker.send(topic, queueId=queue_id)).code == 0


async def receive(here: Shown, queue_id: int, most: int, *, acknowledged: int = 0, **changes: Any) -> None:
    fields = pop_fields(queueId=queue_id, maxMsgNums=most, **{"invisibleTime": LONG_MS, **changes})
    received = await here.broker.ask(RequestCode.POP_MESSAGE, fields)
    messages = decode_records(received.body)
    assert len(messages) == most
    for message in messages[most - acknowledged :]:
        assert (await here.broker.ask(RequestCode.ACK_MESSAGE, ack_fields(received, message))).code == 0


async def set_mode(here: Shown, mode: str, share: int, topic: str = "T") -> None:
    body = {"topic": topic, "consumerGroup": "G", "mode": mode, "popShareQueueNum": share}
    response = await here.broker.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=json.dumps(body).encode())
    assert response.code == 0, response.remark


async def counts(here: Shown) -> list[tuple[str, int | None, int | None, int | None]]:
    rows = (await here.data("/group", name="G"))["received"]
    return [(row["topic"], row["queue"], row["in_flight"], row["ready"]) for row in rows]


async def test_the_page_of_a_group_shows_what_it_receives_by_queue_and_the_request_mode(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        await filled(here)
        await filled(here, (1,), topic="Quiet")
        await receive(here, 0, 3, acknowledged=1)
        await receive(here, 1, 1)
        await set_mode(here, "POP", 3)
        page = await here.data("/group", name="G")
        first, second = page["received"]
        assert 0 < first.pop("oldest_age_ms") < LONG_MS
        mode = {"mode": "POP", "share": 3}
        assert first == {"topic": "T", "queue": 0, "in_flight": 2, "ready": 1, "most_attempts": 1, **mode}
        assert (second["queue"], second["in_flight"], second["ready"]) == (1, 1, 2)
        group = page["group"]
        assert (group["lag"], group["in_flight"], group["ready"]) == (6, 3, 3)
        assert [queue["lag"] for queue in page["queues"]] == [3, 3], "without what was acknowledged out of order"
        listed = (await here.data("/groups"))["list"]["rows"]
        assert [(row["name"], row["in_flight"], row["ready"]) for row in listed] == [("G", 3, 3)]
        _, html = await here.get("/group?name=G")
        rows = [row for row in cells(html) if row[-1].startswith("POP")]
        assert [[*row[:4], *row[5:]] for row in rows] == [
            ["T", "0", "2", "1", "1", "POP popShareQueueNum 3"],
            ["T", "1", "1", "2", "1", "POP popShareQueueNum 3"],
        ]
        assert "逐条接收" in (await here.get("/group?name=G&lang=zh"))[1]

        await set_mode(here, "PULL", 0)
        assert [(row["mode"], row["share"]) for row in (await here.data("/group", name="G"))["received"]] == [
            ("PULL", None)
        ] * 2


async def test_a_topic_in_pop_mode_of_which_nothing_was_received_has_a_row_without_figures(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        await filled(here)
        fields = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 1}
        assert (await here.broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == 0
        assert await counts(here) == []
        await set_mode(here, "POP", 0)
        assert await counts(here) == [("T", None, None, None)]
        _, html = await here.get("/group?name=G")
        assert ["T", *["\N{EN DASH}"] * 5, "POP popShareQueueNum 0"] in cells(html)
        await receive(here, 0, 1)
        assert await counts(here) == [("T", 0, 1, 2)], "it begins at its offset"


async def test_rows_beyond_the_bound_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "MOST_QUEUES", 2)
    async with shown(tmp_path) as here:
        await filled(here, (1, 1, 1))
        for queue_id in range(3):
            await receive(here, queue_id, 1)
        page = await here.data("/group", name="G")
        assert ([row["queue"] for row in page["received"]], page["received_left_out"]) == ([0, 1], 1)
        assert "1 more queues are not shown" in (await here.get("/group?name=G"))[1]


async def test_a_release_of_a_queue_or_of_the_group_does_what_its_preview_says(tmp_path: Path) -> None:
    async with operated(tmp_path) as (here, browser):
        await filled(here)
        await receive(here, 0, 3)
        await receive(here, 1, 1)
        _, html = await browser.get("/group?name=G")
        assert len(re.findall(f'action="{RELEASE}"', html)) == 3, "the group, and each queue"
        one = {"group": "G", "topic": "T", "queue": "1"}
        status, page = await browser.preview(RELEASE, **one)
        assert (status, cells(page)[1:]) == (200, [["T, 1 changed", "1", "0"]])
        assert "may be consumed twice" in page
        assert await counts(here) == [("T", 0, 3, 1), ("T", 1, 1, 2)], "a preview changes nothing"
        with structlog.testing.capture_logs() as lines:
            _, page = await browser.act(RELEASE, **one)
        assert "<strong>Messages released</strong> <span>1</span>" in page
        assert await counts(here) == [("T", 0, 3, 1), ("T", 1, 0, 3)]
        [noted] = [line for line in lines if line["event"] == "messages in flight released"]
        assert (noted["via"], noted["topic"], noted["queue_id"], noted["messages"]) == ("dashboard", "T", 1, 1)

        every = {"group": "G", "topic": "", "queue": ""}
        assert cells((await browser.preview(RELEASE, **every))[1])[1:] == [["T, 0 changed", "3", "0"]]
        _, page = await browser.act(RELEASE, **every)
        assert "<strong>Messages released</strong> <span>3</span>" in page
        assert await counts(here) == [("T", 0, 0, 4), ("T", 1, 0, 3)]
        _, html = await browser.get("/group?name=G")
        assert RELEASE not in html, "nothing is in flight any more"
        await receive(here, 0, 4)


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ({"group": "nobody", "topic": "", "queue": ""}, "there is no group"),
        ({"group": "G", "topic": "", "queue": "0"}, "names a queue, but no topic"),
        ({"group": "G", "topic": "T", "queue": "x"}, "not a number"),
        ({"group": "G", "topic": "T", "queue": "1"}, "Nothing is in flight."),
    ],
)
async def test_a_release_without_sense_is_refused_before_its_preview(
    tmp_path: Path, form: dict[str, str], reason: str
) -> None:
    async with operated(tmp_path) as (here, browser):
        await filled(here)
        await receive(here, 0, 1)
        status, page = await browser.preview(RELEASE, **form)
        assert (status, reason in page) == (400, True), page
        assert await counts(here) == [("T", 0, 1, 3)]


def test_the_page_of_a_group_that_pulls_brings_no_part_of_pop(tmp_path: Path) -> None:
    program = """
import sys, trio
from pathlib import Path
from broker_shown import operated
from broker_scrape import traffic
async def main():
    async with operated(Path(sys.argv[1])) as (here, browser):
        await traffic(here.broker)
        page = await here.data("/group", name="G")
        assert page["queues"] and page["received"] == [], page
        assert (await browser.get("/group?name=G"))[0] == 200
        assert here.broker.controller.serving.pop.parts is None
        brought = [name for name in sys.modules if name.startswith("triomq.broker.pop") or name.endswith("in_flight")]
        print(sorted(brought))
trio.run(main)
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    environment = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, capture_output=True, timeout=120, env=environment, text=True)
    assert "['triomq.broker.views.in_flight']" in done.stdout.splitlines(), done.stdout + done.stderr
