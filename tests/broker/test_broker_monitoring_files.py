"""The dashboard and the alert rules in conf/monitoring, and the page that describes the metrics: every name and every
label that they use is in a scrape."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio
import yaml
from broker_scrape import Scrape, fetch, traffic, watched
from free_ports import free_port

from triomq.broker.replication.log_server import Peer
from triomq.namesrv.config import NamesrvSettings
from triomq.namesrv.controller import serve
from triomq.remoting.config import ServerSettings

ROOT = Path(__file__).resolve().parents[2]
FILES = ROOT / "conf" / "monitoring"
OF_PROMETHEUS = {"up": {"job", "instance"}}
ADDED_LABELS = {"instance", "job", "le"}
GROUPING = r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)"
WORDS = {"and", "or", "unless", "bool", "offset", "sum", "max", "min", "topk"}


def used(expression: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each metric of an expression with the labels that it selects by; "" with the labels that it groups by."""
    rest = re.sub(GROUPING, " ", re.sub(r"\[[^\]]*\]", " ", expression))
    for name, selector in re.findall(r"(?<![\w$.])([a-zA-Z_:][\w:]*)(\{[^}]*\})?(?!\s*\(|[\w:])", rest):
        if name not in WORDS:
            yield name, set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selector))
    for group in re.findall(GROUPING, expression):
        yield "", {label.strip() for label in group.split(",") if label.strip()}


def expressions() -> list[tuple[str, str, set[str]]]:
    """Return (where, expression, further labels that the text beside it uses)."""
    found = []
    for group in yaml.safe_load((FILES / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            texts = " ".join([*rule["annotations"].values(), *rule["labels"].values()])
            found.append((rule["alert"], rule["expr"], set(re.findall(r"\$labels\.(\w+)", texts))))
    dashboard = json.loads((FILES / "grafana-dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            found.append((panel["title"], target["expr"], shown))
    for variable in dashboard["templating"]["list"]:
        match = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"])
        if match:
            found.append((variable["name"], match[1], {match[2]}))
    return found


def wrong_names(labels: dict[str, set[str]]) -> list[str]:
    """Return what the files use and no series has."""
    wrong = []
    for where, expression, shown in expressions():
        known: set[str] = set(ADDED_LABELS)
        for name, _ in used(expression):
            known |= labels.get(name, OF_PROMETHEUS.get(name, set()))
        for name, selected in used(expression):
            if name and name not in labels and name not in OF_PROMETHEUS:
                wrong.append(f"{where}: no metric {name}")
            allowed = labels.get(name, OF_PROMETHEUS.get(name, set())) | ADDED_LABELS if name else known
            wrong += [f"{where}: {name or 'grouping'} has no label {label}" for label in selected - allowed]
        wrong += [f"{where}: shows {label}, which nothing has" for label in shown - known]
    return wrong


class Link:
    """A slave that has reported."""

    is_silent = False
    remote = "10.0.0.2:1"
    reported = 0


async def _scraped_member(folder: Path) -> Scrape:
    """Return the scrape of a broker that is a member of a DLedger group."""
    group = {"enableDLegerCommitLog": "true", "dLegerGroup": "G", "dLegerSelfId": "n0"}
    async with watched(folder, dLegerPeers=f"n0-127.0.0.1:{free_port()}", **group) as member:
        return await member.scrape()


async def scraped(folder: Path) -> dict[str, set[str]]:
    """Return metric -> labels, of a broker that has met everything that is counted, and of a NameServer."""
    home = folder / "home"
    (home / "conf").mkdir(parents=True)
    (folder / "member").mkdir()
    (home / "conf" / "plain_acl.yml").write_text("globalWhiteRemoteAddresses:\n- 127.0.0.1\naccounts: []\n")
    port = free_port()
    namesrv = ServerSettings(listen_port=0, bind_address="127.0.0.1", metrics_port=port)
    async with trio.open_nursery() as nursery:
        namesrv_port = await nursery.start(partial(serve, NamesrvSettings(), namesrv))
        settings = {"aclEnable": "true", "rocketmqHome": str(home), "namesrvAddr": f"127.0.0.1:{namesrv_port}"}
        async with watched(folder, metricsMaxSeries="15", metricsAskClients="false", **settings) as it:
            await traffic(it.broker)
            await it.broker.send("no topic")
            for topic in ("%RETRY%G", "%DLQ%G", *(f"T{index}" for index in range(15))):
                await it.broker.create_topic(topic, queues=1)
            await it.broker.ask(15, {"consumerGroup": "G2", "topic": "%RETRY%G", "queueId": 0, "commitOffset": 0})
            await it.broker.ask(15, {"consumerGroup": "G3", "topic": "T0", "queueId": 0, "commitOffset": 99})
            serving = it.broker.controller.serving
            assert serving is not None
            assert serving.access_control is not None
            serving.access_control.refused["bad_signature"] += 1
            serving.quotas.refusals.refused("account", "in", "too much", "127.0.0.1")
            serving.quotas.refusals.delayed("account", "out")
            serving.tables.delay_offsets.set(1, 0)
            serving.tables.stats.send_back("G", "T")
            peer = Peer("10.0.0.2", "10.0.0.1", counts=False)
            peer.link = Link()  # type: ignore[assignment]
            serving.replication.log_server._peers[peer] = None
            scrape = await it.scrape()
            scrapes = [scrape, Scrape((await trio.to_thread.run_sync(fetch, port, "/metrics"))[2])]
            scrapes.append(await _scraped_member(folder / "member"))
            del serving.replication.log_server._peers[peer]
        nursery.cancel_scope.cancel()
    found: dict[str, set[str]] = {}
    for scrape in scrapes:
        for name, sets in scrape.labels.items():
            found.setdefault(name, set()).update(*sets)
    return found


async def test_the_dashboard_the_alerts_and_the_page_use_what_is_there(tmp_path: Path) -> None:
    labels = await scraped(tmp_path)
    assert wrong_names(labels) == []
    assert len(expressions()) > 50
    page = (ROOT / "docs" / "monitoring.md").read_text()
    described, _, left_out = page.partition("## What is not here")
    named = set(re.findall(r"`((?:triomq|rocketmq)_\w+)`", described))
    asked = {name for name in named if name.startswith("rocketmq_client_")}
    histograms = {name.removesuffix("_bucket") for name in labels if name.endswith("_bucket")}
    assert named - asked - labels.keys() - histograms == set(), "the page names what no scrape has"
    own = {name for name in labels if name.startswith("triomq_")}
    own = {re.sub("_(bucket|sum|count)$", "", name) for name in own}
    assert own - named == set(), "the page does not name these"
    absent = set(re.findall(r"`((?:triomq|rocketmq)_\w+)`", left_out))
    assert absent
    assert absent & (labels.keys() | histograms) == set(), "the page says that these are not there"


def test_a_wrong_name_or_label_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = [
        ("a", 'sum by (x, le) (rate(m_total{y="1"}[5m])) / ignoring(z) n > 3', {"w"}),
        ("b", 'histogram_quantile(0.9, rate(m_total[$__rate_interval])) and up{job="j"}', {"x"}),
    ]
    monkeypatch.setitem(globals(), "expressions", lambda: bad)
    assert wrong_names({"m_total": {"x"}}) == [
        "a: m_total has no label y",
        "a: no metric n",
        "a: grouping has no label z",
        "a: shows w, which nothing has",
    ]
