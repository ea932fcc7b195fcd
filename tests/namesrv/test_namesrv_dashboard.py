"""The dashboard of a NameServer: its brokers and topics."""

from __future__ import annotations

from triomq.dashboard.views import Ask, Data, Steps
from triomq.namesrv.brokers import BrokerKey
from triomq.namesrv.routes import RouteTable
from triomq.namesrv.views import NamesrvViews
from triomq.protocol.bodies.topic_config import DataVersion, TopicConfig


def made(steps: Steps) -> Data:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            data: Data = end.value
            return data


async def test_a_name_server_shows_brokers_and_topics() -> None:
    routes = RouteTable()
    routes.register(
        BrokerKey("c", "broker-a", 0, "10.0.0.1:10911"),
        ha_address="10.0.0.1:10912",
        data_version=DataVersion(),
        topics={name: TopicConfig(topic_name=name, write_queue_nums=4) for name in ("orders", "bills")},
        filter_servers=[],
        owner=object(),
        now=0.0,
    )
    views = NamesrvViews(routes)
    overview = made(views.overview(Ask()))
    assert [(one["name"], one["id"], one["address"]) for one in overview["brokers"]] == [
        ("broker-a", 0, "10.0.0.1:10911")
    ]
    assert overview["topics"] == 2
    page = made(views.topics(Ask({"q": "ORD"})))["list"]
    assert page.rows == [{"name": "orders", "brokers": [{"broker": "broker-a", "queues": 4}]}]
