"""The page of one member of a group: what its client says of itself, be it nonsense."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest
from asked_member import AskedMember
from broker_shown import Browser, Shown, fetch, shown
from free_ports import free_port

from triomq import Message, blocking
from triomq.broker.processors import reset
from triomq.broker.views.member import MOST_ANSWER_BYTES, MOST_QUEUES, MOST_ROWS, MOST_STACK_BYTES, MOST_TEXT
from triomq.protocol.bodies.running_info import ConsumerRunningInfo, ConsumeStatus, ProcessQueueInfo
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.subscription import SubscriptionData
from triomq.testing import LocalCluster

RUNNING_INFO = 307
HOSTILE = "<img src=x onerror=alert(1)>"
ACCOUNTS = """accounts:
- {accessKey: administrator, secretKey: secret-of-admin, admin: true}
- {accessKey: reader-1, secretKey: secret-of-reader, groupPerms: [G=SUB]}
- {accessKey: reader-2, secretKey: secret-of-another, groupPerms: [other=SUB]}
"""


def running(**changes: Any) -> bytes:
    queue = MessageQueue("T", "broker-a", 3)
    info = ConsumerRunningInfo(
        mq_table={queue: ProcessQueueInfo(cached_msg_count=7, commit_offset=41, locked=True, droped=True)},
        properties={"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "secretKey": "it is secret"},
        status_table={"T": ConsumeStatus(consume_failed_msgs=4, consume_rt=2.5, consume_ok_tps=10.0)},
        subscription_set=[SubscriptionData(topic="T", sub_string="a || b", sub_version=1_700_000_000_000)],
    )
    return ConsumerRunningInfo(**{**{name: getattr(info, name) for name in info.__struct_fields__}, **changes}).encode()


async def test_a_member_says_what_it_does_and_its_stacks_if_they_are_asked_for(tmp_path: Path) -> None:
    async with shown(tmp_path) as here:
        await here.broker.create_topic("T")
        client = AskedMember(here, RUNNING_INFO, running(jstack="thread one\n  at a line"))
        await client.join()
        page = (await here.get("/group?name=G"))[1]
        assert 'href="/member?group=G&amp;client=c1"' in page
        found = await here.data("/member", group="G", client="c1")
        assert (found["member"]["client"], found["why"], found["said"]["stack"]) == ("c1", "", "")
        [queue] = found["said"]["queues"]
        assert (queue["topic"], queue["queue"], queue["cached"], queue["committed"]) == ("T", 3, 7, 41)
        assert (queue["is_locked"], queue["is_dropped"]) == (True, True)
        [rates] = found["said"]["rates"]
        assert (rates["topic"], rates["consume_ms"], rates["ok_per_second"], rates["failed_in_hour"]) == (
            *("T", 2.5, 10.0, 4),
        )
        [subscription] = found["said"]["subscriptions"]
        assert (subscription["expression"], subscription["since_ms"]) == ("a || b", 1_700_000_000_000)
        properties = {one["name"]: one["value"] for one in found["said"]["properties"]}
        assert properties == {"PROP_CONSUME_TYPE": "CONSUME_PASSIVELY", "secretKey": "***"}
        page = (await here.get("/member?group=G&client=c1"))[1]
        assert "thread one" not in page
        assert "a || b" in page and "it is secret" not in page
        page = (await here.get("/member?group=G&client=c1&stack=1"))[1]
        assert "thread one\n  at a line" in page
        assert [fields["jstackEnable"] for fields, _ in client.asked] == ["false", "false", "true"]
        assert {fields["clientId"] for fields, _ in client.asked} == {"c1"}


async def test_what_a_client_sends_is_shown_as_text_and_bounded(tmp_path: Path) -> None:
    many = {f"{HOSTILE}{number:04}": "v" * 3000 for number in range(MOST_ROWS + 5)}
    queues = {MessageQueue("T", HOSTILE, number): ProcessQueueInfo() for number in range(MOST_QUEUES + 7)}
    rates = {HOSTILE: ConsumeStatus()}
    text = "é" * MOST_STACK_BYTES + HOSTILE
    async with shown(tmp_path) as here:
        await here.broker.create_topic("T")
        client = AskedMember(
            here, RUNNING_INFO, running(properties=many, mq_table=queues, status_table=rates, jstack=text)
        )
        await client.join(HOSTILE)
        found = await here.data("/member", group="G", client=HOSTILE, stack="1")
        shown_of = found["said"]
        assert (len(shown_of["properties"]), len(shown_of["queues"])) == (MOST_ROWS, MOST_QUEUES)
        assert shown_of["left_out"] == {"properties": 5, "queues": 7, "rates": 0, "subscriptions": 0}
        assert {len(one["value"]) for one in shown_of["properties"]} == {MOST_TEXT}
        assert shown_of["stack"] == "é" * (MOST_STACK_BYTES // 2)
        assert (shown_of["stack_is_cut"], shown_of["stack_bytes"]) == (True, 2 * MOST_STACK_BYTES + len(HOSTILE))
        status, page = await here.get("/member?group=G&stack=1&client=" + "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
        assert (status, "<img" in page.partition("<main")[2]) == (200, False)
        assert html.escape(HOSTILE) in page
        assert "This is the beginning of the stacks" in page


@pytest.mark.parametrize(
    ("body", "code", "remark", "reason"),
    [
        (b"{", 0, None, "its response cannot be read (1 bytes)"),
        (b"", 0, None, "its response cannot be read (0 bytes)"),
        (b"[1, 2]", 0, None, "its response cannot be read (6 bytes)"),
        (b'{"mqTable":7}', 0, None, "its response cannot be read (13 bytes)"),
        (b'{"jstack":"' + b"x" * MOST_ANSWER_BYTES + b'"}', 0, None, "bytes, and up to"),
        (b"", 1, HOSTILE + "x" * 5000, html.escape(HOSTILE)),
        (b"", 7, None, "refused with code 7"),
        (b"", 1, "java.lang.RuntimeException: no, a.b.C.run(C.java:12)", "did not answer: no<"),
    ],
)
async def test_a_client_that_cannot_be_understood_is_named_with_the_reason(
    tmp_path: Path, body: bytes, code: int, remark: str | None, reason: str
) -> None:
    async with shown(tmp_path) as here:
        await here.broker.create_topic("T")
        await AskedMember(here, RUNNING_INFO, body, code, remark).join()
        status, page = await here.get("/member?group=G&client=c1")
        assert (status, reason in page, len(page) < 10_000) == (200, True, True), page
        assert (await here.data("/member", group="G", client="c1"))["said"] is None


async def test_rates_that_are_not_numbers_are_shown_as_unknown(tmp_path: Path) -> None:
    body = b'{"statusTable":{"T":{"pullRT":"NaN","consumeRT":"Infinity","consumeOKTPS":1e308}}}'
    async with shown(tmp_path) as here:
        await here.broker.create_topic("T")
        await AskedMember(here, RUNNING_INFO, body).join()
        [row] = (await here.data("/member", group="G", client="c1"))["said"]["rates"]
        assert (row["pull_ms"], row["consume_ms"], row["ok_per_second"]) == (None, None, 1e308)
        assert (await here.get("/member?group=G&client=c1"))[0] == 200


async def test_a_client_that_hangs_and_one_that_is_away_have_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reset, "CALL_TIMEOUT_SECONDS", 0.05)
    async with shown(tmp_path) as here:
        await here.broker.create_topic("T")
        client = AskedMember(here, RUNNING_INFO)
        client.is_silent = True
        await client.join()
        status, page = await here.get("/member?group=G&client=c1&stack=1")
        assert (status, "did not answer:" in page, "Timeout" in page) == (200, True, True), page
        assert (await here.get("/member?group=G&client=c2"))[0] == 404
        assert (await here.get("/member?group=nothing&client=c1"))[0] == 404
        assert (await here.get("/member"))[0] == 404


async def entered(here: Shown, name: str, secret: str) -> Browser:
    browser = Browser(here.port)
    assert (await browser.post("/login", {"name": name, "secret": secret}))[0] == 200
    return browser


async def test_a_reader_of_the_group_sees_no_stacks_and_properties_and_others_see_nothing(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/plain_acl.yml").write_text(f"globalWhiteRemoteAddresses: [127.0.0.1]\n{ACCOUNTS}")
    async with shown(tmp_path, aclEnable="true", rocketmqHome=str(tmp_path)) as here:
        await here.broker.create_topic("T")
        client = AskedMember(here, RUNNING_INFO, running(jstack="thread one"))
        await client.join()
        path = "/member?group=G&client=c1&stack=1"
        stranger = await entered(here, "reader-2", "secret-of-another")
        assert (await stranger.get(path))[0] == 404
        assert client.asked == []
        reader = await entered(here, "reader-1", "secret-of-reader")
        status, page = await reader.get(path)
        assert (status, "a || b" in page) == (200, True), page
        assert [word for word in ("thread one", "stacks", "CONSUME_PASSIVELY", "Properties") if word in page] == []
        found = json.loads((await reader.get(f"/api{path}"))[1])["said"]
        assert (found["stack"], found["properties"]) == ("", [])
        assert {fields["jstackEnable"] for fields, _ in client.asked} == {"false"}
        administrator = await entered(here, "administrator", "secret-of-admin")
        page = (await administrator.get(path))[1]
        assert "thread one" in page and "CONSUME_PASSIVELY" in page


def test_a_consumer_of_the_python_client_shows_itself(tmp_path: Path) -> None:
    port = free_port()
    with LocalCluster(store=tmp_path, settings={"dashboardPort": str(port)}) as cluster:
        with blocking.Producer("P", name_server=cluster.name_server) as producer:
            producer.send(Message("T", b"x"))
        with blocking.PushConsumer("G", name_server=cluster.name_server) as consumer:
            consumer.subscribe("T")
            assert consumer.receive(timeout_seconds=15) is not None
            consumer.ack()
            [member] = json.loads(fetch(port, "/api/group?name=G")[1])["members"]
            status, body = fetch(port, f"/api/member?group=G&stack=1&client={member['client'].replace('#', '%23')}")
            assert status == 200, body
            found = json.loads(body)
            assert found["why"] == ""
            assert {one["topic"] for one in found["said"]["queues"]} >= {"T"}
            assert "File" in found["said"]["stack"]
            assert {one["topic"] for one in found["said"]["rates"]} >= {"T"}
