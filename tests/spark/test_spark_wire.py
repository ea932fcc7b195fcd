"""The blocking connection: answers out of order, signatures, connections that break or talk nonsense."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.errors import FrameError
from triomq.protocol.frame import FrameDecoder, encode_frame
from triomq.protocol.signature import is_signed_by
from triomq.spark.cluster import Cluster
from triomq.spark.errors import BrokerError, OptionError
from triomq.spark.options import ConnectionOptions
from triomq.spark.wire import WireConnection


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """A listener whose connections are handed to `serve`, each in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=run, args=(connection,), daemon=True).start()

    def run(connection: socket.socket) -> None:
        with connection:
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


def options(*name_servers: str, **more: str) -> ConnectionOptions:
    return ConnectionOptions(name_servers, request_timeout_ms=2000, retry_timeout_ms=0, **more)  # type: ignore[arg-type]


def test_answers_may_overtake_each_other() -> None:
    def serve(connection: socket.socket) -> None:
        for request in reversed(requests(connection, 3)):
            connection.sendall(encode_frame(new_response(request, 0, f"for {request.code}")))

    with server(serve) as address:
        connection = WireConnection(address, options())
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
        connection = WireConnection(address, options(access_key="me", secret_key="secret"))
        assert connection.call(new_request(1, ext_fields={"topic": "T"}, body=b"body")).remark == "True me"
        connection.close()


@pytest.mark.parametrize(("answer", "error"), [(b"", ConnectionError), (b"\x7f\xff\xff\xff", FrameError)])
def test_a_connection_that_is_of_no_more_use(answer: bytes, error: type[Exception]) -> None:
    def serve(connection: socket.socket) -> None:
        requests(connection, 1)
        connection.sendall(answer)

    with server(serve) as address:
        connection = WireConnection(address, options())
        with pytest.raises(error):
            connection.call(new_request(1))
        connection.close()


def test_the_next_name_server_is_asked_and_missing_topics_are_named() -> None:
    def serve(connection: socket.socket) -> None:
        while found := requests(connection, 1):
            request = found[0]
            code, body = (
                (17, b"") if request.code == 105 else (0, b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"h:1"}}}}')
            )
            connection.sendall(encode_frame(new_response(request, code, body=body)))

    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead = f"127.0.0.1:{closed.getsockname()[1]}"
    with server(serve) as address, Cluster(options(dead, address)) as cluster:
        assert cluster.brokers() == {"b": "h:1"}
        with pytest.raises(OptionError, match="topic 'T' does not exist"):
            cluster.route("T")
    with Cluster(options(dead)) as cluster, pytest.raises(BrokerError, match="no name server answered"):
        cluster.topics()
