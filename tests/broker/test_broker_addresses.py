"""The addresses that clients receive, and NameServers found through an address server: with real daemons."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import trio
from free_ports import free_port

from triomq.protocol.command import RemotingCommand, new_request
from triomq.remoting.client import open_client
from triomq.remoting.errors import RemotingError

PROJECT = Path(__file__).resolve().parents[2]
CLUSTER_INFO = 106
ROUTE = 105


@contextmanager
def daemon(module: str, folder: Path, keys: dict[str, str], *properties: str) -> Iterator[None]:
    """Start a daemon with its own home; `properties` are system properties as in JAVA_OPT."""
    conf = folder / f"{module}.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    environment = dict(os.environ, PYTHONPATH=str(PROJECT / "src"), HOME=str(folder), JAVA_OPT=" ".join(properties))
    environment.pop("NAMESRV_ADDR", None)
    with (folder / f"{module}.out").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", f"triomq.{module}", "-c", str(conf)], env=environment, stdout=output, stderr=output
        )
    try:
        wait_for(lambda: b"boot success" in (folder / f"{module}.out").read_bytes(), 20, f"{module} is up")
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        threading.Event().wait(0.05)


def ask(address: str, code: int, **fields: str) -> RemotingCommand | None:
    """Return the response, or None if nothing listens there."""

    async def main() -> RemotingCommand | None:
        async with open_client() as client:
            try:
                return await client.invoke(address, new_request(code, ext_fields=fields), 5)
            except RemotingError:
                return None

    return trio.run(main)


def registered(name_server: str) -> str | None:
    """Return the address of broker-a that the NameServer returns."""
    answer = ask(name_server, CLUSTER_INFO)
    if answer is None or answer.code != 0:
        return None
    text = answer.body.decode().replace("{0:", '{"0":')
    table = json.loads(text)["brokerAddrTable"]
    return str(table["broker-a"]["brokerAddrs"]["0"]) if "broker-a" in table else None


def broker_keys(folder: Path, port: int, **more: str) -> dict[str, str]:
    small = {"mappedFileSizeCommitLog": "1048576", "storePathRootDir": str(folder / "store")}
    return {"listenPort": str(port), "brokerName": "broker-a", **small, **more}


@pytest.fixture(scope="module")
def name_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return its address. A broker that stops cleanly disappears from it."""
    folder = tmp_path_factory.mktemp("name_server")
    port = free_port()
    with daemon("namesrv", folder, {"listenPort": str(port), "kvConfigPath": str(folder / "kv.json")}):
        yield f"127.0.0.1:{port}"


def test_without_broker_ip1_clients_are_told_an_address_that_they_reach(tmp_path: Path, name_server: str) -> None:
    port = free_port()
    with daemon("broker", tmp_path, broker_keys(tmp_path, port, namesrvAddr=name_server)):
        told = registered(name_server)
        assert told is not None
        assert told.endswith(f":{port}")
        answer = ask(told, 28)
    assert answer is not None, f"nobody answers at {told}"
    assert answer.code == 0


def test_broker_ip1_is_what_clients_are_told(tmp_path: Path, name_server: str) -> None:
    """As behind NAT: the address may belong to another machine, and may be a host name."""
    port = free_port()
    with daemon("broker", tmp_path, broker_keys(tmp_path, port, namesrvAddr=name_server, brokerIP1="203.0.113.7")):
        assert registered(name_server) == f"203.0.113.7:{port}"
        assert ask(f"127.0.0.1:{port}", 28) is not None
    with daemon("broker", tmp_path, broker_keys(tmp_path, port, namesrvAddr=name_server, brokerIP1="localhost")):
        wait_for(lambda: registered(name_server) == f"localhost:{port}", 10, "the name is registered")
        assert ask(f"localhost:{port}", 28) is not None


class AddressList(BaseHTTPRequestHandler):
    """Responds to GET /rocketmq/nsaddr with the list."""

    answer = ""
    asked: list[str] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{self.answer}\n".encode())

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def test_the_name_servers_come_from_the_address_server(tmp_path: Path, name_server: str) -> None:
    AddressList.answer = name_server
    AddressList.asked.clear()
    http = HTTPServer(("127.0.0.1", 0), AddressList)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    keys = broker_keys(tmp_path, free_port(), brokerIP1="127.0.0.1", fetchNamesrvAddrByAddressServer="true")
    try:
        with daemon("broker", tmp_path, keys, f"-Drocketmq.namesrv.domain=127.0.0.1:{http.server_port}"):
            wait_for(lambda: registered(name_server) is not None, 60, "the broker found its NameServer")
    finally:
        http.shutdown()
        http.server_close()
    assert AddressList.asked[0] == "/rocketmq/nsaddr"
