"""mqadmin top: what it shows, how it changes from round to round, and the terminal it leaves behind."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_cluster import FakeCluster, by_queue, fake_cluster
from verb_calls import check

from triomq.admin.__main__ import main
from triomq.admin.run import Run

ROOT = Path(__file__).resolve().parents[2]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as found:
        yield found


def test_once_shows_brokers_and_the_groups_that_are_behind(cluster: FakeCluster, capsys: Capture) -> None:
    assert main(["top", "--once", "-n", cluster.address, "--output", "json"]) == 0
    broker, group = check("top", capsys.readouterr().out)
    assert (broker["kind"], broker["name"], broker["responds"], broker["diskPercent"]) == ("broker", "b", True, 10.0)
    assert (group["kind"], group["name"], group["backlog"], group["grew"]) == ("group", "G", 6, None)
    assert main(["top", "--once", "-n", cluster.address]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("BROKER  ID  ADDRESS")
    assert "\x1b" not in printed


def test_a_broker_that_is_gone_is_a_line_and_not_the_end(cluster: FakeCluster, capsys: Capture) -> None:
    cluster.refusals[28] = (1, "no")
    assert main(["top", "--once", "-n", cluster.address, "--output", "json"]) == 0
    assert check("top", capsys.readouterr().out)[0]["responds"] is False


def test_the_next_round_shows_how_much_a_backlog_grew(
    cluster: FakeCluster, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []

    def pause(self: Run, seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            raise KeyboardInterrupt
        row = {"brokerOffset": 9, "consumerOffset": 2, "lastTimestamp": 1}
        monkeypatch.setattr(
            cluster, "_bodies", lambda bodies=cluster._bodies: {**bodies(), 208: {"offsetTable": by_queue(row)}}
        )

    monkeypatch.setattr(Run, "pause", pause)
    assert main(["top", "--interval", "0.5", "-n", cluster.address, "--output", "jsonl"]) == 130
    items = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [item["grew"] for item in items if item["kind"] == "group"] == [None, 8]
    assert waited == [0.5, 0.5]


@pytest.mark.parametrize("text", ["0", "x", "3601"])
def test_the_interval_has_bounds(text: str, cluster: FakeCluster) -> None:
    assert main(["top", "--interval", text, "-n", cluster.address]) == 2


def test_ctrl_c_leaves_the_terminal_with_its_cursor(cluster: FakeCluster) -> None:
    main_end, program_end = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm"}
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "triomq.admin", "top", "-n", cluster.address],
        stdin=program_end,
        stdout=program_end,
        stderr=program_end,
        env=environment,
    ) as process:
        os.close(program_end)
        shown = b""
        while b"GROUP" not in shown:
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
    assert b"\x1b[?25l" in shown
    assert shown.endswith(b"\x1b[?25h")
    assert b"Traceback" not in shown
