"""The stop of a NameServer: in every state of its connections, and with each of its parts failing."""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest
import structlog.testing
import trio
import trio.testing
from namesrv_fakes import broker_fields, registration

from triomq.daemon.errors import ExitCode
from triomq.daemon.run import report
from triomq.namesrv import controller
from triomq.namesrv.config import NamesrvSettings
from triomq.namesrv.controller import serve
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.frame import encode_frame
from triomq.remoting.certificates import ServerCertificates
from triomq.remoting.client import open_client
from triomq.remoting.config import ServerSettings
from triomq.remoting.scheduling.policy import INTERACTIVE_READS
from triomq.remoting.server import RemotingServer
from triomq.remoting.tls import TlsSettings

TLS = {"tls.server.mode": "permissive", "tls.test.mode.enable": "true"}


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0.05)


def all_topics() -> RemotingCommand:
    return new_request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)


def long_registration() -> bytes:
    """A registration that takes many steps."""
    topics = [f"a topic with a name that is long and has the number {number}" for number in range(3000)]
    fields = {**broker_fields(), "haServerAddr": "10.0.0.1:10912"}
    request = new_request(RequestCode.REGISTER_BROKER, body=registration(*topics).encode(), ext_fields=fields)
    return encode_frame(request)


class Clients:
    """Connections of one NameServer. They stay open until it closes them."""

    def __init__(self, port: int, stack: AsyncExitStack) -> None:
        self.port = port
        self.stack = stack
        self.streams: list[trio.SocketStream] = []

    async def connect(self) -> trio.SocketStream:
        stream = await self.stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", self.port))
        self.streams.append(stream)
        return stream

    async def silent(self) -> None:
        await self.connect()

    async def interactive(self) -> None:
        stream = await self.connect()
        for _ in range(INTERACTIVE_READS + 2):
            await stream.send_all(encode_frame(all_topics()))
            await stream.receive_some(4096)

    async def bulk(self) -> None:
        await (await self.connect()).send_all(encode_frame(all_topics()) * 500)

    async def steps(self) -> None:
        await (await self.connect()).send_all(long_registration() * 5)

    async def unread(self) -> None:
        await (await self.connect()).send_all(long_registration() + encode_frame(all_topics()) * 500)

    async def tls(self) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        stream = trio.SSLStream(await self.connect(), context)
        await stream.send_all(long_registration() * 5)

    async def half_of_a_handshake(self) -> None:
        await (await self.connect()).send_all(b"\x16\x03\x01")


STATES = [
    Clients.silent,
    Clients.interactive,
    Clients.bulk,
    Clients.steps,
    Clients.unread,
    Clients.tls,
    Clients.half_of_a_handshake,
]


async def stop_with(*states: Callable[[Clients], Awaitable[None]]) -> None:
    """Run a NameServer with connections in these states until they have sent all; stop it. Raises what it raises."""
    settings = ServerSettings(listen_port=0, bind_address="127.0.0.1")
    async with AsyncExitStack() as stack:
        try:
            async with trio.open_nursery() as nursery:
                run = partial(serve, NamesrvSettings(), settings, tls=TlsSettings.from_values(TLS))
                clients = Clients(await nursery.start(run), stack)
                for state in states:
                    await state(clients)
                async with open_client() as client:
                    assert (await client.invoke(f"127.0.0.1:{clients.port}", all_topics())).code == 0
                nursery.cancel_scope.cancel()
        finally:
            with trio.CancelScope(shield=True):
                await check_end(clients)


async def check_end(clients: Clients) -> None:
    """The NameServer has closed its port and all connections."""
    with pytest.raises(OSError, match=r"refused|attempts to connect"):
        await trio.open_tcp_stream("127.0.0.1", clients.port)
    for stream in clients.streams:
        try:
            while await stream.receive_some(1 << 16):
                pass
        except trio.BrokenResourceError:
            pass


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
async def test_a_stop_with_connections_in_this_state_ends_well(
    clock: trio.testing.MockClock, state: Callable[[Clients], Awaitable[None]]
) -> None:
    with structlog.testing.capture_logs() as logs:
        await stop_with(state)
    assert "NameServer shutdown begun" in [line["event"] for line in logs]
    assert not [line for line in logs if line["log_level"] in ("error", "critical")]


async def raises_later(*_: object) -> None:
    await trio.lowlevel.checkpoint()
    raise RuntimeError("boom")


async def raises_at_its_end(*_: object) -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise RuntimeError("boom")


FAILING: list[tuple[str, Any, str, Callable[..., Any]]] = [
    ("the background tasks", controller, "scan_silent_brokers", raises_at_its_end),
    ("the background tasks", controller, "log_kv_config", raises_at_its_end),
    ("the background tasks", ServerCertificates, "watch", raises_at_its_end),
    ("the connections", RemotingServer, "drain", raises_later),
    ("the connections", RemotingServer, "_sweep", raises_at_its_end),
]


@pytest.mark.parametrize(("part", "owner", "name", "fails"), FAILING, ids=[each[2] for each in FAILING])
async def test_a_part_that_fails_keeps_no_other_from_stopping(
    clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    owner: Any,
    name: str,
    fails: Callable[..., Any],
) -> None:
    monkeypatch.setattr(owner, name, fails)
    with structlog.testing.capture_logs() as logs, pytest.raises(BaseExceptionGroup) as caught:
        await stop_with(*STATES)
    assert caught.value.subgroup(RuntimeError) is not None
    assert report("mqnamesrv", caught.value) is ExitCode.FAILED
    assert [line["part"] for line in logs if line["event"] == "part failed"] == [part]
    assert "NameServer shutdown begun" in [line["event"] for line in logs]
