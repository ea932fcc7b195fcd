"""`mqpipeline quality`: figures of messages, limits, and what it refuses."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from free_ports import free_port
from hypothesis import given
from hypothesis import strategies as st
from tables_kept import create, said, send

from triomq import ConsumeFromWhere
from triomq.blocking import DeadLetter, Message, Producer, PushConsumer
from triomq.pipeline.quality import figures, limits, scan
from triomq.pipeline.quality.consumed import first_deliveries
from triomq.pipeline.quality.figures import HOUR_MS, Figures, Gap, Seen, Spread, gaps_between
from triomq.pipeline.quality.report import as_html, as_text, full_hours, topic_item
from triomq.pipeline.quality.scan import Window, scan_letters, scan_topic
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.jobs import main as jobs
from triomq.spark.jobs.session import JobFailed
from triomq.testing import LocalCluster

QUEUE = MessageQueue("T", "b", 0)


def quality(cluster: LocalCluster, *more: str) -> int:
    return jobs.main(["quality", "-n", cluster.name_server, "--quiet", "--option", "retryTimeoutMs=1000", *more])


# -- figures -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-5, 10**7), min_size=1), st.integers(0, 50))
def test_percentiles_are_at_most_two_percent_too_high_and_never_too_low(latencies: list[int], cut: int) -> None:
    spread, other = Spread(), Spread()
    spread.add(pa.array(latencies[:cut], pa.int64()))
    other.add(pa.array(latencies[cut:], pa.int64()))
    spread.include(other)
    found = spread.item()
    assert found is not None
    ordered = sorted(max(0, one) for one in latencies)
    for name, share in figures.SHARES.items():
        exact = ordered[math.ceil(share * len(ordered)) - 1]
        assert exact <= found[name] <= exact * 1.02 + 1
    assert found["max"] == ordered[-1]
    assert spread.below_zero == sum(one < 0 for one in latencies)


def test_without_a_latency_there_is_no_percentile() -> None:
    assert Spread().item() is None


@given(st.sets(st.integers(0, 40), min_size=1), st.integers(0, 3))
def test_gaps_are_what_is_missing_between_offsets(offsets: set[int], before: int) -> None:
    shifted = sorted(offset + before for offset in offsets)
    found = list(gaps_between(pa.array(shifted, pa.int64()), 0))
    missing = [offset for begin, end in found for offset in range(begin, end)]
    assert missing == sorted(set(range(shifted[-1] + 1)) - set(shifted))
    assert all(begin < end for begin, end in found)


def test_repeats_count_in_the_hour_of_the_later_message_and_have_a_bound() -> None:
    seen = Seen(5)
    seen.add(["a", "b", "a"], pa.array([3 * HOUR_MS, HOUR_MS, HOUR_MS], pa.int64()))
    seen.add(["a", "c", "b"], pa.array([3 * HOUR_MS, 0, 2 * HOUR_MS], pa.int64()))
    assert seen.repeats() == {3: 2}
    assert seen.left_out == 1
    assert Seen(1).repeats() == {}


class Made:
    """A source of one queue with these (offset, hour, key, size, reason) messages, in batches of two."""

    fails = False

    def __init__(self, *messages: tuple[int, int, str | None, int, str | None]) -> None:
        self._messages = messages

    def batches(self, queue: MessageQueue, begin: int, end: int) -> Generator[Any, None, None]:
        for at in range(0, len(self._messages), 2):
            part = self._messages[at : at + 2]
            stored = pa.array([hour * HOUR_MS * 1000 for _, hour, *_ in part], pa.timestamp("us", "UTC"))
            properties = [{"RETRY_TOPIC": "T", **({"DEAD_LETTER_REASON": one[4]} if one[4] else {})} for one in part]
            columns = {
                "queueOffset": pa.array([one[0] for one in part], pa.int64()),
                "body": [b"x" * one[3] for one in part],
                "keys": pa.array([one[2] for one in part], pa.string()),
                "bornTimestamp": pa.array([hour * HOUR_MS * 1000 - 7000 for _, hour, *_ in part], stored.type),
                "storeTimestamp": stored,
                "msgId": [f"id{one[0]}" for one in part],
                "properties": pa.array([list(one.items()) for one in properties], pa.map_(pa.string(), pa.string())),
            }
            yield pa.record_batch(columns)

    def about(self) -> Any:
        raise NotImplementedError

    def queues(self) -> list[MessageQueue]:
        return [QUEUE]

    def begins(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        return {QUEUE: 0}

    def ends(self, queues: Sequence[MessageQueue]) -> dict[MessageQueue, int]:
        return {QUEUE: 10}


def test_a_pass_counts_by_hour_and_names_gaps() -> None:
    source = Made((1, 5, "k", 3, None), (2, 5, "k j", 1, None), (5, 6, None, 10, None), (6, 7, "j k", 2, None))
    read: list[int] = []
    found = scan_topic(source, "T", [(QUEUE, 0, 9)], Window(), 100, read.append)
    assert read == [2, 2]
    assert found.gaps == [Gap("b", 0, 0, 1), Gap("b", 0, 3, 5), Gap("b", 0, 7, 9)]
    assert (found.missing, found.gap_count) == (5, 3)
    assert {hour: (one.messages, one.bytes, one.repeated_keys) for hour, one in found.hours.items()} == {
        5: (2, 4, 1),
        6: (1, 10, 0),
        7: (1, 2, 2),
    }
    total = found.total().item()
    assert (total["minBytes"], total["maxBytes"], total["repeatedIds"]) == (1, 10, 0)
    assert total["bornToStoredMs"] == {"p50": 7, "p90": 7, "p99": 7, "max": 7}
    within = scan_topic(source, "T", [(QUEUE, 0, 9)], Window(6 * HOUR_MS, 7 * HOUR_MS), 100, read.append)
    assert list(within.hours) == [6]


def test_dead_letters_count_by_reason_and_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MOST_REASONS", 2)
    source = Made(*[(at, 5, None, 1, reason) for at, reason in enumerate(["poison", None, "poison", "third", "4"])])
    found = scan_letters(source, [(QUEUE, 0, 5)], Window(), lambda _: None)
    assert found == {("T", "poison"): 2, ("T", scan.NO_REASON): 1, ("", scan.OTHER_REASONS): 2}


def test_hours_without_messages_are_full_hours_too() -> None:
    hours = {10: Figures(messages=4), 12: Figures(messages=6)}
    now = 13 * HOUR_MS + 5
    assert full_hours(hours, Window(), now) == [0, 6], "the first hour may have begun in its middle"
    assert full_hours(hours, Window(10 * HOUR_MS, 12 * HOUR_MS), now) == [4, 0]
    assert full_hours(hours, Window(9 * HOUR_MS + 1), now) == [4, 0, 6]
    assert full_hours({}, Window(), now) == []
    assert full_hours({}, Window(11 * HOUR_MS), now) == [0, 0]


def test_first_deliveries_of_traces() -> None:
    records = [
        "SubBefore\x01100\x01region\x01ns%G\x01request\x01ID1\x010\x01key",
        "SubBefore\x01200\x01region\x01G\x01request\x01ID1\x011\x01key",
        "SubAfter\x01request\x01ID1\x013\x01true\x01key",
        "Pub\x01100\x01region\x01P\x01T\x01ID1",
        "SubBefore\x01100\x01short",
        "SubBefore\x01x\x01region\x01G\x01request\x01ID2\x010\x01key",
    ]
    assert list(first_deliveries("\x02".join(records) + "\x02")) == [("G", "ID1", 100)]


# -- limits ------------------------------------------------------------------------------------------------------------


def read(tmp_path: Path, text: str) -> list[limits.Limit]:
    (tmp_path / "limits.yaml").write_text(text)
    return limits.read(str(tmp_path / "limits.yaml"))


def test_limits_are_broken_by_too_much_too_little_and_the_unknown(tmp_path: Path) -> None:
    hours = {hour: Figures(messages=10, repeated_keys=1) for hour in (1, 2, 4)}
    topic = topic_item(scan.TopicScan("Orders", hours, missing=3), Window(HOUR_MS), 5 * HOUR_MS)
    group = {"name": "G", "deadLetters": 2, "backlog": 5, "behindMs": None}
    report = {"topics": [topic], "groups": [group]}
    text = """
topics:
  "Ord*": {max_missing_messages: 2, max_repeated_keys_percent: 10, min_messages_per_hour: 1, min_messages: 31}
  Orders: {max_born_to_stored_p99_ms: 5, max_messages: 30}
  Gone: {max_body_bytes: 1}
groups:
  "*": {max_dead_letters: 2, max_backlog: 4.5, max_behind_seconds: 1}
"""
    found = [one.text() for one in limits.broken(read(tmp_path, text), report)]
    assert found == [
        "topic Orders: max_missing_messages is 2, and there is 3",
        "topic Orders: min_messages_per_hour is 1, and there is 0",
        "topic Orders: min_messages is 31, and there is 30",
        "topic Orders: max_born_to_stored_p99_ms is 5, and there is unknown",
        "no topic is named 'Gone'",
        "group G: max_backlog is 4.5, and there is 5",
        "group G: max_behind_seconds is 1, and there is unknown",
    ]


def test_every_limit_has_a_figure() -> None:
    for of, known in (("topics", limits.TOPIC_FIGURES), ("groups", limits.GROUP_FIGURES)):
        assert {name.partition("_")[2] for name in limits.LIMITS[of]} == set(known)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("- 1", "the file is no table of names"),
        ("topic: {}", "the file has 'topic'; possible are groups, topics"),
        ("topics: 1", "topics is no table of names"),
        ("topics: {a: {max_lag: 1}}", "topics: a has 'max_lag'; possible are max_body_bytes,"),
        ("topics: {a: {min_messages: true}}", "min_messages is True, not a number"),
        ("topics: {", "is not YAML: while parsing"),
    ],
)
def test_a_file_of_limits_that_is_wrong(text: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(JobFailed) as caught:
        read(tmp_path, text)
    assert what in str(caught.value)
    assert str(caught.value).startswith("--thresholds: ")


# -- the job -----------------------------------------------------------------------------------------------------------


def test_the_report_of_a_cluster(shop: LocalCluster, tmp_path: Path, capsys: Any) -> None:
    create(shop, "Orders", 2)
    create(shop, "Quiet", 1)
    with Producer("p", name_server=shop.name_server) as producer:
        for number in range(40):
            producer.send(Message("Orders", b"x" * (number + 1), keys=f"k{number % 30}"))
    seen = []

    def consume(message: Any) -> None:
        seen.append(message)
        if message.body == b"x":
            raise DeadLetter("not an <order>")

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    with PushConsumer("buyers", name_server=shop.name_server, consume_from=first, trace=True) as consumer:
        consumer.subscribe("Orders")
        consumer.listen(consume)
        deadline = time.monotonic() + 30
        while len(seen) < 40 and time.monotonic() < deadline:
            time.sleep(0.01)
    (tmp_path / "limits.yaml").write_text('topics: {"*": {max_body_bytes: 40}}\ngroups: {"*": {max_dead_letters: 0}}')
    page = tmp_path / "report.html"
    more = ["--thresholds", str(tmp_path / "limits.yaml"), "--html", str(page), "--output", "json"]
    assert quality(shop, "--from", "1h", *more) == 1
    report = json.loads(said(capsys)[0])
    orders, quiet = [topic for topic in report["topics"] if topic["name"] in ("Orders", "Quiet")]
    assert (orders["messages"], orders["bytes"], orders["missing"]) == (40, 820, 0)
    assert (orders["repeatedKeys"], orders["repeatedIds"]) == (10, 0)
    assert sum(hour["messages"] for hour in orders["hours"]) == 40
    assert set(orders["storedToConsumedMs"]) == {"buyers"}
    assert (quiet["messages"], quiet["bornToStoredMs"], quiet["hours"]) == (0, None, [])
    [group] = [group for group in report["groups"] if group["name"] == "buyers"]
    assert group["reasons"] == [{"topic": "Orders", "reason": "not an <order>", "messages": 1}]
    assert (group["deadLetters"], group["backlog"]) == (1, 0)
    assert [one["what"] for one in report["broken"]] == ["group buyers: max_dead_letters is 0, and there is 1"]
    html = page.read_text()
    assert "not an &lt;order&gt;" in html
    assert "not an <order>" not in html
    assert "max_dead_letters is 0, and there is 1" in html
    assert quality(shop, "--topics", "Orders", "--to", "2000-01-01T00:00") == 0
    assert "all" in said(capsys)[0]


def test_the_report_of_store_files(tmp_path: Path, capsys: Any) -> None:
    with LocalCluster(store=tmp_path / "one") as cluster:
        create(cluster, "Rows", 2)
        send(cluster, "Rows", 30, 2)
    root = next(path.parent for path in (tmp_path / "one").rglob("commitlog"))
    more = ["--option", "brokerName=b", "--quiet"]
    assert jobs.main(["quality", "--store", str(root), *more]) == 0
    out = said(capsys)[0]
    assert "topic Rows" in out
    assert "when messages were consumed is not known" in out
    assert "backlogs are not known" in out
    queue = root / "consumequeue" / "Rows" / "1"
    shutil.copytree(root, tmp_path / "two")
    entries = bytearray((queue / f"{0:020d}").read_bytes())
    entries[5 * 20 : 6 * 20] = entries[4 * 20 : 5 * 20]  # the record is another one
    (tmp_path / "two" / "consumequeue" / "Rows" / "1" / f"{0:020d}").write_bytes(entries)
    assert jobs.main(["quality", "--store", str(tmp_path / "two"), "--topics", "Rows", "--output", "json", *more]) == 0
    [topic] = json.loads(said(capsys)[0])["topics"]
    assert topic["missing"] == 1


@pytest.mark.parametrize(
    ("more", "what"),
    [
        (["--topics", "Nothing"], "--topics: topic 'Nothing' does not exist at 127.0.0.1:"),
        (["--topics", ","], "--topics: no name is given"),
        (["--html", "/proc/x"], "--html: /proc/x cannot be written: "),
        (["--thresholds", "/nowhere/x.yaml"], "--thresholds: /nowhere/x.yaml cannot be read: "),
        (["--from", "yesterday"], "--from: 'yesterday' is no time: write 2026-11-30T08:00, or an age as 90m, 24h, 7d"),
        (["--from", "1h", "--to", "2h"], "--from must be before --to"),
        (["--store", "/nowhere"], "give either --name-server or --store"),
        (["--most-ids", "0"], "--most-ids must be more than 0"),
    ],
)
def test_what_is_wrong_is_one_line(more: list[str], what: str, shop: LocalCluster, capsys: Any) -> None:
    assert quality(shop, *more) == 2
    err = said(capsys)[1]
    assert err.startswith(f"mqpipeline quality: {what}")
    assert err.count("\n") == 1


def test_a_name_server_that_is_away_is_one_line(capsys: Any) -> None:
    given = ["quality", "-n", f"127.0.0.1:{free_port()}", "--option", "retryTimeoutMs=100"]
    assert jobs.main(given) == 2
    assert said(capsys)[1].count("\n") == 1


def test_a_report_with_limits_shows_them_in_text_and_page() -> None:
    topic = topic_item(scan.TopicScan("T", {1: Figures(messages=1), 2: Figures(messages=2)}), Window(), 0)
    broken = [{"what": "topic T: max_messages is 1, and there is 3"}]
    report = {"of": "n:1", "from": None, "to": None, "topics": [topic], "groups": [], "notes": [], "broken": broken}
    assert "BROKEN: topic T: max_messages is 1, and there is 3" in as_text(report)
    html = as_html(report)
    assert (html.count("<svg"), html.count("No data.")) == (1, 1)
