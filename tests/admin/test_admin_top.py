"""mqadmin top: what it shows, how it changes from round to round, and the terminal it leaves behind."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_cluster import FakeCluster, by_queue, fake_cluster
from hypothesis import given
from hypothesis import strategies as st
from verb_calls import check

from triomq.admin.__main__ import main
from triomq.admin.run import Run
from triomq.admin.verbs import top_rates
from triomq.admin.verbs.top_rates import Rates, graph
from triomq.protocol import write_times

ROOT = Path(__file__).resolve().parents[2]
Capture = pytest.CaptureFixture[str]


class Busy(FakeCluster):
    """`end` is the next offset of both queues of topic T, and group G has read as far as `read`."""

    def __init__(self) -> None:
        super().__init__()
        self.end, self.read = 5, 2

    def _bodies(self) -> dict[int, Any]:
        ends = {"minOffset": 0, "maxOffset": self.end, "lastUpdateTimestamp": 1}
        row = {"brokerOffset": self.end, "consumerOffset": self.read, "lastTimestamp": 1}
        part = {"sum": 60, "tps": 17.1, "avgpt": 1.0}
        counted = {"statsMinute": part, "statsHour": part, "statsDay": part}
        offsets = {202: {"offsetTable": by_queue(ends)}, 208: {"offsetTable": by_queue(row)}}
        return {**super()._bodies(), **offsets, 315: counted}


@pytest.fixture
def cluster() -> Iterator[Busy]:
    with fake_cluster(Busy()) as found:
        assert isinstance(found, Busy)
        yield found


class Pauses:
    """Stands for the waits between pictures: two seconds pass, and the cluster gets work. The last one is Ctrl-C."""

    def __init__(self, cluster: Busy, monkeypatch: pytest.MonkeyPatch, *, count: int = 99) -> None:
        self.waited: list[float] = []
        self._cluster = cluster
        self._count = count
        self._now = 100.0
        monkeypatch.setattr(Run, "pause", lambda _, seconds: self._pause(seconds))
        monkeypatch.setattr(top_rates, "monotonic", lambda: self._now)

    def _pause(self, seconds: float) -> None:
        self.waited.append(seconds)
        if len(self.waited) == self._count:
            raise KeyboardInterrupt
        self._now += 2.0
        self._cluster.end += 4
        self._cluster.read += 1


def test_once_measures_for_an_interval_and_shows_brokers_topics_and_groups(
    cluster: Busy, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = Pauses(cluster, monkeypatch)
    assert main(["top", "--once", "-n", cluster.address, "--output", "json"]) == 0
    broker, topic, group = check("top", capsys.readouterr().out)
    assert pauses.waited == [1.0]
    assert (broker["kind"], broker["name"], broker["responds"], broker["diskPercent"]) == ("broker", "b", True, 10.0)
    assert broker["writeP99Ms"] is None  # it counts no writes
    assert topic == {"kind": "topic", "name": "T", "inTps": 4.0, "outTps": 17.1, "messages": 18}
    assert (group["kind"], group["name"], group["backlog"], group["grew"]) == ("group", "G", 12, 6)
    assert main(["top", "--once", "-n", cluster.address]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("BROKER  ID  ADDRESS")
    assert "\nTOPIC  IN/S  OUT/S  MESSAGES\nT      4.00  17.10        26\n" in printed
    assert "\x1b" not in printed


def test_a_broker_that_refuses_is_a_line_and_not_the_end(
    cluster: Busy, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Pauses(cluster, monkeypatch)
    cluster.refusals[28] = (1, "no")
    assert main(["top", "--once", "-n", cluster.address, "--output", "json"]) == 0
    assert check("top", capsys.readouterr().out)[0]["responds"] is False


def test_a_master_that_is_gone_is_a_line_and_the_others_are_shown(
    cluster: Busy, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Pauses(cluster, monkeypatch)
    there = {"brokerName": "b", "cluster": "C", "brokerAddrs": {"0": cluster.address}}
    gone = {"brokerName": "gone", "cluster": "C", "brokerAddrs": {"0": "127.0.0.1:1"}}
    both = {"brokerAddrTable": {"b": there, "gone": gone}, "clusterAddrTable": {"C": ["b", "gone"]}}
    monkeypatch.setattr(cluster, "_bodies", lambda bodies=cluster._bodies: {**bodies(), 106: both})
    assert main(["top", "--once", "-n", cluster.address, "--output", "json"]) == 0
    first, second, topic, group = check("top", capsys.readouterr().out)
    assert (first["responds"], second["responds"]) == (True, False)
    assert (topic["inTps"], group["backlog"]) == (4.0, 12)


def test_each_picture_shows_what_changed_since_the_last(
    cluster: Busy, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = Pauses(cluster, monkeypatch, count=3)
    assert main(["top", "--interval", "0.5", "-n", cluster.address, "--output", "jsonl"]) == 130
    items = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [item["grew"] for item in items if item["kind"] == "group"] == [None, 6, 6]
    assert [item["inTps"] for item in items if item["kind"] == "topic"] == [None, 4.0, 4.0]
    assert [item["outTps"] for item in items if item["kind"] == "topic"] == [17.1, 17.1, 17.1], "as the broker counts"
    keys = {fields["statsKey"] for code, fields, _ in cluster.requests if code == 315}
    assert keys == {"T@G"}
    assert pauses.waited == [0.5, 0.5, 0.5]


def test_the_numbers_of_topics_and_groups_are_chosen(
    cluster: Busy, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Pauses(cluster, monkeypatch)
    words = ["top", "--once", "-n", cluster.address, "--output", "json"]
    assert main([*words, "--topics", "0", "--groups", "0"]) == 0
    assert [item["kind"] for item in check("top", capsys.readouterr().out)] == ["broker"]
    assert main([*words, "--topics", "-1"]) == 2
    assert main([*words, "--groups", "-1"]) == 2


# -- the times of writes -----------------------------------------------------------------------------------------------

BUCKETS = (
    "<=0ms",
    "0~10ms",
    "10~50ms",
    "50~100ms",
    "100~200ms",
    "200~500ms",
    "500ms~1s",
    "1~2s",
    "2~3s",
    "3~4s",
    "4~5s",
    "5~10s",
    "10s~",
)


def times_text(counts: list[int]) -> str:
    return "".join([f"[{name}]:{count} " for name, count in zip(BUCKETS, counts, strict=True)])


@given(st.lists(st.integers(0, 1000), min_size=13, max_size=13), st.integers(1, 100))
def test_the_time_of_writes_is_one_that_their_share_does_not_exceed(counts: list[int], percent: int) -> None:
    found = write_times.percentile_ms(write_times.counts_of({"putMessageDistributeTime": times_text(counts)}), percent)
    if not sum(counts):
        assert found is None
        return
    assert found is not None
    within = sum(counts) - write_times.longer_than(counts, found)
    assert within * 100 >= percent * sum(counts) or found == 10_000
    below = write_times.EDGES_MS[: write_times.EDGES_MS.index(found)]
    assert all((sum(counts) - write_times.longer_than(counts, edge)) * 100 < percent * sum(counts) for edge in below)


def test_the_slow_writes_of_a_broker_are_shown(cluster: Busy, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    Pauses(cluster, monkeypatch)
    table = {"table": {"putMessageDistributeTime": times_text([900, 80, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0])}}
    monkeypatch.setattr(cluster, "_bodies", lambda bodies=cluster._bodies: {**bodies(), 28: table})
    assert main(["top", "--once", "-n", cluster.address, "--output", "json"]) == 0
    assert check("top", capsys.readouterr().out)[0]["writeP99Ms"] == 500


@pytest.mark.parametrize(
    ("own", "sync", "lag"),
    [
        ({}, None, None),  # RocketMQ's brokers report neither
        ({"syncTimes": "0", "syncLatency99": "0.00", "eventLoopLagMax": "0.31"}, None, 0.31),
        ({"syncTimes": "1", "syncLatency99": "7.50", "eventLoopLagMax": "1200.00"}, 7.5, 1200.0),
        ({"syncTimes": "x", "syncLatency99": "7.50", "eventLoopLagMax": ""}, None, None),
    ],
)
def test_the_syncs_and_the_lag_of_a_broker_are_shown(
    own: dict[str, str],
    sync: float | None,
    lag: float | None,
    cluster: Busy,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Pauses(cluster, monkeypatch)
    table = {"table": {"runtime": "", **own}}
    monkeypatch.setattr(cluster, "_bodies", lambda bodies=cluster._bodies: {**bodies(), 28: table})
    words = ["top", "--once", "-n", cluster.address]
    assert main([*words, "--output", "json"]) == 0
    broker = check("top", capsys.readouterr().out)[0]
    assert (broker["syncP99Ms"], broker["loopLagMs"]) == (sync, lag)
    assert main(words) == 0
    assert "  SYNC P99 MS  LOOP LAG MS  " in capsys.readouterr().out


# -- rates and graphs --------------------------------------------------------------------------------------------------


def test_the_busiest_topic_is_first_and_one_that_begins_anew_has_no_rate_below_0(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = Rates()
    now = iter([0.0, 2.0, 3.0])
    monkeypatch.setattr(top_rates, "monotonic", lambda: next(now))
    first = rates.items({"idle": (9, 9, 0), "busy": (1, 100, 0), "gone": (1, 1, 0)})
    assert [(item["name"], item["inTps"]) for item in first] == [("idle", None), ("busy", None), ("gone", None)]
    second = rates.items({"idle": (9, 9, 0), "busy": (1, 110, 2), "new": (1, 1, 0)})
    assert [(item["name"], item["inTps"], item["outTps"]) for item in second] == [
        ("busy", 5.0, 2.0),
        ("idle", 0.0, 0.0),
        ("new", None, 0.0),
    ]
    third = rates.items({"busy": (0, 0, 0)})
    assert (third[0]["inTps"], third[0]["outTps"]) == (0.0, 0.0)
    assert rates.history("busy") == [5.0, 0.0]
    assert rates.history("idle") == rates.history("gone") == []  # forgotten with their topics


def test_a_history_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = Rates()
    now = iter(range(1000))
    monkeypatch.setattr(top_rates, "monotonic", lambda: float(next(now)))
    for number in range(top_rates.HISTORY + 5):
        rates.items({"T": (0, number * number, 0)})
    assert len(rates.history("T")) == top_rates.HISTORY
    assert rates.history("T")[-1] == 2.0 * (top_rates.HISTORY + 5) - 3


def test_only_so_many_topics_are_asked_for(cluster: Busy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_rates, "MAX_TOPICS", 2)
    names = ["d", "b", "%RETRY%G", "%DLQ%G", "a", "c"]
    monkeypatch.setattr(cluster, "_bodies", lambda bodies=cluster._bodies: {**bodies(), 206: {"topicList": names}})
    Pauses(cluster, monkeypatch)
    assert main(["top", "--once", "-n", cluster.address]) == 0
    assert {fields["topic"] for code, fields, _ in cluster.requests if code == 202} == {"a", "b"}


@given(st.lists(st.floats(0, 1e9), max_size=40))
def test_a_graph_has_a_bar_for_each_rate_and_higher_ones_are_not_lower(rates: list[float]) -> None:
    for encoding in ("utf-8", "ascii", None, "nosuch"):
        bars = top_rates.BARS if encoding == "utf-8" else top_rates.PLAIN_BARS
        heights = [bars.index(bar) for bar in graph(rates, encoding)]
        assert len(heights) == len(rates)
        assert all(low <= high for low, high in zip(*_in_order(rates, heights), strict=False))
        assert [height == 0 for height in heights] == [rate == 0 for rate in rates]
        assert not any(rates) or max(heights) == len(bars) - 1


def _in_order(rates: list[float], heights: list[int]) -> tuple[list[int], list[int]]:
    """Return the heights by rate, and the same without the first."""
    ordered = [height for _, height in sorted(zip(rates, heights, strict=True))]
    return ordered, ordered[1:]


# -- the terminal ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["0", "x", "3601"])
def test_the_interval_has_bounds(text: str, cluster: Busy) -> None:
    assert main(["top", "--interval", text, "-n", cluster.address]) == 2


def test_the_picture_fits_the_terminal_and_ctrl_c_leaves_it_with_its_cursor(cluster: Busy) -> None:
    main_end, program_end = pty.openpty()
    termios.tcsetwinsize(program_end, (12, 40))
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm", "PYTHONUTF8": "1"}
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "triomq.admin", "top", "-i", "0.1", "-n", cluster.address],
        stdin=program_end,
        stdout=program_end,
        stderr=program_end,
        env=environment,
    ) as process:
        os.close(program_end)
        shown = b""
        while shown.count(b"GROUP") < 3:
            cluster.end += 1  # messages arrive while it watches
            shown += os.read(main_end, 65536)
        process.send_signal(signal.SIGINT)
        while True:
            try:
                data = os.read(main_end, 65536)
            except OSError:  # the program has closed its end
                break
            if not data:
                break
            shown += data
        assert process.wait(30) == 130
    os.close(main_end)
    assert shown.endswith(b"\x1b[?25h")
    assert b"Traceback" not in shown
    picture = shown.split(b"\x1b[?25l\x1b[H\x1b[J")[2].decode()
    lines = picture.removesuffix("\x1b[?25h").split("\r\n")
    assert len(lines) <= 12
    assert all(len(line) <= 40 for line in lines)
    assert any(line.startswith("TOPIC") and "MESSAGES  IN/S" in line for line in lines)
    assert "█" in picture
