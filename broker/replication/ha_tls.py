"""TLS of the HA port, for both sides: a master accepts it, a slave asks for it.

RocketMQ's replication is plain, so it is off unless `tls.ha.mode` says otherwise. Files, passwords and test mode are
those of the tls.server.* keys on the accepting side and of the tls.client.* keys on the other; tls.ha.* adds what
replication alone needs:

    a master   may require a certificate of its slaves, and one of the names that it lists
    a slave    always checks the master's certificate, and that it names the host that the slave connects to
               (or tls.ha.masterName); only test mode checks nothing

A link has its place among those of the HA port before the handshake begins, and the handshake has a time limit.
"""

from __future__ import annotations

from typing import Final

import trio

from triomq.broker.settings.ha_tls import HaTlsSettings
from triomq.remoting import network
from triomq.remoting.certificates import names_of
from triomq.remoting.handshake import HANDSHAKE_BYTE, HandshakeFailed, HandshakeLog, shake_hands
from triomq.remoting.link_tls import LinkTls, LinkTlsMode
from triomq.remoting.tls import TlsSettings

SLAVE_HANDSHAKE_SECONDS: Final = 3.0

PLAIN_REFUSED: Final = (
    "it does not use TLS, and tls.ha.mode is enforcing here: set tls.ha.enable=true at the slave, or "
    "tls.ha.mode=permissive here"
)
NO_TLS_HERE: Final = (
    "it begins with a TLS handshake, and tls.ha.mode is disabled here: set it to permissive or enforcing, or "
    "tls.ha.enable=false at the slave"
)


class HaTls(LinkTls):
    """The TLS of one broker's links, made of its settings. Run `watch` beside them. Touched only on the event loop."""

    def __init__(self, settings: HaTlsSettings, tls: TlsSettings, *, is_slave: bool) -> None:
        """Raises TlsError if a slave's files cannot be used."""
        super().__init__(settings, tls, accepts="HA port", dials="to the master's HA port" if is_slave else "")
        self._master_name = settings.master_name
        self._refused = HandshakeLog("link to the HA port refused")

    @property
    def accepts_tls(self) -> bool:
        return self.accepting is not None

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        """Open a slave's stream to its master. Raises OSError, which says what to do about TLS."""
        stream = await network.connect(host, port)
        if self.dialing is None:
            return stream
        try:
            name = self._master_name or host
            secure = trio.SSLStream(stream, self.dialing.current(), server_hostname=name, https_compatible=True)
            await shake_hands(secure, SLAVE_HANDSHAKE_SECONDS)
        except BaseException:
            await trio.aclose_forcefully(stream)
            raise
        return secure

    async def accept(self, stream: trio.abc.Stream, remote: str) -> trio.abc.Stream:
        """Return the stream of a peer of the HA port, with TLS if the peer asks for it; else one that serves the same
        bytes as `stream`. Raises HandshakeFailed, logged here. The caller bounds the wait for the first byte."""
        if self.accepting is None:
            return stream
        first = await _first_bytes(stream)
        begun = BegunStream(stream, first)
        try:
            if first[:1] != bytes([HANDSHAKE_BYTE]):
                if first and self.mode is LinkTlsMode.enforcing:
                    raise HandshakeFailed(PLAIN_REFUSED)
                return begun
            return await self._secure(begun)
        except HandshakeFailed as error:
            self._refused.failed(remote, str(error))
            raise

    async def _secure(self, begun: BegunStream) -> trio.abc.Stream:
        assert self.accepting is not None
        context = await self.accepting.context()
        if context is None:
            raise HandshakeFailed("no certificate can be used here; an earlier line says why")
        secure = trio.SSLStream(begun, context, server_side=True, https_compatible=True)
        await shake_hands(secure)
        fault = self.names_fault(names_of(secure.getpeercert()))
        if fault is not None:
            raise HandshakeFailed(fault)
        return secure


class BegunStream(trio.abc.Stream):
    """A stream whose first bytes were read already; they come first here."""

    def __init__(self, stream: trio.abc.Stream, first: bytes) -> None:
        self._stream = stream
        self._first = first

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        if not self._first:
            return await self._stream.receive_some(max_bytes)
        await trio.lowlevel.checkpoint()
        count = len(self._first) if max_bytes is None else max_bytes
        part, self._first = self._first[:count], self._first[count:]
        return part

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _first_bytes(stream: trio.abc.Stream) -> bytes:
    """Return what arrives first; nothing if the peer closes. One byte tells TLS from a report."""
    try:
        return bytes(await stream.receive_some(1))
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return b""
