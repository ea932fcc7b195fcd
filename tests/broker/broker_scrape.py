"""A broker with its pages, and a scrape of them as Prometheus reads it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from broker_whole import WholeBroker, whole_broker
from free_ports import free_port
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from triomq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData, ProducerData
from triomq.protocol.subscription import SubscriptionData
from triomq.store.disk.files import Files


class Scrape:
    """One scrape, read by Prometheus's parsers: every name has its type, samples are found by name and labels."""

    def __init__(self, text: str, *, is_openmetrics: bool = False) -> None:
        self.text = text
        self.families = list(read_openmetrics(text) if is_openmetrics else read_text(text))
        self.types = {family.name: family.type for family in self.families}
        self.labels: defaultdict[str, set[frozenset[str]]] = defaultdict(set)
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        for family in self.families:
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self.samples, f"twice: {key}"
                self.samples[key] = sample.value
                self.labels[sample.name].add(frozenset(sample.labels))

    def value(self, name: str, **labels: str) -> float:
        """Return the only sample with these labels among others."""
        found = [
            value
            for (known, of_sample), value in self.samples.items()
            if known == name and set(labels.items()) <= of_sample
        ]
        assert len(found) == 1, f"{name} {labels}: {found}"
        return found[0]


def fetch(port: int, path: str, accept: str = "") -> tuple[int, str, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.headers["Content-Type"], response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


class WatchedBroker:
    def __init__(self, broker: WholeBroker, port: int) -> None:
        self.broker = broker
        self.port = port

    async def scrape(self, accept: str = "") -> Scrape:
        status, content_type, text = await trio.to_thread.run_sync(fetch, self.port, "/metrics", accept)
        assert status == 200
        assert content_type.startswith("application/openmetrics-text" if accept else "text/plain; version=0.0.4")
        return Scrape(text, is_openmetrics=bool(accept))

    async def ready(self) -> tuple[int, dict[str, tuple[bool, str]]]:
        status, _, text = await trio.to_thread.run_sync(fetch, self.port, "/health/ready")
        return status, {check["name"]: (check["ok"], check["detail"]) for check in json.loads(text)["checks"]}


@asynccontextmanager
async def watched(folder: Path, files: Files | None = None, **settings: str) -> AsyncIterator[WatchedBroker]:
    port = free_port()
    async with whole_broker(folder, files=files, metricsPort=str(port), **settings) as broker:
        yield WatchedBroker(broker, port)


async def traffic(broker: WholeBroker) -> None:
    """Store 7 messages in T, hand 5 of them to the group G, commit 3."""
    beat = HeartbeatData(
        client_id="c1",
        consumer_data_set=[
            ConsumerData(
                group_name="G",
                consume_type="CONSUME_PASSIVELY",
                message_model="CLUSTERING",
                subscription_data_set=[SubscriptionData(topic="T", sub_string="*")],
            )
        ],
        producer_data_set=[ProducerData(group_name="P")],
    )
    await broker.create_topic("T")
    assert (await broker.ask(34, {}, beat.encode())).code == 0
    for queue_id in (0, 0, 0, 0, 0, 1, 1):
        assert (await broker.send("T", queueId=queue_id)).code == 0
    assert (await broker.pull("T")).code == 0
    fields = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": 3}
    assert (await broker.ask(15, fields)).code == 0
