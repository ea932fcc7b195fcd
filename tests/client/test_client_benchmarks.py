"""The benchmark of Python clients beside others (benchmarks/python_clients.py): its choices, its table, its servers."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from argparse import ArgumentTypeError
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path

import pytest
from free_ports import free_port

from benchmarks import peer_servers
from benchmarks.cpu_watch import Took
from benchmarks.peer_servers import Missing, ToolFailed, cached, kafka_settings, need, output_of, running
from benchmarks.python_clients import CLIENTS, FACADES, SERVERS, WORKLOADS, chosen, chosen_workloads, start, table
from benchmarks.python_facades import MODULES, WAYS, Load, row_of

PROJECT = Path(__file__).resolve().parents[2]
LISTENS = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    server.accept()
"""


def test_each_cell_is_the_median_of_its_rounds() -> None:
    figures = {"send": {"a": [3.0, 1.0, 2.04], "b": [10.0, 20.0]}, "receive": {"b": [0.0], "a": [7.25]}}
    assert table(["a", "b"], figures).splitlines() == [
        "| | a | b |",
        "|---|---|---|",
        "| `send` | 2.0 | 15.0 |",
        "| `receive` | 7.2 | 0.0 |",
    ]


def test_a_library_brings_all_its_clients_in_the_order_of_the_table() -> None:
    assert [client.heading for client in chosen("redis-py,triomq")] == [
        "triomq",
        "triomq.aio",
        "triomq.blocking",
        "redis-py asyncio",
        "redis-py",
    ]
    assert chosen(",".join(client.library for client in CLIENTS)) == CLIENTS


def test_workloads_come_in_the_order_of_the_table() -> None:
    assert chosen_workloads("receive,send") == ["send", "receive"]


def test_unknown_names_are_refused_with_those_there_are() -> None:
    with pytest.raises(ArgumentTypeError, match=r"'kafka'; there are triomq, nats-py, redis-py, aiokafka"):
        chosen("triomq,kafka")
    with pytest.raises(ArgumentTypeError, match=r"'drop'; there are send, send_many, receive"):
        chosen_workloads("drop")


def test_a_server_that_cannot_be_had_is_left_out_and_a_line_says_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> AbstractContextManager[str]:
        raise Missing("go is not installed")

    monkeypatch.setitem(SERVERS, "TrioMQ", lambda: nullcontext("1"))
    monkeypatch.setitem(SERVERS, "NATS", missing)
    with ExitStack() as stack:
        assert start(stack, chosen("triomq,nats-py")) == {"TrioMQ": "1"}
    assert capsys.readouterr().err == "NATS is left out: go is not installed\n"


def test_the_clients_fit_to_the_servers_and_to_the_benchmark_of_facades() -> None:
    assert {client.server for client in CLIENTS} == SERVERS.keys()
    assert [client.heading for client in CLIENTS if client.library == "triomq"] == list(FACADES)
    assert set(FACADES.values()) == MODULES.keys()
    assert set(WORKLOADS.values()) <= set(WAYS)


def test_a_number_of_sends_is_shared_by_the_tasks_and_a_time_is_not() -> None:
    assert len(list(Load("x", 100, 60.0, 128).turns(64))) == 2
    assert len(list(Load("x", 100, 60.0, 1).turns(64))) == 1
    assert next(iter(Load("x", 100, 60.0).turns(1)))
    assert list(Load("x", 100, 0.0).turns(1)) == []


def test_the_ratios_of_facades_are_to_the_first_of_those_measured() -> None:
    took = {"asyncio": (100.0, 5.0), "blocking": (50.0, 9.0)}
    row = row_of("send", [{name: Took(*values) for name, values in took.items()}])
    assert row["ratios"] == {"asyncio": 1.0, "blocking": 0.5}
    assert row["cpu_us"] == {"asyncio": 5.0, "blocking": 9.0}


def test_what_is_built_once_is_built_again_after_a_failure_or_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_servers, "CACHE", tmp_path)
    built = []

    def build(directory: Path) -> None:
        assert list(directory.iterdir()) == []
        built.append(directory)
        (directory / "half").touch()
        if len(built) == 1:
            raise ToolFailed("no network")

    with pytest.raises(ToolFailed):
        cached("x", b"1", build)
    assert cached("x", b"1", build) == cached("x", b"1", build) == built[0]
    assert cached("x", b"2", build) != built[0]
    assert len(built) == 3


def test_a_missing_tool_is_named() -> None:
    need("sh")
    with pytest.raises(Missing, match="no-such-tool is not installed"):
        need("sh", "no-such-tool")


def test_a_failed_tool_shows_what_it_printed_and_a_slow_one_its_time(tmp_path: Path) -> None:
    assert output_of(["sh", "-c", "echo fine; echo no >&2"], tmp_path, 60) == "fine\n"
    with pytest.raises(ToolFailed, match=r"failed \(3\):\nout\nerr"):
        output_of(["sh", "-c", "echo out; echo err >&2; exit 3"], tmp_path, 60)
    with pytest.raises(ToolFailed, match="took more than 0 s"):
        output_of(["sleep", "60"], tmp_path, 0.01)


def test_a_server_runs_until_the_block_ends() -> None:
    port = free_port()
    with running([sys.executable, "-c", LISTENS, str(port)], port) as server:
        assert server.port == port
        assert server.process.poll() is None
    assert server.process.poll() is not None
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.1", port)).close()


def test_a_server_that_does_not_start_is_reported_with_its_output() -> None:
    command = [sys.executable, "-c", "raise SystemExit('no space left')"]
    with pytest.raises(RuntimeError, match="no space left"), running(command, free_port()):
        pass


def test_kafka_listens_on_this_machine_alone() -> None:
    settings = kafka_settings(Path("/tmp/k"), 24010, 24011)
    assert "log.dirs=/tmp/k/log\n" in settings
    assert set(re.findall(r"(?://|@)([\d.]+):", settings)) == {"127.0.0.1"}


@pytest.mark.slow
def test_the_three_facades_are_measured_without_other_libraries() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.python_clients", "--only", "triomq", "--messages", "400", "--rounds", "1"],
        cwd=PROJECT,
        env=dict(os.environ, PYTHONPATH=str(PROJECT / "src")),
        capture_output=True,
        text=True,
        timeout=180,
    )
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("|")]
    assert [row[0].strip("| `") for row in rows[2:]] == list(WORKLOADS), done.stderr
    assert all(float(cell.strip(" |")) > 0 for row in rows[2:] for cell in row[1:])
