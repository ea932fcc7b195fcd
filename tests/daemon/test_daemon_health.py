"""The health command: only a daemon that responds to a request is healthy."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from free_ports import free_port

from triomq.broker.embedded import LocalCluster
from triomq.daemon import health
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.frame import FrameDecoder, encode_frame

Respond = Callable[[RemotingCommand], bytes]


@contextmanager
def peer(respond: Respond) -> Iterator[int]:
    """A server for one connection: it sends what `respond` returns for the request, and closes. Yields its port."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            decoder = FrameDecoder()
            while not (commands := decoder.feed(connection.recv(4096))):
                pass
            connection.sendall(respond(commands[0]))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


def test_a_real_cluster_is_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    with LocalCluster() as cluster:
        assert health.main(["namesrv", cluster.name_server]) == 0
        assert health.main(["broker", next(iter(cluster.brokers.values()))]) == 0
    printed = [line for line in capsys.readouterr().out.splitlines() if line.endswith("responds")]
    assert printed == ["namesrv responds", "broker responds"]


def test_a_response_in_pieces_after_a_request_of_the_daemon(capsys: pytest.CaptureFixture[str]) -> None:
    def respond(request: RemotingCommand) -> bytes:
        assert request.code == RequestCode.GET_BROKER_RUNTIME_INFO
        other = new_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
        other.opaque = request.opaque
        return encode_frame(other) + encode_frame(new_response(request, body=b"x" * 200_000))

    with peer(respond) as port:
        assert health.main(["broker", str(port)]) == 0


@pytest.mark.parametrize(
    ("code", "remark"),
    [(ResponseCode.NO_PERMISSION, "no"), (ResponseCode.SYSTEM_ERROR, "org.apache.rocketmq.acl.common.AclException: x")],
)
def test_a_refusal_by_access_control_is_a_response(code: int, remark: str) -> None:
    with peer(lambda request: encode_frame(new_response(request, code, remark))) as port:
        assert "access control" in health.ask("broker", ("127.0.0.1", port), timeout_seconds=10)


@pytest.mark.parametrize(
    ("respond", "reason"),
    [
        (lambda request: encode_frame(new_response(request, 2, "[PC_SYNCHRONIZED]broker busy")), "code 2: .*busy"),
        (lambda request: b"", "without a response"),
        (lambda request: b"HTTP/1.0 400 Bad Request\r\n\r\n", "the port of an HTTP server"),
        (lambda request: encode_frame(request), "without a response"),
    ],
)
def test_other_responses_are_not_healthy(respond: Respond, reason: str) -> None:
    with peer(respond) as port, pytest.raises(health.Unhealthy, match=reason):
        health.ask("broker", ("127.0.0.1", port), timeout_seconds=10)


def test_an_open_port_is_not_enough(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert health.main(["broker", str(silent.getsockname()[1]), "--timeout", "0.05"]) == 1
    assert "is not healthy: timed out" in capsys.readouterr().err


def test_a_closed_port(capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    assert health.main(["namesrv", f"127.0.0.1:{port}"]) == 1
    assert f"namesrv at 127.0.0.1:{port} is not healthy: " in capsys.readouterr().err


@pytest.mark.parametrize("arguments", ["", "broker", "x 1", "broker port", "broker 1 --timeout 0"])
def test_wrong_arguments_are_1_because_docker_reserves_2(arguments: str) -> None:
    assert health.main(arguments.split()) == 1


def page_peer(status: str, body: str) -> Iterator[int]:
    """A server for one HTTP request. Yields its port."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            received = b""
            while b"\r\n\r\n" not in received:
                received += connection.recv(4096)
            assert received.startswith(b"GET /health/ready HTTP/1.1\r\n")
            head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n"
            connection.sendall((head + body).encode())

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


REPORT = (
    '{"status": "not ready", "checks": [{"name": "a", "ok": true, "detail": "x"}, '
    '{"name": "disk", "ok": false, "detail": "full"}]}'
)


@pytest.mark.parametrize(
    ("status", "body", "code", "text"),
    [
        ("200 OK", '{"status": "ready", "checks": []}', 0, "the daemon is ready"),
        ("503 Service Unavailable", REPORT, 1, "is not healthy: disk: full"),
        ("503 Service Unavailable", "no report", 1, "is not healthy: HTTP status 503"),
        ("404 Not Found", '{"checks": [3]}', 1, "is not healthy: HTTP status 404"),
    ],
)
def test_a_daemon_is_as_ready_as_its_page_says(
    capsys: pytest.CaptureFixture[str], status: str, body: str, code: int, text: str
) -> None:
    with contextmanager(page_peer)(status, body) as port:
        assert health.main(["ready", str(port)]) == code
    printed = capsys.readouterr()
    assert text in printed.out + printed.err
    assert health.main(["ready", str(port)]) == 1
