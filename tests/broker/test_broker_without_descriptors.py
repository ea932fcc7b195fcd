"""Daemons as processes that have no descriptor left: their logs have no traceback, and afterwards they serve."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from broker_whole import ANSWER_SECONDS, pull_fields, send_fields
from free_ports import free_port

from triomq.protocol.command import new_request
from triomq.protocol.errors import ProtocolError
from triomq.remoting.client import RemotingClient, open_client
from triomq.remoting.errors import RemotingError

SOURCE = Path(__file__).resolve().parents[2] / "src"
FLOOD = 30
SEND, PULL, PUT_KV, GET_KV, REGISTERED = 10, 11, 100, 101, 105
Request = tuple[int, Mapping[str, object]]

SETTINGS = {
    "broker": "brokerIP1=127.0.0.1\nbrokerIP2=127.0.0.1\nnamesrvAddr=127.0.0.1:1\n"
    "mappedFileSizeConsumeQueue=20000\nmaxIndexNum=2000\n",
    "namesrv": "bindAddress=127.0.0.1\n",
}
ASKED: dict[str, list[Request]] = {
    "broker": [
        *((SEND, send_fields(f"T{number}")) for number in range(30)),
        *((PULL, pull_fields(f"T{number}")) for number in range(30)),
    ],
    "namesrv": [
        *((PUT_KV, {"namespace": "n", "key": f"k{number}", "value": "v"}) for number in range(30)),
        (GET_KV, {"namespace": "n", "key": "k1"}),
    ],
}


@contextmanager
def daemon(name: str, home: Path, ports: dict[str, int]) -> Iterator[subprocess.Popen[str]]:
    text = SETTINGS[name] + "".join(f"{key}={port}\n" for key, port in ports.items())
    (home / "daemon.conf").write_text(text)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(SOURCE)}
    process = subprocess.Popen(
        [sys.executable, "-m", f"triomq.{name}", "-c", "daemon.conf"],
        env=environment,
        cwd=home,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.stdout is not None
        assert "boot success" in process.stdout.readline()
        yield process
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def connections(ports: list[int]) -> list[socket.socket]:
    """Connect to each port many times; the kernel accepts them, whether or not the daemon does."""
    return [socket.create_connection(("127.0.0.1", port), 5) for port in ports for _ in range(FLOOD)]


async def code_of(client: RemotingClient, address: str, request: Request) -> int | None:
    """Return the code of the response, None if there is no connection."""
    texts = {name: str(value) for name, value in request[1].items()}
    try:
        return (await client.invoke(address, new_request(request[0], ext_fields=texts), ANSWER_SECONDS)).code
    except (RemotingError, ProtocolError):
        return None


@pytest.mark.parametrize("name", ["broker", "namesrv"])
async def test_without_descriptors_the_log_has_no_traceback_and_after_the_flood_all_is_served(
    tmp_path: Path, name: str
) -> None:
    ports = {key: free_port() for key in ("listenPort", "metricsPort")}
    flooded = [*ports.values()] + [ports["listenPort"] + 1] * (name == "broker")  # the port of replication
    address = f"127.0.0.1:{ports['listenPort']}"
    with daemon(name, tmp_path, ports) as process:
        async with open_client() as client:
            assert await code_of(client, address, ASKED[name][0]) is not None
            limits = take_descriptors(process.pid)
            flood = connections(flooded)
            answers = [await code_of(client, address, request) for request in ASKED[name]]
            assert len(answers) == len(ASKED[name])
            for sock in flood:
                sock.close()
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, limits)
        logs = texts_of_logs(tmp_path)
        refused = [line for text in logs for line in text.splitlines() if "not accepted" in line]
        assert refused and all("Too many open files" in line and "LimitNOFILE=" in line for line in refused)
        assert len(refused) == len({port_of(line) for line in refused}), "one line for each port"
        assert [text for text in logs if "Traceback" in text] == []
        async with open_client() as client:
            while await code_of(client, address, ASKED[name][1]) != 0:
                assert process.poll() is None
        with closing(socket.create_connection(("127.0.0.1", ports["metricsPort"]), ANSWER_SECONDS)) as page:
            page.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b" 200 " in page.makefile("rb").readline()


def take_descriptors(pid: int) -> tuple[int, int]:
    """Leave the process no descriptor above those that it has. Return its limits from before."""
    used = max(int(fd.name) for fd in Path(f"/proc/{pid}/fd").iterdir())
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    return resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 1, hard))


def port_of(line: str) -> str:
    """Return the field port of a line; the port of replication has none."""
    return line.partition(" port=")[2].partition(" ")[0]


def texts_of_logs(home: Path) -> list[str]:
    return [path.read_text() for path in home.rglob("*.log")]
