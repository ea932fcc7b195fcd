"""The dashboard's pages of messages: what is found, who may see it, and that foreign text stays text."""

from __future__ import annotations

import urllib.parse
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import trio
from broker_shown import Shown, shown
from broker_whole import WholeBroker, whole_broker

from triomq.broker.views import search
from triomq.broker.views.messages import MOST_FOUND_BY_KEY, MOST_MESSAGES, MOST_SUGGESTED, Messages, time_of
from triomq.dashboard.views import Ask, Data, NotThere, Steps
from triomq.protocol import message_id
from triomq.protocol.message_to_store import MessageToStore, Place
from triomq.protocol.record import encode_into
from triomq.protocol.stored_properties import NONE
from triomq.remoting.scheduling.step_line import NO_LINE

BODY_AT = 88
"""Where the body of a record begins."""
HOSTILE = "<img src=x onerror=alert(1)>&'\""


@dataclass
class Reader:
    """Sees the topics and groups named."""

    topics: list[str]
    groups: list[str] = field(default_factory=list)
    name: str = "reader"
    is_admin: bool = False
    stamp: str = ""

    def may_read(self, topic: str) -> bool:
        return topic in self.topics

    def may_read_group(self, group: str) -> bool:
        return group in self.groups


def pages(broker: WholeBroker) -> Messages:
    assert broker.controller.serving is not None
    return Messages(broker.controller.serving)


async def listed(broker: WholeBroker, viewer: Reader | None = None, **query: str) -> list[Any]:
    data = await NO_LINE.run(pages(broker).messages(Ask(query, viewer)))
    rows: list[Any] = data["rows"]
    return rows


async def one(broker: WholeBroker, viewer: Reader | None = None, **query: str) -> Data:
    return await NO_LINE.run(pages(broker).message(Ask(query, viewer)))


async def filled(broker: WholeBroker, count: int = 6, topic: str = "T") -> None:
    await broker.create_topic(topic)
    for number in range(count):
        texts = f"KEYS\x01k{number} all\x02UNIQ_KEY\x01U{number}"
        await broker.send(topic, b"%d" % number, queueId=number % 2, properties=texts)


async def test_messages_are_found_by_queue_offset_time_key_and_both_ids(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await filled(broker)
        assert sorted(row.begin for row in await listed(broker, topic="T")) == list("012345")
        assert [row.begin for row in await listed(broker, topic="T", queue="1")] == ["5", "3", "1"]
        assert [row.begin for row in await listed(broker, topic="T", queue="1", offset="1")] == ["3", "5"]
        assert [row.begin for row in await listed(broker, topic="T", queue="7")] == []
        assert len(await listed(broker, topic="T", time="2020-01-01")) == 6
        assert await listed(broker, topic="T", time="2199-01-01") == []
        assert [row.begin for row in await listed(broker, topic="T", key="k3")] == ["3"]
        assert [row.begin for row in await listed(broker, topic="T", key="all")] == list("543210")
        assert [row.begin for row in await listed(broker, topic="T", key="U2")] == ["2"]
        await broker.send("T", b"same hash", properties="KEYS\x01BB")
        assert await listed(broker, topic="T", key="Aa") == [], "keys with the same hash are different keys"
        row = (await listed(broker, topic="T", key="k3"))[0]
        for found in (await one(broker, id=row.id), await one(broker, id="U3", topic="T")):
            assert (found["message"], found["body"]["text"]) == (row, "3")
        assert {"name": "KEYS", "value": "k3 all"} in found["properties"]


async def test_a_time_begins_with_the_first_message_that_was_stored_then_or_later(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await filled(broker, 1)
        stored_ms = (await listed(broker, topic="T"))[0].stored_ms
        for later_ms, found in ((0, ["0"]), (1, [])):
            assert [row.begin for row in await listed(broker, topic="T", time=str(stored_ms + later_ms))] == found


async def test_a_queue_has_pages_and_a_list_has_a_bound(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=1)
        for _ in range(MOST_FOUND_BY_KEY + 10):
            await broker.send("T")
        first = await NO_LINE.run(pages(broker).messages(Ask({"topic": "T", "queue": "0", "offset": "0"})))
        assert (len(first["rows"]), first["older"], first["newer"]) == (MOST_MESSAGES, None, MOST_MESSAGES)
        newest = await NO_LINE.run(pages(broker).messages(Ask({"topic": "T", "queue": "0"})))
        assert [row.offset for row in newest["rows"]] == list(range(73, 23, -1))
        assert (newest["older"], newest["newer"]) == (0, None)
        assert len(await listed(broker, topic="T", key="k1")) == MOST_FOUND_BY_KEY


@pytest.mark.parametrize(
    "query",
    [
        {"id": "no id"},
        {"id": "U1"},
        {"id": "U9", "topic": "T"},
        {"id": "U1", "topic": "nothing"},
        {"id": "7F00000100002A9F" + "F" * 16},
        {"id": "7F00000100002A9F" + "0" * 15 + "1"},
        {"id": ""},
    ],
)
async def test_what_is_not_there_is_said_so(query: dict[str, str], tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await filled(broker)
        with pytest.raises(NotThere, match="there is no message"):
            await one(broker, **query)


async def test_a_message_of_another_broker_is_not_ours_at_the_same_offset(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await filled(broker)
        row = (await listed(broker, topic="T", key="k3"))[0]
        with pytest.raises(NotThere):
            await one(broker, id="0A000001" + row.id[8:])


async def test_an_account_sees_the_messages_and_groups_that_it_may_consume_only(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await filled(broker)
        fields = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 1}
        assert (await broker.ask(15, fields)).code == 0
        row = (await listed(broker, topic="T", key="k2"))[0]
        stranger, friend = Reader(["other"]), Reader(["T"], ["other"])
        for query in ({"topic": "T"}, {"topic": "T", "key": "k2"}):
            with pytest.raises(NotThere, match="there is no topic 'T' that you may see"):
                await listed(broker, stranger, **query)
        for query in ({"id": row.id}, {"id": "U2", "topic": "T"}):
            with pytest.raises(NotThere):
                await one(broker, stranger, **query)
        assert (await one(broker, friend, id=row.id))["groups"] == []
        assert [group["group"] for group in (await one(broker, id=row.id))["groups"]] == ["G"]


async def test_the_form_suggests_the_topics_that_the_viewer_may_read(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        for number in range(MOST_SUGGESTED):
            await broker.create_topic(f"T{number:03}")
        await broker.create_topic("Z")
        await broker.create_topic("%RETRY%G")

        async def suggested(viewer: Reader | None) -> list[str]:
            topics: list[str] = (await NO_LINE.run(pages(broker).messages(Ask({}, viewer))))["topics"]
            return topics

        assert await suggested(Reader(["Z", "%RETRY%G", "T001", "SCHEDULE_TOPIC_XXXX"])) == ["T001", "Z", "%RETRY%G"]
        every = await suggested(None)
        assert (len(every), every[0], "SCHEDULE_TOPIC_XXXX" in every) == (MOST_SUGGESTED, "T000", False)


async def test_a_body_that_looks_like_a_record_of_a_topic_that_one_may_see_is_none(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("open")
        await broker.create_topic("secret")
        await broker.send("open", b"first")
        inner = bytearray()
        host = message_id.parse_offset_message_id((await listed(broker, topic="open"))[0].id)[0].packed
        fake = MessageToStore("open", 0, b"stolen", NONE, born_timestamp=1, born_host=host, store_host=host)
        assert broker.controller.serving is not None
        reading = broker.controller.serving.store.reading
        at = reading.max_physical_offset + BODY_AT
        encode_into(inner, b"open", fake, Place(physical_offset=at, queue_offset=0, store_timestamp=1), b"")
        await broker.send("secret", bytes(inner) + b"behind")
        assert reading.record_at(at) == bytes(inner), "the attack is one"
        with pytest.raises(NotThere):
            await one(broker, Reader(["open"]), id=message_id.offset_message_id(host, at))


async def test_a_delayed_message_belongs_to_the_topic_that_it_was_sent_to(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T")
        await broker.send("T", b"later", properties="DELAY\x0118\x02UNIQ_KEY\x01U1")
        row = (await listed(broker, topic="SCHEDULE_TOPIC_XXXX"))[0]
        assert (await one(broker, id=row.id))["real_topic"] == "T"
        assert await listed(broker, Reader(["SCHEDULE_TOPIC_XXXX"]), topic="SCHEDULE_TOPIC_XXXX") == []
        with pytest.raises(NotThere):
            await one(broker, Reader(["T"]), id=row.id)


async def test_a_group_has_consumed_what_it_is_past_and_waits_for_the_rest(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await filled(broker)
        fields = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 1}
        assert (await broker.ask(15, fields)).code == 0
        states = [(await one(broker, id=f"U{number}", topic="T"))["groups"][0]["state"] for number in (0, 2)]
        assert states == ["consumed", "waiting"]
        await broker.create_topic("%DLQ%G", queues=1)
        await broker.send("%DLQ%G", b"0", properties="UNIQ_KEY\x01U0")
        assert (await one(broker, id="U0", topic="T"))["groups"][0]["state"] == "dead letter"


async def test_a_dead_letter_of_another_group_is_not_that_of_a_group_whose_key_has_the_same_hash(
    tmp_path: Path,
) -> None:
    async with whole_broker(tmp_path) as broker:
        await filled(broker)
        for group in ("Aa", "BB"):  # their hashes are equal, and so are those of their keys in the index
            fields = {"consumerGroup": group, "topic": "T", "queueId": 0, "commitOffset": 1}
            assert (await broker.ask(15, fields)).code == 0
            await broker.create_topic(f"%DLQ%{group}", queues=1)
        await broker.send("%DLQ%BB", b"0", properties="UNIQ_KEY\x01U0")
        groups = (await one(broker, id="U0", topic="T"))["groups"]
        assert {each["group"]: each["state"] for each in groups} == {"Aa": "consumed", "BB": "dead letter"}


async def test_markup_in_bodies_and_properties_stays_text(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        await here.broker.create_topic("T")
        names = ("KEYS", "TAGS", "UNIQ_KEY", HOSTILE)
        texts = "\x02".join([f"{name}\x01{HOSTILE}" for name in names])
        await here.broker.send("T", HOSTILE.encode(), properties=texts)
        found = (await here.data("/messages", topic="T"))["rows"][0]
        assert (found["begin"], found["unique_key"]) == (HOSTILE, HOSTILE)
        for path in ("/messages?topic=T", f"/message?id={found['id']}", f"/message?id={found['id']}&as=hex"):
            status, text = await here.get(path)
            assert (status, "<img src=x" in text, "&lt;img src=x" in text) == (200, False, True), path
        query = urllib.parse.urlencode({"topic": HOSTILE, "key": HOSTILE, "time": HOSTILE})
        for path in (f"/messages?{query}", f"/message?id={urllib.parse.quote(HOSTILE)}"):
            status, text = await here.get(path)
            assert (status, "<img src=x" in text) == (404, False)


async def looked_at(here: Shown, path: str, found: list[int]) -> None:
    found.append((await here.get(path))[0])


async def test_two_look_at_once_while_messages_arrive_and_nothing_is_counted_as_read(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        await filled(here.broker, 60)
        found: list[int] = []
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                nursery.start_soon(looked_at, here, "/messages?topic=T", found)
                nursery.start_soon(looked_at, here, "/messages?topic=T&key=all", found)
            await filled(here.broker, 10, "other")
        assert found == [200] * 4
        assert here.broker.controller.serving is not None
        assert here.broker.controller.serving.tables.stats.read_total == 0


async def steps_of(steps: Steps) -> int:
    count = 0
    for _ in steps:
        count += 1
    return count


async def test_a_list_reads_one_record_in_a_step(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await filled(broker, 20)
        for query in ({"topic": "T"}, {"topic": "T", "key": "all"}):
            assert await steps_of(pages(broker).messages(Ask(query))) >= 20


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01", 0),
        ("2026-01-31T23:59:59.5", 1769903999500),
        ("2026-01-31 23:59:59+01:00", 1769900399000),
        ("1769903999500", 1769903999500),
        ("", None),
        ("yesterday", None),
        ("9" * 400, None),
        ("0001-01-01T00:00:00+23:59", 0),
    ],
)
def test_a_time_is_a_moment_in_utc_or_milliseconds(text: str, ms: int | None) -> None:
    assert time_of(text) == ms


async def searched(broker: WholeBroker, **query: str) -> Data:
    return await NO_LINE.run(pages(broker).messages(Ask({"topic": "T", **query})))


async def test_messages_are_searched_by_tag_expression_and_text(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=1)
        for number in range(60):
            texts = f"TAGS\x01{'ABC'[number % 3]}\x02price\x01{number}\x02UNIQ_KEY\x01U{number}\x02KEYS\x01k"
            await broker.send("T", b"Order %d" % number, properties=texts)

        async def begins(**query: str) -> list[str]:
            return [row.begin.removeprefix("Order ") for row in (await searched(broker, **query))["rows"]]

        assert await begins(tag="A", offset="50", queue="0") == ["51", "54", "57"]
        assert await begins(tag="A || C", offset="56", queue="0") == ["56", "57", "59"]
        assert await begins(sql="price > 57") == ["59", "58"]
        assert await begins(sql="price < 6 AND TAGS = 'B'") == ["4", "1"]
        assert await begins(text="oRDER 7") == ["7"]
        assert await begins(text="order 5", tag="A") == ["57", "54", "51"]
        assert await begins(text="\u8ba2\u5355") == []
        assert await begins(key="k", sql="price = 30") == ["30"]
        wrong = await searched(broker, sql="price >")
        assert (wrong["rows"], bool(wrong["search"]["error"])) == ([], True)
        found = await searched(broker, tag="A", offset="0", queue="0")
        assert (found["looked"], found["is_stopped"], len(found["rows"]), found["older"]) == (60, False, 20, None)
        assert (await searched(broker))["looked"] is None, "without a search nothing is said of it"


async def test_a_search_is_bounded_and_says_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MOST_LOOKED", 10)
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=1)
        for number in range(25):
            await broker.send("T", b"%d" % number, properties="")
        query = {"text": "nowhere", "queue": "0", "offset": "0"}
        first = await searched(broker, **query)
        assert (first["is_stopped"], first["looked"], first["newer"]) == (True, 10, 10)
        assert first["until_ms"] > 0
        last = await searched(broker, **{**query, "offset": "20"})
        assert (last["is_stopped"], last["looked"], last["newer"]) == (False, 5, None)
        monkeypatch.setattr(search, "MOST_SECONDS", -1)
        assert (await searched(broker, **query))["is_stopped"]


async def test_a_compressed_body_is_searched_as_it_was(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=1)
        await broker.send("T", zlib.compress(b"a needle in the hay" * 100), sysFlag=1)
        assert len((await searched(broker, text="needle"))["rows"]) == 1
        assert (await searched(broker, text="thread"))["rows"] == []


async def test_a_message_shows_its_trace_in_the_order_of_time(tmp_path: Path) -> None:
    async with whole_broker(tmp_path, traceTopicEnable="true") as broker:
        await filled(broker, 2)
        sent = ["Pub", "1000", "R", "PG", "T", "U1", "", "k1", "h", "1", "7", "0", "x", "true"]
        eaten = ["SubAfter", "r", "U1", "9", "false", "k1", "0", "2000", "G"]
        other = ["Pub", "1000", "R", "PG", "T", "U2", "", "k1", "h", "1", "7", "0", "x", "true"]
        broken = ["Pub", "soon", "R", "PG", "T", "U1"]
        for records in ([eaten], [other, sent, broken]):
            body = "".join("\x01".join(cells) + "\x02" for cells in records).encode()
            await broker.send("RMQ_SYS_TRACE_TOPIC", body, properties="KEYS\x01U1")
        trace = (await one(broker, id="U1", topic="T"))["trace"]
        assert [(event["event"], event["group"], event["cost_ms"], event["ok"]) for event in trace] == [
            ("sent", "PG", 7, True),
            ("consumed", "G", 9, False),
        ]
        assert {event["client"] for event in trace} == {"127.0.0.1"}
        assert (await one(broker, id="U0", topic="T"))["trace"] == []
