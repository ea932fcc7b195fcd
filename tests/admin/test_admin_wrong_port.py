"""Ports of other kinds of servers: mqadmin says in one line what listens there and which port to use."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from triomq.admin.__main__ import main
from triomq.admin.session import _OF_NAME_SERVERS, Session
from triomq.testing import LocalCluster

Capture = pytest.CaptureFixture[str]
SHORT = ["--timeout", "0.5"]


@pytest.fixture
def broker(cluster: LocalCluster) -> str:
    return cluster.brokers["broker-a"]


@pytest.fixture
def patient_http_server() -> Iterator[str]:
    """An HTTP server that responds to a whole request only, as most do."""
    ended = threading.Event()

    def respond(connection: socket.socket) -> None:
        with connection:
            connection.settimeout(10)
            data = b""
            while b"\r\n\r\n" not in data:
                received = connection.recv(1024)
                if not received:
                    return
                data += received
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")

    def accept() -> None:
        while True:
            connection, _ = server.accept()
            if ended.is_set():
                connection.close()
                return
            threading.Thread(target=respond, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        ended.set()
        socket.create_connection(server.getsockname()).close()
        thread.join(10)
        assert not thread.is_alive()


def ha_port_of(broker: str) -> str:
    host, _, port = broker.rpartition(":")
    return f"{host}:{int(port) + 1}"


@pytest.mark.parametrize("words", [["lag"], ["clusterList"], ["getNamesrvConfig"], ["topicRoute", "-t", "T"]])
def test_a_broker_in_place_of_a_name_server(words: list[str], broker: str, capsys: Capture) -> None:
    assert main([*words, "-n", broker]) == 4
    expected = f"{broker}: that is a broker's port, not a NameServer's: a NameServer's is usually 9876\n"
    assert capsys.readouterr().err.endswith(expected)


def test_a_name_server_in_place_of_a_broker(cluster: LocalCluster, capsys: Capture) -> None:
    address = cluster.name_server
    assert main(["brokerStatus", "-b", address, "-n", address]) == 4
    expected = f"{address}: that is a NameServer's port, not a broker's: a broker's is usually 10911\n"
    assert capsys.readouterr().err == f"mqadmin brokerStatus: {expected}"


@pytest.mark.parametrize("words", [["lag", "-n"], ["brokerStatus", "-b"]])
def test_the_ha_port(words: list[str], broker: str, capsys: Capture) -> None:
    address = ha_port_of(broker)
    assert main([*words, address, *SHORT]) == 4
    assert f"{address} did not respond within 0.5 s: that is the HA port of the broker at {broker}, " in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("words", [["lag", "-n"], ["brokerStatus", "-b"]])
def test_an_http_server_that_waits_for_a_whole_request(
    words: list[str], patient_http_server: str, capsys: Capture
) -> None:
    assert main([*words, patient_http_server, *SHORT]) == 4
    assert f"{patient_http_server} did not respond within 0.5 s: that is the port of an HTTP server" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("data", "what"),
    [(b"HTTP/1.1 400 Bad Request\r\n\r\n", "that is the port of an HTTP server"), (b"\x15\x03\x01\0\x02", "uses TLS")],
)
def test_a_server_that_refuses_in_its_own_protocol(data: bytes, what: str, capsys: Capture) -> None:
    def refuse() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(data)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        thread = threading.Thread(target=refuse, daemon=True)
        thread.start()
        assert main(["lag", "-n", f"127.0.0.1:{server.getsockname()[1]}"]) == 4
        thread.join(10)
    assert what in capsys.readouterr().err


def test_requests_of_name_servers_are_those_that_a_name_server_handles(cluster: LocalCluster) -> None:
    with Session(cluster.name_server) as session:
        codes = (*range(400), *range(30_000, 30_010))
        handled = {code for code in codes if session.request(cluster.name_server, code).code != 3}
    assert handled == _OF_NAME_SERVERS
