"""TLS over loopback sockets: modes, test mode, client certificates, certificates that change under open connections."""

from __future__ import annotations

import gc
import shutil
import socket
import ssl
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trio
import trio.testing
from tls_authority import Authority, needs_openssl

from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.frame import encode_frame
from triomq.remoting import tls
from triomq.remoting.certificates import ServerCertificates
from triomq.remoting.client import RemotingClient, open_client
from triomq.remoting.config import ServerSettings
from triomq.remoting.connection import Connection
from triomq.remoting.errors import RemotingError
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.server import RemotingServer
from triomq.remoting.tls import TlsError, TlsSettings, client_context, make_server_context
from triomq.remoting.turn import Turn

ECHO = 1


def echo(_: Connection, request: RemotingCommand) -> RemotingCommand:
    return new_response(request, body=request.body)


def settings(**values: str | None) -> TlsSettings:
    """Return settings from keys with underscores for dots: tls_server_mode="enforcing"."""
    return TlsSettings.from_values({key.replace("_", "."): text for key, text in values.items() if text is not None})


def server_values(authority: Authority, name: str = "server", password: str | None = None) -> dict[str, str | None]:
    certificate, key = authority.issue(name, password)
    return {
        "tls_test_mode_enable": "false",
        "tls_server_certPath": certificate,
        "tls_server_keyPath": key,
        "tls_server_keyPassword": password,
    }


@asynccontextmanager
async def serving(values: TlsSettings) -> AsyncIterator[tuple[str, ServerCertificates]]:
    turn = Turn()
    certificates = ServerCertificates(values)
    server = RemotingServer(ServerSettings(), turn, tls_mode=values.mode, tls_context=certificates.context)
    table = ProcessorTable()
    table.register(ECHO, echo)
    port = server.bind(0, table)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve)
        yield f"127.0.0.1:{port}", certificates
        nursery.cancel_scope.cancel()


async def ask(client: RemotingClient, address: str, body: bytes = b"hello") -> bytes:
    return (await client.invoke(address, new_request(ECHO, body=body), 5)).body


async def is_served(address: str, context: ssl.SSLContext | None) -> bool:
    async with open_client(tls_context=context) as client:
        try:
            return await ask(client, address) == b"hello"
        except RemotingError:
            return False


def test_keys_and_their_defaults() -> None:
    plain = settings()
    assert (plain.mode, plain.is_test_mode, plain.client_auth) == ("permissive", True, ssl.CERT_NONE)
    assert not plain.use_for_clients()
    assert settings(tls_server_mode="nonsense").mode == "permissive"
    assert settings(tls_server_mode="enforcing").use_for_clients()
    assert not settings(tls_server_mode="enforcing", tls_enable="false").use_for_clients()
    assert settings(tls_enable="true").use_for_clients()
    assert not settings(tls_enable="true").use_for_clients(False)
    real = {"tls_test_mode_enable": "false", "tls_server_authClient": "true"}
    for text, wanted in (("REQUIRE", ssl.CERT_REQUIRED), ("Optional", ssl.CERT_OPTIONAL), ("x", ssl.CERT_NONE)):
        assert (
            TlsSettings.from_values(
                {**{key.replace("_", "."): value for key, value in real.items()}, "tls.server.need.client.auth": text}
            ).client_auth
            is wanted
        )
    secret = TlsSettings.from_values({"tls.server.keyPassword": "a-secret", "tls.client.keyPassword": "a-secret"})
    assert "a-secret" not in repr(secret)


@needs_openssl
async def test_test_mode_serves_both_kinds_on_one_port() -> None:
    async with serving(settings()) as (address, certificates):
        assert not certificates._is_tried, "no certificate is made before it is needed"
        assert await is_served(address, None)
        assert not certificates._is_tried
        assert await is_served(address, client_context(settings()))
        first = await certificates.context()
        assert await is_served(address, client_context(settings()))
        assert await certificates.context() is first, "one certificate for the life of the server"


@needs_openssl
async def test_a_first_rush_makes_one_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[TlsSettings] = []
    make = make_server_context

    def counted(values: TlsSettings, client_auth: ssl.VerifyMode | None = None) -> ssl.SSLContext:
        made.append(values)
        return make(values, client_auth)

    monkeypatch.setattr(tls, "make_server_context", counted)
    async with serving(settings()) as (address, _), trio.open_nursery() as nursery:
        for _ in range(5):
            nursery.start_soon(is_served, address, client_context(settings()))
    assert len(made) == 1


@needs_openssl
@pytest.mark.parametrize("is_handshake", [True, False])
async def test_what_a_closed_connection_had_is_freed_without_the_collector(
    monkeypatch: pytest.MonkeyPatch, is_handshake: bool
) -> None:
    """Each holds some 36 KiB, and daemons run the garbage collector rarely."""
    freed = trio.Event()
    wrap_bio = ssl.SSLContext.wrap_bio

    def wrap_watched_bio(*arguments: Any, **more: Any) -> Any:
        tls = wrap_bio(*arguments, **more)
        weakref.finalize(tls, freed.set)
        return tls

    def come_and_go(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as plain:
            if not is_handshake:
                plain.sendall(b"\x16 no handshake")
                return
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            with context.wrap_socket(plain) as peer:
                peer.sendall(encode_frame(new_request(ECHO)))
                assert peer.recv(65536)

    monkeypatch.setattr(ssl.SSLContext, "wrap_bio", wrap_watched_bio)
    async with serving(settings()) as (address, _):
        gc.collect()
        gc.disable()
        try:
            await trio.to_thread.run_sync(come_and_go, int(address.rpartition(":")[2]))
            with trio.fail_after(30):
                await freed.wait()
        finally:
            gc.enable()


async def test_disabled_and_enforcing() -> None:
    if shutil.which("openssl"):
        async with serving(settings(tls_server_mode="enforcing")) as (address, _):
            assert not await is_served(address, None)
            assert await is_served(address, client_context(settings()))
    async with serving(settings(tls_server_mode="disabled")) as (address, _):
        assert await is_served(address, None)
        assert not await is_served(address, client_context(settings()))


async def test_without_openssl_there_is_a_line_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls, "_OPENSSL", ("no-such-program-here",))
    with structlog.testing.capture_logs() as logs:
        async with serving(settings()) as (address, _):
            assert not await is_served(address, client_context(settings()))
            assert not await is_served(address, client_context(settings()))
            assert await is_served(address, None)
    errors = [entry for entry in logs if entry["log_level"] == "error"]
    assert len(errors) == 1
    assert "openssl" in errors[0]["error"]


@needs_openssl
async def test_own_certificates_are_checked_by_clients_that_want_to(tmp_path: Path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    values = server_values(authority, password="open sesame")
    real = {"tls_test_mode_enable": "false", "tls_client_authServer": "true"}
    async with serving(settings(**values)) as (address, _):
        assert await is_served(
            address, client_context(settings(**real, tls_client_trustCertPath=str(authority.certificate)))
        )
        assert not await is_served(
            address, client_context(settings(**real, tls_client_trustCertPath=str(stranger.certificate)))
        )
        assert await is_served(address, client_context(settings(tls_test_mode_enable="false")))


@needs_openssl
@pytest.mark.parametrize(
    ("auth", "checks", "without", "with_own", "with_strange"),
    [
        ("none", "true", True, True, True),
        ("optional", "true", True, True, False),
        ("require", "true", False, True, False),
        ("require", "false", True, True, True),
    ],
)
async def test_client_certificates(
    tmp_path: Path, auth: str, checks: str, without: bool, with_own: bool, with_strange: bool
) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    values = {
        **{key.replace("_", "."): text for key, text in server_values(authority).items() if text is not None},
        "tls.server.need.client.auth": auth,
        "tls.server.authClient": checks,
        "tls.server.trustCertPath": str(authority.certificate),
    }
    own, strange = authority.issue("client"), stranger.issue("strange")
    async with serving(TlsSettings.from_values(values)) as (address, _):
        for pair, expected in ((None, without), (own, with_own), (strange, with_strange)):
            certificate, key = pair or (None, None)
            context = client_context(
                settings(tls_test_mode_enable="false", tls_client_certPath=certificate, tls_client_keyPath=key)
            )
            # With TLS 1.3 a client learns only at its first read that its certificate is refused.
            assert await is_served(address, context) == expected, (auth, checks, pair)


async def presented(address: str) -> bytes:
    """Return the certificate that a new connection receives."""
    host, _, port = address.partition(":")
    stream = await trio.open_tcp_stream(host, int(port))
    secure = trio.SSLStream(stream, client_context(settings()), server_hostname=host)
    await secure.do_handshake()
    certificate = secure.getpeercert(binary_form=True)
    await secure.aclose()
    assert certificate is not None
    return bytes(certificate)


@needs_openssl
async def test_changed_files_count_for_new_connections_and_old_ones_live_on(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    values = server_values(authority)
    new_certificate, new_key = authority.issue("renewed")
    certificate, key = str(values["tls_server_certPath"]), str(values["tls_server_keyPath"])
    async with (
        serving(settings(**values)) as (address, certificates),
        open_client(tls_context=client_context(settings())) as client,
    ):
        assert await ask(client, address) == b"hello"
        connection = client.connection(address)
        before = await presented(address)
        assert not await certificates.refresh()

        shutil.copyfile(new_certificate, certificate)
        assert not await certificates.refresh(), "a certificate alone, without its key, is not taken"
        assert await presented(address) == before

        shutil.copyfile(new_key, key)
        assert await certificates.refresh()
        renewed = await presented(address)
        assert renewed != before
        assert await ask(client, address, b"still here") == b"still here"
        assert client.connection(address) is connection

        shutil.copyfile(authority.certificate, certificate)
        shutil.copyfile(new_certificate, key)
        with structlog.testing.capture_logs() as logs:
            assert await certificates.refresh()
        assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == ["TLS context not made"]
        assert await presented(address) == renewed, "what cannot be used leaves the former one in force"


@needs_openssl
async def test_a_changed_trust_file_counts_at_once(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    trust = tmp_path / "trust.pem"
    shutil.copyfile(authority.certificate, trust)
    values = TlsSettings.from_values(
        {
            **{key.replace("_", "."): text for key, text in server_values(authority).items() if text is not None},
            "tls.server.need.client.auth": "require",
            "tls.server.authClient": "true",
            "tls.server.trustCertPath": str(trust),
        }
    )
    certificate, key = other.issue("client")
    context = client_context(
        settings(tls_test_mode_enable="false", tls_client_certPath=certificate, tls_client_keyPath=key)
    )
    async with serving(values) as (address, certificates):
        assert not await is_served(address, context)
        shutil.copyfile(other.certificate, trust)
        assert await certificates.refresh()
        assert await is_served(address, context)


async def test_files_are_looked_at_twice_a_second(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = ServerCertificates(settings(tls_test_mode_enable="false", tls_server_certPath=str(tmp_path / "c")))
    looks: list[float] = []

    async def look() -> bool:
        looks.append(trio.current_time())
        return False

    async def make() -> None:
        looks.append(-1)

    monkeypatch.setattr(certificates, "refresh", look)
    monkeypatch.setattr(certificates, "context", make)
    with trio.move_on_after(2.1):
        await certificates.watch()
    assert looks == [-1, 0.5, 1, 1.5, 2], "read at the start, then watched"


async def test_nothing_is_watched_without_files(autojump_clock: trio.testing.MockClock) -> None:
    with trio.fail_after(1):
        await ServerCertificates(settings()).watch()
        await ServerCertificates(settings(tls_server_mode="disabled", tls_test_mode_enable="false")).watch()


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, "tls.server.certPath"),
        ({"tls_server_certPath": "/nowhere/c.pem", "tls_server_keyPath": "/nowhere/k.pem"}, "/nowhere/c.pem"),
    ],
)
def test_what_is_missing_is_named(values: dict[str, str], text: str) -> None:
    with pytest.raises(TlsError, match=text):
        make_server_context(settings(tls_test_mode_enable="false", **values))


@needs_openssl
def test_a_wrong_password_is_an_error_and_no_question(tmp_path: Path) -> None:
    values = server_values(Authority(tmp_path), password="right")
    for password in ("wrong", None):
        with pytest.raises(TlsError, match="cannot be used"):
            make_server_context(settings(**{**values, "tls_server_keyPassword": password}))
