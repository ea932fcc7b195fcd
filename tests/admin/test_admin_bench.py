"""mqadmin bench: what it measures, what bounds it, and that it leaves nothing behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from fake_cluster import fake_cluster
from hypothesis import given
from hypothesis import strategies as st
from stored_records import encoded
from verb_calls import check, items, lines

from triomq.admin.__main__ import main
from triomq.admin.errors import AdminError, Unreachable
from triomq.admin.verbs import bench, bench_load
from triomq.admin.verbs.bench_figures import MAX_KINDS_OF_ERRORS, Figures, percentile
from triomq.admin.verbs.bench_load import Load
from triomq.protocol.json_frame import Response

Capture = pytest.CaptureFixture[str]
at_cluster = pytest.mark.usefixtures("at_cluster")


def topics(capsys: Capture) -> set[str]:
    return {item["topic"] for item in items_of_topics(capsys)}


def items_of_topics(capsys: Capture) -> list[dict[str, str]]:
    capsys.readouterr()
    assert main(["topicList", "--output", "json"]) == 0
    printed = capsys.readouterr().out
    return check("topicList", printed[printed.index("[\n") :])


@at_cluster
@pytest.mark.parametrize(
    ("kind", "kinds"),
    [("send", ["send"]), ("receive", ["send", "receive"]), ("both", ["send", "receive"]), ("latency", ["latency"])],
)
def test_every_message_is_sent_and_received_and_the_topic_is_gone(kind: str, kinds: list[str], capsys: Capture) -> None:
    before = topics(capsys)
    found = items(["bench", kind, "--count", "50", "--size", "100", "--connections", "3"], capsys)
    assert [item["kind"] for item in found] == kinds
    for item in found:
        assert (item["messages"], item["errors"], item["connections"], item["size"]) == (50, 0, 3, 100)
        assert 0 < item["p50Ms"] <= item["p90Ms"] <= item["p99Ms"] <= item["maxMs"]
        assert item["messagesPerSecond"] > 0
    assert topics(capsys) == before


@at_cluster
def test_people_see_a_table_and_that_the_processors_are_shared(capsys: Capture) -> None:
    shown = lines(["bench", "send", "--count", "5", "--connections", "1"], capsys)
    assert [line for line in shown if line.startswith("KIND  MESSAGES  SECONDS")]
    assert "share its processors" in shown[-1]


@at_cluster
def test_a_dry_run_sends_nothing(capsys: Capture) -> None:
    before = topics(capsys)
    shown = "\n".join(lines(["bench", "--dry-run"], capsys))
    assert "send up to 10000 messages of 1024 bytes through 4 connections, 1 at a time on each" in shown
    assert topics(capsys) == before


@pytest.mark.parametrize(
    "words",
    [
        "sideways",
        "--count 0",
        "--count 1000001",
        "--size 0",
        "--size 4194305",
        "--connections 65",
        "--seconds 0",
        "--seconds 3601",
        "--window 0",
        "--window 257",
        "latency --window 2",
    ],
)
def test_a_load_has_bounds(words: str) -> None:
    assert main(["bench", *words.split()]) == 2


# -- against a cluster that only records -------------------------------------------------------------------------------


def test_the_time_ends_a_load(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    with fake_cluster() as fake:
        now = iter(range(10_000))
        monkeypatch.setattr(bench_load, "monotonic", lambda: float(next(now)))
        [item] = items(["bench", "send", "--connections", "1", "--seconds", "5", "-n", fake.address], capsys)
    assert 0 < item["messages"] < 10


def test_errors_are_counted_end_the_load_and_the_topic_is_deleted_all_the_same(capsys: Capture) -> None:
    with fake_cluster() as fake:
        fake.refusals[310] = (2, "system busy")
        assert main(["bench", "send", "--connections", "1", "-n", fake.address, "--output", "json"]) == 6
        printed = capsys.readouterr()
        [item] = check("bench", printed.out)
        assert (item["messages"], item["errors"], item["p50Ms"]) == (0, bench_load.MAX_ERRORS, None)
        assert {215, 216} <= fake.codes
    assert f"send: {bench_load.MAX_ERRORS} times: {fake.address} refused: system busy" in printed.err


def test_a_topic_that_stays_is_said(capsys: Capture) -> None:
    with fake_cluster() as fake:
        fake.refusals[215] = (1, "no")
        words = ["bench", "send", "--connections", "1", "--count", "1", "-n", fake.address]
        assert main(words) == 6
    assert "was not deleted" in capsys.readouterr().err


def test_brokers_of_other_machines_get_no_load_without_yes(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(bench, "is_loopback", lambda address: False)
    with fake_cluster() as fake:
        words = ["bench", "send", "--connections", "1", "--count", "1", "-n", fake.address]
        assert main(words) == 2
        assert "--yes" in capsys.readouterr().err
        assert not fake.codes & {17, 310}
        assert main([*words, "--dry-run"]) == 0
        assert not fake.codes & {17, 310}
        assert main([*words, "--yes"]) == 0
        assert fake.codes >= {17, 310, 215, 216}


@pytest.mark.parametrize(
    ("address", "answer"),
    [
        ("127.0.0.1:10911", True),
        ("127.1.2.3:1", True),
        ("localhost:1", True),
        ("[::1]:1", True),
        ("10.0.0.1:1", False),
        ("127.example.com.evil:1", False),
        ("broker:1", False),
    ],
)
def test_what_is_this_machine(address: str, answer: bool) -> None:
    assert bench.is_loopback(address) is answer


# -- requests in flight, and latency -----------------------------------------------------------------------------------


class Wire:
    """A session that keeps requests in flight and responds to the newest first. `breaks_at` is the number of a request
    whose connection is gone; `pulled` are the rounds of the messages that each pull finds.
    """

    def __init__(self, *, breaks_at: int = 0, pulled: Sequence[list[int]] = ()) -> None:
        self.breaks_at = breaks_at
        self.pulled = list(pulled)
        self.in_flight: list[int] = []
        self.most = self.begun = 0

    def another(self) -> Wire:
        return self

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, address: str, code: int, fields: dict[str, Any], body: bytes = b"") -> int:
        self.begun += 1
        if self.begun == self.breaks_at:
            self.in_flight.clear()
            raise Unreachable("gone in the middle")
        self.in_flight.append(self.begun)
        self.most = max(self.most, len(self.in_flight))
        return self.begun

    def call(self, address: str, code: int, fields: dict[str, Any], body: bytes = b"") -> None:
        """Accept a message."""

    def next_response(self, address: str, *, timeout_seconds: float = 5) -> Response:
        opaque = self.in_flight.pop()
        rounds = self.pulled.pop(0) if self.pulled else []
        found = [bytes(encoded(b"T", b"x", b"round\x01%d\x02" % each, store_timestamp=1)) for each in rounds]
        return Response(0, opaque, "", {"nextBeginOffset": "0"}, b"".join(found))


def measured(wire: Wire, kind: str, **limits: int) -> Figures:
    limits = {"count": 10, "size": 1, "connections": 1, "seconds": 30, "window": 1, **limits}
    load = Load(wire, "T", {"b": "127.0.0.1:1"}, limits)
    load.measure(bench_load.KINDS[kind])
    return load.figures[kind]


@pytest.mark.parametrize(("window", "most"), [(1, 1), (4, 4), (10, 10), (256, 10)])
def test_so_many_requests_are_in_flight_whatever_the_order_of_their_responses(window: int, most: int) -> None:
    wire = Wire()
    figures = measured(wire, "send", window=window)
    assert (figures.count, figures.errors) == (10, {})
    assert (wire.most, wire.in_flight) == (most, [])


def test_what_was_in_flight_with_a_broken_connection_is_an_error_and_the_rest_is_sent() -> None:
    wire = Wire(breaks_at=4)
    figures = measured(wire, "send", window=5)
    assert (figures.count, figures.errors) == (6, {"gone in the middle": 3})


def test_a_message_has_arrived_when_a_pull_has_it_and_not_an_earlier_one() -> None:
    wire = Wire(pulled=[[0], [0], [], [0, 1]])
    figures = measured(wire, "latency", count=2)
    assert (figures.count, figures.errors, wire.begun) == (2, {}, 4)


def test_a_message_that_does_not_arrive_is_an_error_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(10_000))
    monkeypatch.setattr(bench_load, "monotonic", lambda: float(next(now)))
    figures = measured(Wire(), "latency", seconds=5)
    assert figures.count == 0
    assert list(figures.errors) == ["a message to queue 0 at 127.0.0.1:1 had not arrived when the time was over"]


# -- figures -----------------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 1000), min_size=1).map(sorted), st.integers(0, 100))
def test_a_percentile_is_a_time_that_its_share_does_not_exceed(times: list[float], percent: int) -> None:
    found = percentile(times, percent)
    assert found is not None
    assert found in [round(time * 1000, 3) for time in times]
    assert sum(round(time * 1000, 3) <= found for time in times) * 100 >= percent * len(times)
    assert percentile(times, 100) == round(times[-1] * 1000, 3)


def test_the_rate_is_of_the_time_between_the_first_request_and_the_last_response() -> None:
    figures = Figures()
    figures.done(10, 2**20, 100.0, 101.0)
    figures.done(10, 2**20, 99.0, 103.0)
    item = figures.item("send", {"connections": 1, "size": 1, "window": 7})
    assert (item["seconds"], item["messagesPerSecond"], item["mebibytesPerSecond"]) == (4.0, 5.0, 0.5)
    assert (item["p50Ms"], item["maxMs"], item["window"]) == (1000.0, 4000.0, 7)


def test_the_kinds_of_errors_are_bounded() -> None:
    figures = Figures()
    for number in range(100):
        figures.failed(AdminError(str(number)))
    assert len(figures.errors) == MAX_KINDS_OF_ERRORS + 1
    assert sum(figures.errors.values()) == 100
