"""The sums of topics and groups over all brokers, as the dashboard of one of them shows them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from broker_scrape import traffic
from broker_shown import Browser, cells, fetch, shown
from broker_whole import whole_broker
from free_ports import free_port

from triomq import Message, blocking
from triomq.broker.views import own_totals
from triomq.protocol.bodies.broker_totals import BrokerTotals, documents
from triomq.protocol.codes import RequestCode
from triomq.testing import LocalCluster

ACCOUNTS = """accounts:
- {accessKey: administrator, secretKey: secret-of-admin, admin: true}
- {accessKey: reader-1, secretKey: secret-of-reader, defaultTopicPerm: DENY, defaultGroupPerm: DENY,
   topicPerms: [T=SUB], groupPerms: [G=SUB]}
"""


def send(name_server: str, *topics: str) -> None:
    """Send to the broker of a cluster."""
    with blocking.Producer("P", name_server=name_server) as producer:
        for topic in topics:
            producer.send_many([Message(topic, b"%d" % number) for number in range(5)])


async def totals_of(broker: Any) -> list[BrokerTotals]:
    response = await broker.ask(RequestCode.QUERY_BROKER_TOTALS)
    assert response.code == 0, response.remark
    return list(documents(response.body))


async def test_topics_and_groups_of_all_brokers_are_added_up(tmp_path: Path) -> None:
    port = free_port()
    with LocalCluster(store=tmp_path / "other", settings={"dashboardPort": str(port)}) as other:
        await trio.to_thread.run_sync(send, other.name_server, "T", "only-there")
        async with shown(tmp_path, namesrvAddr=other.name_server, brokerName="broker-b") as here:
            await traffic(here.broker)
            rows = {row["name"]: row for row in (await here.data("/all-topics"))["list"]["rows"]}
            assert (rows["T"]["messages"], rows["T"]["brokers"]) == (12, 2)
            assert (rows["only-there"]["messages"], rows["only-there"]["brokers"]) == (5, 1)
            data = await here.data("/all-topic", name="T")
            assert [(one["broker"], one["messages"]) for one in data["parts"]] == [("broker-a", 5), ("broker-b", 7)]
            assert [one["is_own"] for one in data["parts"]] == [False, True]
            assert data["coverage"]["is_partial"] is False
            page = (await here.get("/all-topic?name=T"))[1]
            assert f'href="http://127.0.0.1:{port}/topic?name=T"' in page
            assert 'href="/topic?name=T"' in page
            groups = (await here.data("/all-groups"))["list"]["rows"]
            assert [(row["name"], row["lag"], row["members"]) for row in groups if row["name"] == "G"] == [("G", 4, 1)]
            data = await here.data("/all-group", name="G")
            assert [(one["broker"], one["lag"], one["members"]) for one in data["parts"]] == [("broker-b", 4, 1)]
            assert "client_ids" not in data["parts"][0]
            for path in ("/topics", "/groups", "/topic?name=T", "/group?name=G"):
                assert f'href="/all-{path[1:]}"' in (await here.get(path))[1], path
            assert cells((await here.get("/all-groups?q=G"))[1])[1][:3] == ["G", "1", "4"]
            both = (await here.data("/cluster"))["totals"]
            assert [one["name"] for one in both["parts"]] == ["broker-b", "broker-a"]
            assert both["topics"] >= 2 and both["lag"] == 4
            assert "All brokers together" in (await here.get("/cluster"))[1]
            assert (await here.get("/all-topic?name=none"))[0] == (await here.get("/all-group?name=none"))[0] == 404
            _, text = await trio.to_thread.run_sync(fetch, port, "/api/all-topic?name=T")
            assert json.loads(text)["topic"]["messages"] == 12, "the other broker shows the same sums"


async def test_a_broker_alone_has_no_link_to_others_and_one_that_is_away_is_named(tmp_path: Path) -> None:
    async with shown(tmp_path / "alone") as here:
        assert "/all-topics" not in (await here.get("/topics"))[1]
        assert (await here.data("/all-topics"))["coverage"]["brokers"] == ["broker-a"]
    gone = free_port()
    async with shown(tmp_path / "other", namesrvAddr=f"127.0.0.1:{gone}") as here:
        assert "No NameServer said which other brokers there are" in (await here.get("/all-groups"))[1]


@pytest.mark.parametrize("has_tools_account", [False, True])
async def test_a_reader_sees_the_sums_of_what_he_may_read(tmp_path: Path, has_tools_account: bool) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/plain_acl.yml").write_text(ACCOUNTS)
    if has_tools_account:
        (tmp_path / "conf/tools.yml").write_text("accessKey: administrator\nsecretKey: secret-of-admin\n")
    with LocalCluster(store=tmp_path / "other") as other:
        await trio.to_thread.run_sync(send, other.name_server, "T", "secret")
        settings = {"aclEnable": "true", "rocketmqHome": str(tmp_path), "namesrvAddr": other.name_server}
        async with shown(tmp_path, **settings, brokerName="broker-b") as here:
            reader, admin = Browser(here.port), Browser(here.port)
            await reader.post("/login", {"name": "reader-1", "secret": "secret-of-reader"})
            await admin.post("/login", {"name": "administrator", "secret": "secret-of-admin"})
            status, text = await reader.get("/api/all-topics")
            page = (await reader.get("/topics"))[1]
            if not has_tools_account:
                assert (status, "/all-topics" in page) == (404, False)
            else:
                assert [row["name"] for row in json.loads(text)["list"]["rows"]] == ["T"]
                assert 'href="/all-topics"' in page
                assert (await reader.get("/all-topic?name=T"))[0] == 200
                assert (await reader.get("/all-topic?name=secret"))[0] == 404
            assert "secret" in [
                row["name"] for row in json.loads((await admin.get("/api/all-topics"))[1])["list"]["rows"]
            ]


async def test_totals_of_thousands_of_topics_are_made_in_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = {"readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    topics = {name: {"topicName": name, **topic} for name in [f"t{number:04}" for number in range(5_000)]}
    (tmp_path / "store/config").mkdir(parents=True)
    version = {"dataVersion": {"timestamp": 1, "counter": 1}}
    (tmp_path / "store/config/topics.json").write_text(json.dumps({"topicConfigTable": topics, **version}))
    async with whole_broker(tmp_path) as broker:
        said = await totals_of(broker)
        names = {row.name for document in said for row in document.topics}
        assert topics.keys() <= names
        assert max(len(document.topics) for document in said) == own_totals.TOPICS_IN_A_STEP
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count_turns)
            await totals_of(broker)
            nursery.cancel_scope.cancel()
        assert turns > 10, "others run between the steps"
        monkeypatch.setattr(own_totals, "MOST_ROWS", 100)
        said = await totals_of(broker)
        assert sum(len(document.topics) for document in said) == 100
        assert said[0].topics_left_out == len(names) - 100


async def test_members_are_named_up_to_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with whole_broker(tmp_path) as broker:
        await traffic(broker)
        row = next(row for one in await totals_of(broker) for row in one.groups if row.name == "G")
        assert (row.members, row.client_ids) == (1, ["c1"])
        monkeypatch.setattr(own_totals, "MOST_CLIENT_IDS", 0)
        row = next(row for one in await totals_of(broker) for row in one.groups if row.name == "G")
        assert (row.members, row.client_ids) == (1, [])
