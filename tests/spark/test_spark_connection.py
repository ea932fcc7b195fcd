"""The blocking connection: responses out of order, signatures, connections that break or send garbage."""

from __future__ import annotations

import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.errors import FrameError
from triomq.protocol.frame import FrameDecoder, encode_frame
from triomq.protocol.signature import is_signed_by
from triomq.remoting import blocking_connection
from triomq.spark.connection import CommandConnection, tls_context
from triomq.spark.errors import BrokerError, OptionError
from triomq.spark.options import SINK_OPTIONS, ConnectionOptions, OptionTable, connection_options


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A listener whose connections go to `serve`, each in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=run, args=(connection,), daemon=True).start()

    def run(connection: socket.socket) -> None:
        with connection, suppress(OSError):
            serve(connection)

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def requests(connection: socket.socket, count: int) -> list[RemotingCommand]:
    decoder = FrameDecoder()
    found: list[RemotingCommand] = []
    while len(found) < count and (data := connection.recv(65536)):
        found += decoder.feed(data)
    return found


def options(*name_servers: str, **more: Any) -> ConnectionOptions:
    return ConnectionOptions(name_servers, request_timeout_ms=2000, retry_timeout_ms=0, **more)


def test_answers_may_overtake_each_other() -> None:
    def serve(connection: socket.socket) -> None:
        for request in reversed(requests(connection, 3)):
            connection.sendall(encode_frame(new_response(request, 0, f"for {request.code}")))

    with server(serve) as address:
        connection = CommandConnection(address, options())
        numbers = connection.send(new_request(1), new_request(2), new_request(3))
        assert [connection.receive(number).remark for number in numbers] == ["for 1", "for 2", "for 3"]
        connection.close()


def test_requests_are_signed() -> None:
    def serve(connection: socket.socket) -> None:
        (request,) = requests(connection, 1)
        signed = is_signed_by(request.ext_fields or {}, request.body, "secret")
        connection.sendall(
            encode_frame(new_response(request, 0, f"{signed} {(request.ext_fields or {})['AccessKey']}"))
        )

    with server(serve) as address:
        connection = CommandConnection(address, options(access_key="me", secret_key="secret"))
        assert connection.call(new_request(1, ext_fields={"topic": "T"}, body=b"body")).remark == "True me"
        connection.close()


@pytest.mark.parametrize(("answer", "error"), [(b"", ConnectionError), (b"\x7f\xff\xff\xff", FrameError)])
def test_a_connection_that_is_of_no_more_use(answer: bytes, error: type[Exception]) -> None:
    def serve(connection: socket.socket) -> None:
        requests(connection, 1)
        connection.sendall(answer)

    with server(serve) as address:
        connection = CommandConnection(address, options())
        with pytest.raises(error):
            connection.call(new_request(1))
        connection.close()


def test_requests_that_wait_for_a_response_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking_connection, "MAX_IN_FLIGHT", 3)

    def serve(connection: socket.socket) -> None:
        for request in requests(connection, 4):
            if request.code != 9:
                connection.sendall(encode_frame(new_response(request, 0)))

    with server(serve) as address:
        connection = CommandConnection(address, options())
        numbers = connection.send(new_request(1), new_request(9, oneway=True), new_request(2), new_request(3))
        with pytest.raises(BrokerError, match=f"more than 3 requests to {address} are unanswered"):
            connection.send(new_request(4))
        for number in numbers[:1]:
            assert connection.receive(number).opaque == number
        connection.send(new_request(4))
        connection.close()


def test_a_response_that_nobody_waits_for_is_dropped() -> None:
    def serve(connection: socket.socket) -> None:
        (request,) = requests(connection, 1)
        stray = new_response(request, 0, "stray")
        stray.opaque = 77
        connection.sendall(encode_frame(stray) + encode_frame(request) + encode_frame(new_response(request, 0, "mine")))

    with server(serve) as address:
        connection = CommandConnection(address, options())
        assert connection.call(new_request(1)).remark == "mine"
        connection.close()


def test_a_response_that_comes_before_its_request_is_not_taken_for_it() -> None:
    def serve(connection: socket.socket) -> None:
        (request,) = requests(connection, 1)
        early = new_response(request, 0, "early")
        early.opaque = request.opaque + 1
        connection.sendall(encode_frame(early) + encode_frame(new_response(request, 0, "first")))
        (request,) = requests(connection, 1)
        connection.sendall(encode_frame(new_response(request, 0, "second")))

    with server(serve) as address:
        connection = CommandConnection(address, options())
        assert [connection.call(new_request(1)).remark for _ in range(2)] == ["first", "second"]
        connection.close()


@pytest.mark.parametrize("size", [0, 3, 2**24 + 1])
def test_a_frame_of_an_impossible_size_ends_the_connection(size: int) -> None:
    def serve(connection: socket.socket) -> None:
        requests(connection, 1)
        connection.sendall(size.to_bytes(4, "big") + bytes(16))

    with server(serve) as address:
        connection = CommandConnection(address, options())
        with pytest.raises(FrameError, match=f"announced a frame of {size} bytes"):
            connection.call(new_request(1))
        connection.close()


def test_a_silent_server_is_waited_for_as_long_as_the_option_says() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        connection = CommandConnection(address, ConnectionOptions((), request_timeout_ms=50))
        with pytest.raises(TimeoutError):
            connection.call(new_request(1))
        connection.close()


def test_the_secret_key_may_be_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    path.write_text("very-secret-1\n")

    def secret_of(**more: str) -> str | None:
        given = {"nameServer": "h:1", "accessKey": "sparkOwner", "secretKeyFile": str(path), **more}
        return connection_options(OptionTable(given, SINK_OPTIONS)).secret_key

    assert secret_of() == "very-secret-1"
    with pytest.raises(OptionError, match="secretKey and secretKeyFile are both given"):
        secret_of(secretKey="very-secret-1")
    path.chmod(0o644)
    with pytest.raises(OptionError, match=r"option secretKeyFile: .*permissions are 0644"):
        secret_of()


def test_the_context_of_tls_follows_the_options(tmp_path: Path) -> None:
    assert tls_context(options(tls=True)).verify_mode is ssl.CERT_NONE
    checking = tls_context(options(tls=True, tls_auth_server=True))
    assert (checking.verify_mode, checking.check_hostname) == (ssl.CERT_REQUIRED, False)
    with pytest.raises(OptionError, match=r"option tls.client: .*missing.pem"):
        tls_context(options(tls=True, tls_auth_server=True, tls_trust_path=str(tmp_path / "missing.pem")))
    with pytest.raises(OptionError, match=r"option tls.client: .*missing.pem"):
        tls_context(options(tls=True, tls_cert_path=str(tmp_path / "missing.pem")))


def test_an_executor_without_tls_loads_no_event_loop() -> None:
    code = "import sys, triomq.spark.cluster, triomq.spark.sending, triomq.spark.pulling; print('trio' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout == "False\n"
