"""Requests over real sockets: faulty peers, and the error that the command reports for each."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from free_ports import free_port

from triomq.admin import bodies
from triomq.admin.__main__ import main
from triomq.admin.errors import AdminError, NotFound, Unreachable, UsageError
from triomq.admin.session import Refused, Session, credentials_of_environment
from triomq.protocol.frame import FrameDecoder

Peer = Callable[[socket.socket], None]


@contextmanager
def listening(*peers: Peer) -> Iterator[str]:
    """Return an address where each connection goes to the next of `peers`."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)

        def serve() -> None:
            for peer in peers:
                connection, _ = server.accept()
                with connection:
                    connection.settimeout(10)
                    peer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)
        assert not thread.is_alive()


def read_request(connection: socket.socket) -> tuple[int, int]:
    """Return (code, opaque) of the next request."""
    return read_requests(connection, 1)[0]


def read_requests(connection: socket.socket, count: int) -> list[tuple[int, int]]:
    decoder = FrameDecoder()
    found: list[tuple[int, int]] = []
    while len(found) < count:
        found += [(command.code, command.opaque) for command in decoder.feed(connection.recv(65536))]
    return found


def response(opaque: int, code: int = 0, remark: str = "", body: bytes = b"") -> bytes:
    text = f'{{"code":{code},"opaque":{opaque},"flag":1,"language":"JAVA","version":407,"remark":"{remark}"}}'
    header = text.encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body


def responding(code: int = 0, remark: str = "", body: bytes = b"") -> Peer:
    def peer(connection: socket.socket) -> None:
        _, opaque = read_request(connection)
        connection.sendall(response(opaque, code, remark, body))

    return peer


# -- bodies ------------------------------------------------------------------------------------------------------------


def test_keys_without_quotes_are_read_as_fastjson_writes_them() -> None:
    value = bodies.loads(b'{"a":{0:"x:1", 1 :"y{2:3"},"b":[{-1:2}]}')
    assert value == {"a": {"0": "x:1", "1": "y{2:3"}, "b": [{"-1": 2}]}


@pytest.mark.parametrize("body", [b"", b"  ", b"<html>", b"{"])
def test_a_body_that_is_no_json_is_an_error_of_the_command(body: bytes) -> None:
    with pytest.raises(AdminError, match="response"):
        bodies.loads(body)


# -- peers that fail ---------------------------------------------------------------------------------------------------


def test_a_silent_peer_is_unreachable_after_the_time_limit() -> None:
    done = threading.Event()
    with listening(lambda connection: (read_request(connection), done.wait(10), None)[2]) as address:
        with Session(address, timeout_seconds=0.1) as session, pytest.raises(Unreachable, match=r"within 0\.1 s"):
            session.call(address, 28)
        done.set()


def test_a_peer_that_sends_byte_by_byte_does_not_get_more_time() -> None:
    done = threading.Event()

    def drip(connection: socket.socket) -> None:
        read_request(connection)
        while not done.wait(0.02):
            try:
                connection.sendall(b"\0")
            except OSError:
                return

    with listening(drip) as address:
        with Session(address, timeout_seconds=0.3) as session, pytest.raises(Unreachable):
            session.call(address, 28)
        done.set()


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with Session(address) as session, pytest.raises(Unreachable, match=f"cannot connect to {address}"):
        session.call(address, 28)


def test_a_peer_that_closes_in_the_middle_of_a_frame() -> None:
    def half(connection: socket.socket) -> None:
        _, opaque = read_request(connection)
        connection.sendall(response(opaque)[:20])

    with listening(half) as address, Session(address) as session, pytest.raises(Unreachable, match="broke: closed by"):
        session.call(address, 28)


@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\2{}", b"\x7f\xff\xff\xff"])
def test_a_peer_of_another_protocol(data: bytes) -> None:
    def other(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(data)

    reason = r"does not speak RocketMQ's protocol|broke"
    with listening(other) as address, Session(address) as session, pytest.raises(Unreachable, match=reason):
        session.call(address, 28)


def test_a_late_response_to_an_earlier_request_is_thrown_away() -> None:
    def late(connection: socket.socket) -> None:
        _, opaque = read_request(connection)
        connection.sendall(response(opaque - 1, body=b"old") + response(opaque, body=b"new"))

    with listening(late) as address, Session(address) as session:
        assert session.call(address, 28).body == b"new"


def test_a_response_that_comes_while_another_is_waited_for_is_kept() -> None:
    def both(connection: socket.socket) -> None:
        (_, first), (_, second) = read_requests(connection, 2)
        connection.sendall(response(first, body=b"first") + response(second, body=b"second"))

    with listening(both) as address, Session(address) as session:
        opaque = session.begin(address, 28)
        assert session.call(address, 28).body == b"second"
        kept = session.next_response(address)
        assert (kept.opaque, kept.body) == (opaque, b"first")


def test_a_request_of_the_broker_is_not_taken_for_a_response() -> None:
    def asking(connection: socket.socket) -> None:
        _, opaque = read_request(connection)
        connection.sendall(response(opaque, body=b"asks").replace(b'"flag":1', b'"flag":0'))
        connection.sendall(response(opaque, body=b"answers"))

    with listening(asking) as address, Session(address) as session:
        assert session.call(address, 28).body == b"answers"


def test_a_connection_that_failed_is_opened_again() -> None:
    with listening(lambda connection: None, responding(body=b"{}")) as address, Session(address) as session:
        with pytest.raises(Unreachable):
            session.call(address, 28)
        assert session.call(address, 28).body == b"{}"


def test_the_next_name_server_is_asked_when_one_cannot_be_reached() -> None:
    dead = f"127.0.0.1:{free_port()}"
    with listening(responding(body=b'{"topicList":["T"]}')) as address, Session(f"{dead};{address}") as session:
        assert session.ask_name_server(206).body == b'{"topicList":["T"]}'


def test_a_refusal_names_no_class_of_java() -> None:
    remark = (
        "org.apache.rocketmq.acl.common.AclException: No accessKey is configured, "
        "org.apache.rocketmq.acl.plain.PlainPermissionManager.validate(PlainPermissionManager.java:663)"
    )
    told = pytest.raises(Refused, match=r"refused: No accessKey is configured \(code 16\)")
    with listening(responding(16, remark)) as address, Session(address) as session, told as caught:
        session.call(address, 105, {"topic": "T"})
    assert (caught.value.remark, caught.value.exit_status) == (remark, 5)


def test_a_refusal_says_who_refused_and_why() -> None:
    with listening(responding(17, "no route")) as address, Session(address) as session:
        with pytest.raises(Refused, match=rf"{address} refused: no route \(code 17\)") as caught:
            session.call(address, 105, {"topic": "T"})
        assert caught.value.exit_status == NotFound.exit_status


def test_without_a_name_server_the_message_says_how_to_name_one() -> None:
    with Session("") as session, pytest.raises(UsageError, match="-n HOST:PORT or set NAMESRV_ADDR"):
        session.ask_name_server(206)


# -- the program -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ([], 0),
        (["help"], 0),
        (["help", "topicList"], 0),
        (["topicList", "-h"], 0),
        (["nosuch"], 2),
        (["help", "nosuch"], 2),
        (["topicRoute"], 2),
        (["topicList", "-z"], 2),
        (["topicList", "--output", "yaml"], 2),
        (["topicList", "--output"], 2),
        (["topicList", "--timeout", "soon"], 2),
        (["topicList", "--timeout", "0"], 2),
        (["topicList"], 2),
        (["brokerStatus", "-b", "nowhere"], 2),
        (["brokerStatus"], 2),
        (["topicList", "-n", "127.0.0.1:1"], 4),
    ],
)
def test_the_exit_status_says_what_went_wrong(
    words: list[str], status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert main(words) == status
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    assert bool(printed.err) == (status != 0 and words not in (["nosuch"], ["help", "nosuch"], ["brokerStatus"]))


def test_the_exit_status_of_java_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MQADMIN_EXIT_ZERO", "1")
    assert main(["topicList", "-n", "127.0.0.1:1"]) == 0
    assert main(["topicRoute"]) == 1


def test_a_topic_that_does_not_exist_exits_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    with listening(responding(17, "No topic route info")) as address:
        assert main(["topicRoute", "-t", "T", "-n", address]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "mqadmin topicRoute: no NameServer has a route of topic 'T': does it exist?\n"


def silent(connection: socket.socket) -> None:
    read_request(connection)
    connection.recv(1)  # until the other end gives up


def slow(connection: socket.socket) -> None:
    _, opaque = read_request(connection)
    connection.sendall(response(opaque)[:20])
    connection.recv(1)


def gone(connection: socket.socket) -> None:
    _, opaque = read_request(connection)
    connection.sendall(response(opaque)[:20])


@pytest.mark.parametrize(
    ("peer", "status", "says"),
    [
        (silent, 4, "did not respond within 0.2 s"),
        (slow, 4, "did not respond within 0.2 s"),
        (gone, 4, "broke: closed by the peer"),
        (responding(2, "[OVERLOAD]system busy, start flow control for a while"), 1, "refused: [OVERLOAD]system busy"),
        (responding(3, "request type 28 not supported"), 1, "refused: request type 28 not supported (code 3)"),
        (responding(16, "no permission"), 5, "refused: no permission (code 16)"),
        (responding(0, "", b"<html>"), 1, "is not JSON"),
    ],
    ids=["silent", "slow", "gone", "busy", "of-another-version", "forbidden", "nonsense"],
)
def test_each_way_in_which_a_broker_fails_is_one_sentence_and_its_exit_status(
    peer: Peer, status: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening(peer) as address:
        assert main(["brokerStatus", "-b", address, "--timeout", "0.2"]) == status
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("mqadmin brokerStatus: ")
    assert printed.err.count("\n") == 1
    assert says in printed.err


def test_a_command_that_one_of_two_brokers_refuses_exits_with_6_and_names_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with listening(responding()) as well, listening(responding(1, "the disk is full")) as ill:
        brokers = {
            name: {"brokerName": name, "cluster": "C", "brokerAddrs": {"0": address}}
            for name, address in (("a", ill), ("b", well))
        }
        info = json.dumps({"brokerAddrTable": brokers, "clusterAddrTable": {"C": ["a", "b"]}}).encode()
        with listening(responding(body=info)) as name_server:
            assert main(["updateSubGroup", "-g", "G", "-c", "C", "-n", name_server]) == 6
    printed = capsys.readouterr()
    assert f"create subscription group to {well} success." in printed.out
    assert printed.err == f"mqadmin updateSubGroup: {ill} refused: the disk is full (code 1)\n"


def test_global_options_stand_before_or_behind_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--output", "jsonl", "topicList"], ["topicList", "--output=jsonl"]):
        with listening(responding(body=b'{"topicList":["T"]}')) as address:
            assert main([*words, "-n", address]) == 0
        assert capsys.readouterr().out == '{"topic": "T"}\n'


def test_the_secret_of_the_account_may_be_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("MQADMIN_ACCESS_KEY", "MQADMIN_SECRET_KEY", "MQADMIN_SECRET_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)
    secret = tmp_path / "conf" / "secret"
    secret.parent.mkdir()
    secret.touch(mode=0o600)
    secret.write_text("very-secret-1\n")
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    assert credentials_of_environment() is None
    (tmp_path / "conf" / "tools.yml").write_text("accessKey: operator\nsecretKeyFile: secret\n")
    assert credentials_of_environment() == ("operator", "very-secret-1")
    monkeypatch.setenv("MQADMIN_ACCESS_KEY", "another")
    monkeypatch.setenv("MQADMIN_SECRET_KEY_FILE", str(secret))
    assert credentials_of_environment() == ("another", "very-secret-1")
    monkeypatch.setenv("MQADMIN_SECRET_KEY", "very-secret-2")
    with pytest.raises(UsageError, match="MQADMIN_SECRET_KEY and MQADMIN_SECRET_KEY_FILE are both set"):
        credentials_of_environment()
    monkeypatch.delenv("MQADMIN_SECRET_KEY")
    secret.chmod(0o644)
    with pytest.raises(UsageError, match="permissions are 0644"):
        credentials_of_environment()


def test_secrets_are_in_no_message(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("MQADMIN_ACCESS_KEY", "operator")
    monkeypatch.setenv("MQADMIN_SECRET_KEY", "very-secret-1")
    seen: list[dict[str, str]] = []

    def peer(connection: socket.socket) -> None:
        decoder = FrameDecoder()
        [command] = decoder.feed(connection.recv(65536))
        seen.append(dict(command.ext_fields or {}))
        connection.sendall(response(command.opaque, 1, "AclException: no"))

    with listening(peer) as address:
        assert main(["topicList", "-n", address]) == 5
    assert seen[0]["AccessKey"] == "operator"
    assert seen[0]["Signature"]
    printed = capsys.readouterr()
    assert "very-secret-1" not in printed.out + printed.err + str(seen)
