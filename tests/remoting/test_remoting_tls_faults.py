"""What both sides say when a TLS connection cannot be made, how long that takes, and certificates that change."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trio
import trio.testing
from tls_authority import Authority, needs_openssl
from trio.testing import MockClock

from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.remoting import network
from triomq.remoting.certificates import SETTLE_SECONDS, ClientCertificates, ServerCertificates, Watched
from triomq.remoting.client import open_client
from triomq.remoting.config import ServerSettings
from triomq.remoting.connection import Connection
from triomq.remoting.errors import ConnectFailed, RemotingError
from triomq.remoting.handshake import LINES_PER_SECOND, HandshakeLog
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.server import RemotingServer
from triomq.remoting.tls import TlsError, TlsSettings, client_context, make_server_context
from triomq.remoting.turn import Turn

ECHO = 1
REAL = {"tls.test.mode.enable": "false"}


def echo(_: Connection, request: RemotingCommand) -> RemotingCommand:
    return new_response(request, body=request.body)


class Keys:
    """An authority, and the keys of a server and of clients that it signs."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.stranger = Authority(directory, "stranger")

    def server(self, pair: tuple[str, str] | None = None, **more: str) -> dict[str, str]:
        certificate, key = pair or self.authority.issue("server")
        return {**REAL, "tls.server.certPath": certificate, "tls.server.keyPath": key, **_dotted(more)}

    def client(self, pair: tuple[str, str] | None = None, **more: str) -> dict[str, str]:
        own = {"tls.client.certPath": pair[0], "tls.client.keyPath": pair[1]} if pair else {}
        trust = {"tls.client.authServer": "true", "tls.client.trustCertPath": str(self.authority.certificate)}
        return {**REAL, **trust, **own, **_dotted(more)}


def _dotted(values: dict[str, str]) -> dict[str, str]:
    return {key.replace("_", "."): text for key, text in values.items()}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"))


@asynccontextmanager
async def serving(values: dict[str, str]) -> AsyncIterator[str]:
    tls = TlsSettings.from_values(values)
    server = RemotingServer(ServerSettings(), Turn(), tls_mode=tls.mode, tls_context=ServerCertificates(tls).context)
    table = ProcessorTable()
    table.register(ECHO, echo)
    port = server.bind(0, table)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve)
        yield f"127.0.0.1:{port}"
        nursery.cancel_scope.cancel()


async def asked(address: str, context: Any, seconds: float = 10) -> str:
    """Return what the server echoes, or the error."""
    async with open_client(tls_context=context) as client:
        try:
            return (await client.invoke(address, new_request(ECHO, body=b"hello"), seconds)).body.decode()
        except RemotingError as error:
            return f"{type(error).__name__}: {error}"


async def tried(server: dict[str, str], client: dict[str, str] | None) -> tuple[str, str]:
    """Connect once; return what the client reports and what the server logs. Another client is served meanwhile."""
    with structlog.testing.capture_logs() as logs:
        async with serving(server) as address:
            tls = client_context(TlsSettings.from_values(client)) if client is not None else None
            result = await asked(address, tls)
            await trio.testing.wait_all_tasks_blocked(0.02)
    return result, " | ".join(f"{entry['event']}: {entry.get('error')}" for entry in logs)


# -- what is said ------------------------------------------------------------------------------------------------------


@needs_openssl
@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("authority", "not signed by an authority that this side trusts"),
        ("expired", "has expired: renew it"),
        ("name", "for another name"),
    ],
)
async def test_a_client_says_what_is_wrong_with_the_server(keys: Keys, case: str, says: str) -> None:
    pairs = {
        "authority": lambda: keys.stranger.issue("server-of-stranger"),
        "expired": lambda: keys.authority.issue("server-of-old", days=-1),
        "name": lambda: keys.authority.issue("server-elsewhere", names="DNS:elsewhere.example"),
    }
    more = {"tls_client_checkServerName": "true"} if case == "name" else {}
    result, _ = await tried(keys.server(pairs[case]()), keys.client(**more))
    assert result.startswith("ConnectFailed: connect to 127.0.0.1:")
    assert says in result


@needs_openssl
async def test_names_are_checked_on_request_only(keys: Keys) -> None:
    elsewhere = keys.authority.issue("server-elsewhere-too", names="DNS:elsewhere.example")
    assert (await tried(keys.server(elsewhere), keys.client()))[0] == "hello"
    assert (await tried(keys.server(), keys.client(tls_client_checkServerName="true")))[0] == "hello"


@needs_openssl
@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("none", "presented no certificate, and this side requires one"),
        ("authority", "not signed by an authority that this side trusts"),
        ("expired", "has expired: renew it"),
    ],
)
async def test_a_server_says_what_is_wrong_with_the_client(keys: Keys, case: str, says: str) -> None:
    pairs = {
        "none": lambda: None,
        "authority": lambda: keys.stranger.issue("client-of-stranger"),
        "expired": lambda: keys.authority.issue("client-of-old", days=-1),
    }
    server = keys.server(
        tls_server_authClient="true",
        tls_server_need_client_auth="require",
        tls_server_trustCertPath=str(keys.authority.certificate),
    )
    result, logged = await tried(server, keys.client(pairs[case]()))
    assert "hello" not in result
    assert "TLS handshake failed: " in logged
    assert says in logged


@needs_openssl
async def test_both_sides_say_when_only_one_uses_tls(keys: Keys) -> None:
    result, logged = await tried({**keys.server(), "tls.server.mode": "disabled"}, keys.client())
    assert "perhaps TLS is disabled there" in result
    assert "connection closed for a malformed frame: it begins with a TLS handshake, and tls.server.mode" in logged
    result, logged = await tried({**keys.server(), "tls.server.mode": "enforcing"}, None)
    assert "ConnectionClosed" in result
    assert "connection without TLS closed: it does not use TLS, and tls.server.mode is enforcing" in logged


async def test_a_peer_that_answers_without_tls_is_named(keys: Keys) -> None:
    async def plain(stream: trio.abc.Stream) -> None:
        await stream.send_all(b"HTTP/1.0 400 Bad Request\r\n\r\n")

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, plain, 0)
        port = listeners[0].socket.getsockname()[1]
        assert "what the peer sent is not TLS" in await asked(f"localhost:{port}", client_context(TlsSettings()))
        nursery.cancel_scope.cancel()


def test_failures_do_not_fill_the_log() -> None:
    now = [0.0]
    failures = HandshakeLog("TLS handshake failed", lambda: now[0])
    with structlog.testing.capture_logs() as logs:
        for _ in range(1000):
            failures.failed("192.0.2.7:4000", "why")
        assert len(logs) == LINES_PER_SECOND
        now[0] = 1.5
        failures.failed("192.0.2.7:4000", "why")
    assert logs[-1]["not_logged"] == 1000 - LINES_PER_SECOND


# -- how long it takes -------------------------------------------------------------------------------------------------


class SilentHost:
    """A network whose peers accept every connection and say nothing."""

    def __init__(self) -> None:
        self.ends: list[trio.StapledStream] = []

    async def connect(self, host: str, port: int) -> network.SimulatedStream:
        near, far = trio.testing.memory_stream_pair()
        self.ends.append(far)
        return Wire(near)

    def listen(self, port: int) -> network.SimulatedListener:
        raise OSError("nothing listens here")


class Wire(network.SimulatedStream):
    """A memory stream with addresses."""

    def __init__(self, stream: trio.StapledStream) -> None:
        from triomq.protocol.address import HostPort

        self.remote, self.local = HostPort("10.0.0.1", 1), HostPort("10.0.0.2", 2)
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._stream.receive_some(max_bytes)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def test_a_handshake_without_response_ends_in_time(autojump_clock: MockClock) -> None:
    host = SilentHost()
    token = network.simulated.set(host)
    try:
        async with open_client(tls_context=client_context(TlsSettings())) as client:
            began = trio.current_time()
            with pytest.raises(ConnectFailed, match="no response to the TLS handshake within 2 s"):
                await client.invoke("10.0.0.1:1", new_request(ECHO), 2)
            assert trio.current_time() - began == pytest.approx(2, abs=0.01)
            assert client.connection("10.0.0.1:1") is None
            [peer] = host.ends
            assert (await peer.receive_some(1)).startswith(b"\x16")
            while await peer.receive_some():  # the rest of the greeting; then the client has closed
                pass
    finally:
        network.simulated.reset(token)


# -- certificates that change ------------------------------------------------------------------------------------------


@needs_openssl
async def test_a_certificate_for_the_same_key_counts_alone(keys: Keys, tmp_path: Path) -> None:
    certificate, key = keys.authority.issue("renewed-twice")
    copy = shutil.copyfile(certificate, tmp_path / "c.pem")
    certificates = ServerCertificates(TlsSettings.from_values(keys.server((str(copy), key))))
    before = await certificates.context()
    assert not await certificates.refresh()
    shutil.copyfile(keys.authority.issue("renewed-twice", key=key)[0], copy)
    assert await certificates.refresh()
    assert await certificates.context() is not before


@needs_openssl
async def test_a_certificate_without_its_key_is_an_error_after_a_while(
    keys: Keys, tmp_path: Path, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def here(function: Any) -> Any:
        return function()

    monkeypatch.setattr(trio.to_thread, "run_sync", here)  # the clock would jump while a thread works
    certificate, key = keys.authority.issue("replaced")
    copies = [str(shutil.copyfile(path, tmp_path / Path(path).name)) for path in (certificate, key)]
    certificates = ServerCertificates(TlsSettings.from_values(keys.server((copies[0], copies[1]))))
    before = await certificates.context()
    new_certificate, new_key = keys.authority.issue("replacing")
    shutil.copyfile(new_certificate, copies[0])
    with structlog.testing.capture_logs() as logs:
        assert not await certificates.refresh()
        await trio.sleep(SETTLE_SECONDS - 0.1)
        assert not await certificates.refresh()
        assert logs == []
        await trio.sleep(0.2)
        assert await certificates.refresh()
        assert not await certificates.refresh()
    assert [entry["event"] for entry in logs] == ["TLS context not made"]
    assert logs[0]["consequence"] == "the previous certificate stays in use"
    assert await certificates.context() is before
    shutil.copyfile(new_key, copies[1])
    assert await certificates.refresh(), "the key may come later than that"
    assert await certificates.context() is not before


@needs_openssl
async def test_a_client_takes_new_files(keys: Keys, tmp_path: Path) -> None:
    trust = tmp_path / "trust.pem"
    shutil.copyfile(keys.stranger.certificate, trust)
    values = {**keys.client(), "tls.client.trustCertPath": str(trust)}
    dialing = ClientCertificates(TlsSettings.from_values(values))
    async with serving(keys.server()) as address:
        assert "not signed" in await asked(address, dialing.current)
        shutil.copyfile(keys.authority.certificate, trust)
        assert await dialing.refresh()
        assert await asked(address, dialing.current) == "hello"
        trust.write_text("this is not a certificate")
        with structlog.testing.capture_logs() as logs:
            assert await dialing.refresh()
        assert [(entry["event"], entry["connections"]) for entry in logs] == [("TLS context not made", "outgoing")]
        assert await asked(address, dialing.current) == "hello"


@needs_openssl
async def test_a_client_presents_its_new_certificate(keys: Keys, tmp_path: Path) -> None:
    server = keys.server(
        tls_server_authClient="true",
        tls_server_need_client_auth="require",
        tls_server_trustCertPath=str(keys.authority.certificate),
    )
    copies = [
        str(shutil.copyfile(path, tmp_path / f"own{number}"))
        for number, path in enumerate(keys.stranger.issue("client-before"))
    ]
    dialing = ClientCertificates(TlsSettings.from_values(keys.client((copies[0], copies[1]))))
    async with serving(server) as address:
        assert "hello" not in await asked(address, dialing.current)
        for path, copy in zip(keys.authority.issue("client-after"), copies, strict=True):
            shutil.copyfile(path, copy)
        assert await dialing.refresh()
        assert await asked(address, dialing.current) == "hello"


async def test_two_first_connections_share_one_context() -> None:
    made: list[ssl.SSLContext] = []

    def make() -> ssl.SSLContext:
        made.append(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        return made[-1]

    watched = Watched("test", make)
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(watched.context)
    assert len(made) == 1


def test_half_a_pair_is_an_error(keys: Keys) -> None:
    with pytest.raises(TlsError, match=r"tls\.client\.certPath and tls\.client\.keyPath belong together"):
        client_context(TlsSettings.from_values({**REAL, "tls.client.keyPath": "/etc/key.pem"}))


# -- passwords in files ------------------------------------------------------------------------------------------------


@needs_openssl
async def test_a_password_may_be_in_a_file_that_changes_with_the_key(keys: Keys, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.touch(mode=0o600)
    password.write_text("first password\n")
    pair = keys.authority.issue("locked", "first password")
    copies = [str(shutil.copyfile(path, tmp_path / Path(path).name)) for path in pair]
    certificates = ServerCertificates(
        TlsSettings.from_values({**keys.server((copies[0], copies[1])), "tls.server.keyPasswordFile": str(password)})
    )
    before = await certificates.context()
    assert before is not None
    for path, copy in zip(keys.authority.issue("locked-again", "second password"), copies, strict=True):
        shutil.copyfile(path, copy)
    password.write_text("second password\n")
    assert await certificates.refresh()
    assert await certificates.context() is not before


@needs_openssl
@pytest.mark.parametrize("side", ["server", "client"])
def test_a_password_file_is_checked(keys: Keys, tmp_path: Path, side: str) -> None:
    certificate, key = keys.authority.issue(f"locked-{side}", "a secret word")
    path = tmp_path / "password"
    values = {
        **REAL,
        f"tls.{side}.certPath": certificate,
        f"tls.{side}.keyPath": key,
        f"tls.{side}.keyPasswordFile": str(path),
    }
    make = make_server_context if side == "server" else client_context

    def fault(**more: str) -> str:
        with pytest.raises(TlsError) as caught:
            make(TlsSettings.from_values({**values, **_dotted(more)}))
        assert "a secret word" not in str(caught.value)
        return str(caught.value)

    assert f"keyPasswordFile {path} cannot be read: No such file" in fault()
    path.touch(mode=0o600)
    path.write_text("a secret word")
    make(TlsSettings.from_values(values))
    assert f"tls.{side}.keyPassword and tls.{side}.keyPasswordFile are both set" in fault(
        **{f"tls_{side}_keyPassword": "a secret word"}
    )
    path.chmod(0o644)
    assert "permissions are 0644" in fault()
