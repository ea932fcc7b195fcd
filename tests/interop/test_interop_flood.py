"""A broker with few descriptors under a flood of connections: what it had acknowledged stays, and it keeps working."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import interop_wire as wire
from free_ports import free_port
from interop_processes import wait_until

SOURCE = Path(__file__).resolve().parents[2] / "src"
DESCRIPTORS = 400
FLOOD = 600
SEND_MESSAGE, PULL_MESSAGE, GET_MAX_OFFSET, GET_BROKER_RUNTIME_INFO = 10, 11, 30, 28
TOPIC = {"topic": "T", "queueId": 0}


def start(home: Path, port: int) -> subprocess.Popen[str]:
    (home / "broker.conf").write_text(
        f"brokerIP1=127.0.0.1\nlistenPort={port}\nnamesrvAddr=127.0.0.1:1\nflushDiskType=SYNC_FLUSH\n"
        f"mappedFileSizeCommitLog=65536\nstorePathRootDir={home}/store\nstorePathCommitLog={home}/store/commitlog\n"
    )
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(SOURCE)}
    process = subprocess.Popen(
        [sys.executable, "-m", "triomq.broker", "-c", "broker.conf"],
        env=environment,
        cwd=home,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS)),
    )
    assert process.stdout is not None
    assert "boot success" in process.stdout.readline()
    return process


def send(peer: wire.Wire, number: int) -> int:
    """Send a message whose body is 1,000 times its number; return the response's code."""
    fields = {
        "producerGroup": "P",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "sysFlag": 0,
        "flag": 0,
        "bornTimestamp": 1,
        "properties": "",
        "reconsumeTimes": 0,
        **TOPIC,
    }
    return peer.call(SEND_MESSAGE, fields, f"{number:04d}".encode() * 1000).code


def test_a_flood_of_connections_costs_no_message_and_ends(tmp_path: Path) -> None:
    """The log begins a new file every 16 messages, so that it needs descriptors all the time."""
    port = free_port()
    process = start(tmp_path, port)
    address = f"127.0.0.1:{port}"
    flood: list[socket.socket] = []
    stop = Event()

    def pour() -> None:
        """Connections of which a third speaks."""
        while not stop.is_set():
            try:
                sock = socket.create_connection(("127.0.0.1", port), timeout=5)
                if len(flood) % 3 == 0:
                    sock.sendall(wire.request(GET_BROKER_RUNTIME_INFO))
                flood.append(sock)
            except OSError:
                continue
            if len(flood) > FLOOD:
                flood.pop(0).close()

    pouring = Thread(target=pour)
    try:
        with wire.Wire(address) as peer:
            assert send(peer, 0) == 0
            pouring.start()
            wait_until(lambda: len(flood) >= FLOOD, 60, "the flood")
            codes = [send(peer, number) for number in range(1, 100)]
            assert codes == [0] * 99
            stop.set()
            pouring.join()
            for sock in flood:
                sock.close()
            assert send(peer, 100) == 0
        for _ in range(3):
            with wire.Wire(address) as newcomer:
                assert newcomer.call(GET_MAX_OFFSET, TOPIC).fields["offset"] == "101"
    finally:
        stop.set()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert not (tmp_path / "store" / "abort").exists()
    log = (tmp_path / "logs" / "rocketmqlogs" / "broker.log").read_text()
    assert "store broken" not in log
