"""A broker with messages of every kind, and what a page of it does in a browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from free_ports import free_port

from triomq import ConsumeFromWhere, DeadLetter, LocalTransactionState, Message, MessageExt
from triomq.blocking import Admin, Producer, PushConsumer, TransactionProducer
from triomq.testing import LocalCluster

if TYPE_CHECKING:
    from playwright.sync_api import Page

LIMIT_SECONDS = 15
HOSTILE = "<img src=x onerror=\"document.title='owned'\">&'"
HOSTILE_TOPIC = HOSTILE + "T" * (60 - len(HOSTILE))
ORDERS = "orders-of-the-shop"
PAGES = (
    *(
        "/",
        "/topics",
        "/topics?kind=all",
        "/groups",
        "/messages",
        "/dead",
        "/waiting",
        "/connections",
        "/broker",
        "/cluster",
    ),
    *("/configuration", "/configuration?changed=1", "/quotas", "/topics?q=nothing+like+this", "/no-such-page"),
    *("/letters?group=billing", f"/tail?topic={ORDERS}", f"/messages?topic={ORDERS}&text=nothing+like+this"),
    *(f"/topic?name={ORDERS}", "/group?name=billing", "/group?name=resting", f"/messages?topic={ORDERS}"),
    f"/topic?name={quote(HOSTILE_TOPIC)}",
    f"/messages?topic={ORDERS}&key=order-7",
    *(
        "/all-topics",
        "/all-topics?kind=all",
        "/all-topics?q=nothing+like+this",
        "/all-groups",
        "/all-groups?kind=system",
    ),
    *(f"/all-topic?name={ORDERS}", "/all-group?name=billing", f"/all-topic?name={quote(HOSTILE_TOPIC)}"),
)
NAME_SERVER_PAGES = ("/", "/cluster", "/topics", "/topics?q=nothing+like+this", "/topics?page=3", "/no-such-page")
MANY_TOPICS, MANY_GROUPS = 5_000, 500
DUNNING, DUNNED = "dunning", 6
"""A group without members, and the number of its dead letters."""
PROJECT = Path(__file__).resolve().parents[2]
ACTING_PAGES = (
    *("/edit-topic", f"/edit-topic?name={ORDERS}", "/edit-group", "/edit-group?name=resting", "/send?topic=a"),
    *("/edit-setting?key=maxMessageSize", "/edit-setting?key=autoCreateTopicEnable", "/edit-quota"),
    "/edit-quota?kind=group&name=resting",
)


def chromium() -> str | None:
    """Return where a browser is; Playwright's own are not on a package index."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for name in names if (path := shutil.which(name))), None)


class Shown:
    """A cluster of one broker whose dashboard is at `origin`."""

    def __init__(self, cluster: LocalCluster, origin: str) -> None:
        self.cluster = cluster
        self.origin = origin

    def token(self) -> str:
        return (self.cluster.store / "dashboard.token").read_text().strip()


@contextmanager
def shown(folder: Path, more_name_servers: str = "", **settings: str) -> Iterator[Shown]:
    """A broker that takes actions. It registers at a NameServer of its own, and at others."""
    port, own = free_port(), free_port()
    more = {"dashboardPort": str(port), "dashboardReadOnly": "false", "transactionTimeOut": "600000", **settings}
    if more_name_servers:
        more["namesrvAddr"] = f"127.0.0.1:{own};{more_name_servers}"
    with LocalCluster(store=folder, name_server_port=own, settings=more) as cluster:
        yield Shown(cluster, f"http://127.0.0.1:{port}")


@contextmanager
def shown_name_server(folder: Path) -> Iterator[tuple[str, str]]:
    """A NameServer as a process (a cluster's own has no dashboard): its address, and that of its dashboard."""
    port, dashboard = free_port(), free_port()
    folder.mkdir()
    (folder / "namesrv.conf").write_text(f"listenPort={port}\ndashboardPort={dashboard}\n")
    words = [sys.executable, "-m", "triomq.namesrv", "-c", str(folder / "namesrv.conf")]
    environment = {**os.environ, "HOME": str(folder), "PYTHONPATH": str(PROJECT / "src")}
    with subprocess.Popen(words, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert "boot success" in process.stdout.readline()
            yield f"127.0.0.1:{port}", f"http://127.0.0.1:{dashboard}"
        finally:
            process.terminate()


def large_tables(folder: Path) -> None:
    """Leave many topics and groups where the broker finds them, and a topic with markup in its name: they are loaded,
    not checked, at a start."""
    topic = {"readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    topics = {name: {"topicName": name, **topic} for name in (HOSTILE_TOPIC, *numbered("z-topic", MANY_TOPICS))}
    groups = {name: {"groupName": name} for name in numbered("z-group", MANY_GROUPS)}
    version = {"dataVersion": {"timestamp": 1, "counter": 1}}
    (folder / "config").mkdir(parents=True)
    (folder / "config/topics.json").write_text(json.dumps({"topicConfigTable": topics, **version}))
    (folder / "config/subscriptionGroup.json").write_text(json.dumps({"subscriptionGroupTable": groups, **version}))


def numbered(word: str, count: int) -> list[str]:
    return [f"{word}-{number:04}" for number in range(count)]


@contextmanager
def trading(name_server: str) -> Iterator[None]:
    """Send orders, delayed and half messages; consume some, give some up, and leave a group behind."""
    with Admin(name_server=name_server) as admin:
        admin.create_topic(ORDERS, read_queues=4, write_queues=4)
    with Producer("shop", name_server=name_server) as producer:
        body = json.dumps(
            {"order": 7, "items": ["book", "lamp"], "cents": 4_200, "note": "leave it with the neighbours"}
        )
        orders = [
            Message(ORDERS, body.encode(), tags="paid", keys=f"order-{number} customer-{number * 7}")
            for number in range(120)
        ]
        producer.send_many(orders)
        producer.send(Message(ORDERS, f"{HOSTILE} {'x' * 300}".encode(), tags=HOSTILE, keys=HOSTILE))
        producer.send(Message(ORDERS, b"\x00\xff\xfe", tags="binary", keys="k" * 200))
        for number in range(DUNNED):
            producer.send(Message(ORDERS, b"not paid", tags="unpaid", keys=f"unpaid-{number}"))
        for level in (14, 17, 18):
            later = Message(ORDERS, b"later")
            later.delay_level = level
            producer.send(later)
    with TransactionProducer(
        "shop-transactions",
        lambda message, argument: LocalTransactionState.UNKNOW,
        lambda message: LocalTransactionState.UNKNOW,
        name_server=name_server,
    ) as transactions:
        transactions.send_in_transaction(Message(ORDERS, b"half"))
    given_up = threading.Event()
    dunned: set[str] = set()
    all_dunned = threading.Event()

    def dun(message: MessageExt) -> None:
        dunned.add(message.keys)
        if len(dunned) == DUNNED:
            all_dunned.set()
        raise DeadLetter("this customer does not answer")

    def bill(message: MessageExt) -> None:
        if message.tags == "binary":
            given_up.set()
            raise DeadLetter("this order cannot be read")

    def consumer(group: str) -> PushConsumer:
        return PushConsumer(group, name_server=name_server, consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)

    with consumer("resting") as resting:
        resting.subscribe(ORDERS, "paid || binary")
        assert resting.receive(timeout_seconds=LIMIT_SECONDS) is not None
        resting.ack()
    with consumer(DUNNING) as dunning:
        dunning.subscribe(ORDERS, "unpaid")
        dunning.listen(dun)
        assert all_dunned.wait(LIMIT_SECONDS)
    with consumer("billing") as billing:
        billing.subscribe(ORDERS)
        billing.listen(bill)
        assert given_up.wait(LIMIT_SECONDS)
        yield


class Watched:
    """A page, and everything that went wrong on it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.faults: list[str] = []
        page.on("console", lambda said: self._note(said.type in ("error", "warning"), f"{said.type}: {said.text}"))
        page.on("pageerror", lambda error: self._note(True, f"page: {error}"))
        page.on("dialog", lambda dialog: self._note(True, f"dialog: {dialog.message}"))
        page.on("response", lambda answer: self._note(answer.status >= 500, f"{answer.status}: {answer.url}"))
        page.add_init_script(
            "addEventListener('securitypolicyviolation', e => console.error('CSP', e.violatedDirective))"
        )

    def _note(self, is_fault: bool, text: str) -> None:
        # Chromium says on the console that a page is a 404, as this one is meant to be.
        if is_fault and "the server responded with a status of 4" not in text:
            self.faults.append(text)

    def faults_of_layout(self) -> list[str]:
        """Return what does not fit: a page that scrolls sideways, words and ids on two lines."""
        found: Any = self.page.evaluate(_LAYOUT)
        return [str(one) for one in found]

    def findings_of_axe(self, *rules: str) -> list[str]:
        """Return what assistive technology trips over, by these rules or by all."""
        if not self.page.evaluate("typeof axe === 'object'"):
            self.page.evaluate(_axe())
        options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
        found: Any = self.page.evaluate("async (options) => (await axe.run(options)).violations", options)
        return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found]


@cache
def _axe() -> str:
    from axe_playwright_python.sync_playwright import Axe

    return str(Axe().axe_script)


_LAYOUT = """() => {
  const found = [];
  const wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) found.push(`the page is ${wide} wide, the window ${innerWidth}`);
  const lines = (node, from, to) => {
    const range = document.createRange();
    range.setStart(node, from);
    range.setEnd(node, to);
    return new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size;
  };
  const parts = ".card:not(.whole), thead th, nav, .state, .id, .key, td.num, .chips, button";
  for (const part of document.querySelectorAll(parts)) {
    const walker = document.createTreeWalker(part, NodeFilter.SHOW_TEXT);
    for (let node; (node = walker.nextNode());)
      for (const word of node.data.matchAll(/[^ \\n]+/g))
        if (lines(node, word.index, word.index + word[0].length) > 1) found.push(`${word[0]} is on two lines`);
  }
  for (const value of document.querySelectorAll(".card dd"))
    if (value.scrollWidth > value.clientWidth) found.push(`${value.textContent} is cut`);
  for (const control of document.querySelectorAll("a, button, input:not([type=hidden]), select, textarea, summary")) {
    const box = control.getBoundingClientRect();
    const isOutside = box.width && (box.left < 0 || box.right > innerWidth);
    if (isOutside && !control.closest(".table") && !control.matches(".skip"))
      found.push(`${control.textContent || control.name} is outside of the window`);
  }
  for (const table of document.querySelectorAll(".table"))
    if (table.scrollWidth > table.clientWidth && table.tabIndex) found.push("the keyboard cannot scroll a table");
  return found;
}"""
