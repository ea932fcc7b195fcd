"""`triomq dev`: NameServer, broker and dashboard in one terminal."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from free_ports import free_port
from printed_until import printed_until

from triomq import ConsumeFromWhere, blocking

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
COMMAND = [sys.executable, "-u", "-m", "triomq.client.app.run", "dev"]
NO_GRPC = ["--grpc-port", "0"]


def test_it_serves_what_it_names_and_leaves_nothing(tmp_path: Path) -> None:
    options = ["--namesrv-port", "0", "--listen-port", str(free_port()), "--dashboard-port", str(free_port())]
    options += ["--grpc-port", (grpc_port := str(free_port()))]
    options += ["--set", "brokerName=own"]
    with subprocess.Popen([*COMMAND, *options], stdout=subprocess.PIPE, text=True) as process:
        text = printed_until(process, "Ctrl-C")
        name_server = re.search(r"name server  (\S+)", text)
        dashboard = re.search(r"dashboard    (\S+)", text)
        store = re.search(r"store in (\S+)", text)
        assert name_server and dashboard and store, text
        assert f"gRPC         127.0.0.1:{grpc_port}\n" in text
        socket.create_connection(("127.0.0.1", int(grpc_port)), timeout=30).close()
        assert Path(store[1]).is_dir()
        with blocking.Producer("G", name_server=name_server[1]) as producer:
            assert producer.send(blocking.Message("T", b"kept")).queue.broker_name == "own"
        with blocking.PushConsumer("C", name_server=name_server[1], consume_from=FIRST) as consumer:
            consumer.subscribe("T", "a IS NULL", sql=True)
            received = consumer.receive(60)
            assert received is not None and received.body == b"kept"
        with urllib.request.urlopen(f"{dashboard[1]}messages?topic=T", timeout=30) as response:
            assert "kept" in response.read().decode()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    assert not Path(store[1]).parent.exists()


def test_a_store_of_its_own_stays(tmp_path: Path) -> None:
    options = ["--namesrv-port", "0", "--listen-port", str(free_port()), "--dashboard-port", "0", *NO_GRPC]
    command = [*COMMAND, "--store", str(tmp_path / "here"), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        text = printed_until(process, "Ctrl-C")
        assert "dashboard" not in text
        process.terminate()
        assert process.wait(timeout=60) == 0
    assert (tmp_path / "here" / "store" / "commitlog").is_dir()


def test_a_setting_without_a_value_is_one_line() -> None:
    done = subprocess.run([*COMMAND, "--set", "brokerName"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "'brokerName' is not KEY=VALUE" in done.stderr


@pytest.mark.parametrize("option", ["--namesrv-port", "--listen-port", "--grpc-port"])
def test_a_port_that_is_taken_is_one_line_that_names_the_option(option: str) -> None:
    with socket.create_server(("", 0)) as holder:
        taken = str(holder.getsockname()[1])
        names = ("--namesrv-port", "--listen-port", "--dashboard-port", "--grpc-port")
        ports = {**dict.fromkeys(names, "0"), option: taken}
        command = [*COMMAND, *(word for pair in ports.items() for word in pair)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 255
    assert re.fullmatch(rf"triomq dev: cannot listen on .*{taken}.*or set {option}\n", done.stderr), done.stderr


def test_a_store_in_use_is_one_line_that_names_the_option(tmp_path: Path) -> None:
    ports = ["--namesrv-port", "0", "--listen-port", "0", "--dashboard-port", "0", *NO_GRPC]
    command = [*COMMAND, "--store", str(tmp_path), *ports]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        printed_until(process, "Ctrl-C")
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        process.terminate()
    assert done.returncode != 0
    assert "in use by another process" in done.stderr
    assert "set --store to another directory" in done.stderr
