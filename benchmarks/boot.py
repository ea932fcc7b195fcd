"""Measure start-up time and idle memory of both daemons.

    bin/dev/bench-boot [--runs 5] [--settle-seconds 2]

For each daemon: seconds from starting the process to its first answer to a request (best and median of the runs), and
its resident memory some seconds after that. The NameServer's request asks for the cluster; the broker's is a message
of one line, sent as a raw frame to a topic that is created by it. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
GIVE_UP_SECONDS = 30.0
POLL_SECONDS = 0.001

GET_BROKER_CLUSTER_INFO = 106
SEND_MESSAGE = 10


@dataclass
class Measurement:
    seconds_to_answer: float
    idle_rss_bytes: int


def frame(code: int, fields: dict[str, str], body: bytes = b"") -> bytes:
    """Return a frame: length int32 | serialize type and header length int32 | JSON header | body."""
    header = json.dumps(
        {"code": code, "extFields": fields, "flag": 0, "language": "OTHER", "opaque": 1, "version": 407}
    ).encode()
    return struct.pack(">ii", 4 + len(header) + len(body), len(header)) + header + body


def message_frame() -> bytes:
    fields = {
        "producerGroup": "bench",
        "topic": "BenchBoot",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "1",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": str(int(time.time() * 1000)),
        "flag": "0",
        "properties": "",
    }
    return frame(SEND_MESSAGE, fields, b"first message")


def receive(connection: socket.socket, size: int) -> bytes:
    parts = b""
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionError("closed")
        parts += part
    return parts


def answer(port: int, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send one request over a new connection. Return response code, fields and body."""
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(request)
        (length,) = struct.unpack(">i", receive(connection, 4))
        rest = receive(connection, length)
    header_end = 4 + (struct.unpack(">i", rest[:4])[0] & 0xFFFFFF)
    header = json.loads(rest[4:header_end])
    return header["code"], header.get("extFields") or {}, rest[header_end:]


def answer_code(port: int, request: bytes) -> int:
    """Send one request over a new connection. Return the response code."""
    return answer(port, request)[0]


def resident_bytes(pid: int) -> int:
    """Return the resident memory of one process in bytes, 0 if the system does not report it."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        for line in status.read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
    done = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False)
    if done.returncode == 0 and done.stdout.strip():
        return int(done.stdout) * 1024
    return 0


def free_port() -> int:
    """Return a port whose neighbours two below and one above are also free: a broker uses all three."""
    while True:
        with socket.create_server(("", 0)) as first:
            port: int = first.getsockname()[1]
            try:
                with socket.create_server(("", port - 2)), socket.create_server(("", port + 1)):
                    return port
            except (OSError, OverflowError):
                continue


def measure(script: str, config: str, port: int, request: bytes, settle_seconds: float) -> Measurement:
    with tempfile.TemporaryDirectory() as home:
        path = Path(home) / "daemon.conf"
        path.write_text(f"listenPort={port}\n{config.format(home=home)}")
        environment = {**os.environ, "HOME": home, "TRIOMQ_LOG_DIR": f"{home}/logs"}
        environment.pop("NAMESRV_ADDR", None)
        began = time.perf_counter()
        process = subprocess.Popen(
            [str(PROJECT / "bin" / script), "-c", str(path)], env=environment, stdout=subprocess.DEVNULL
        )
        try:
            wait_for_success(process, port, request, began)
            taken = time.perf_counter() - began
            time.sleep(settle_seconds)
            return Measurement(taken, resident_bytes(process.pid))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=GIVE_UP_SECONDS)


def wait_for_success(process: subprocess.Popen[bytes], port: int, request: bytes, began: float) -> None:
    while True:
        if process.poll() is not None:
            raise SystemExit(f"the daemon ended with exit code {process.returncode}")
        if time.perf_counter() - began > GIVE_UP_SECONDS:
            raise SystemExit(f"no response within {GIVE_UP_SECONDS:g} s")
        try:
            if answer_code(port, request) == 0:
                return
        except OSError:
            pass
        time.sleep(POLL_SECONDS)


def report(name: str, measurements: list[Measurement]) -> None:
    seconds = [measurement.seconds_to_answer for measurement in measurements]
    memory = max(measurement.idle_rss_bytes for measurement in measurements) / (1 << 20)
    print(
        f"{name:<10} first answer after {min(seconds):.3f} s (best), {statistics.median(seconds):.3f} s (median of "
        f"{len(seconds)}); idle RSS {memory:.1f} MiB"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Boot to first answer, and idle memory, of both daemons.")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--settle-seconds", type=float, default=2.0)
    options = parser.parse_args()
    cluster_question = frame(GET_BROKER_CLUSTER_INFO, {})
    report(
        "NameServer",
        [measure("mqnamesrv", "", free_port(), cluster_question, options.settle_seconds) for _ in range(options.runs)],
    )
    broker_config = "storePathRootDir={home}/store\nbrokerIP1=127.0.0.1\n"
    report(
        "broker",
        [
            measure("mqbroker", broker_config, free_port(), message_frame(), options.settle_seconds)
            for _ in range(options.runs)
        ],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
