"""What the hot path benchmark has in place of clients: transports without a network, and a NameServer's table."""

from __future__ import annotations

import socket
import ssl
from typing import cast

from triomq.namesrv.brokers import BrokerKey
from triomq.namesrv.config import NamesrvSettings
from triomq.namesrv.kv_config import KvConfig
from triomq.namesrv.processor import NamesrvProcessor
from triomq.namesrv.routes import RouteTable
from triomq.namesrv.runtime_config import RuntimeConfig
from triomq.protocol.bodies.topic_config import DataVersion, TopicConfig
from triomq.protocol.command import RemotingCommand
from triomq.protocol.frame import FrameDecoder
from triomq.remoting.config import ServerSettings
from triomq.remoting.connection import Connection
from triomq.remoting.handshake import Secured
from triomq.remoting.poller import Poller
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.tls_transport import TlsTransport

_WITHOUT_CERTIFICATE = "AECDH-AES256-SHA:@SECLEVEL=0"


class Dropped:
    """A transport that discards everything at once and counts the bytes. While `kept` is a list, it gets them."""

    def __init__(self) -> None:
        self.taken_bytes = 0
        self.kept: list[bytes] | None = None

    def write(self, data: bytes) -> None:
        self.taken_bytes += len(data)
        if self.kept is not None:
            self.kept.append(data)

    def write_pieces(self, pieces: list[bytes]) -> None:
        self.taken_bytes += sum(map(len, pieces))
        if self.kept is not None:
            self.kept += pieces

    def responses(self) -> list[RemotingCommand]:
        """Return what was kept, and keep nothing more."""
        data, self.kept = b"".join(self.kept or []), None
        return FrameDecoder().feed(data)

    def pause_reading(self) -> None:
        raise RuntimeError("nothing here is ever full")

    def resume_reading(self) -> None:
        raise RuntimeError("nothing here is ever full")

    def close(self) -> None:
        pass


class _Socket:
    """A socket whose peer is a variable: `recv` returns `data`, and what is sent is discarded."""

    data = b""

    def recv(self, limit_bytes: int) -> bytes:
        return self.data

    def send(self, data: bytes) -> int:
        return len(data)

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        pass


class TlsPeer:
    """The client of a TLS connection, and the transport of the other side. Both have done their handshake, with keys
    that no certificate vouches for."""

    def __init__(self, poller: Poller, connection: Connection) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = _context(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        self._tls = context.wrap_bio(self._incoming, self._outgoing)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        secured = Secured(
            _context(ssl.PROTOCOL_TLS_SERVER).wrap_bio(incoming, outgoing, server_side=True), incoming, outgoing, b""
        )
        self._shake_hands(secured)
        self._socket = _Socket()
        self._transport = TlsTransport(poller, cast(socket.socket, self._socket), connection, secured)
        connection.transport = self._transport

    def _shake_hands(self, secured: Secured) -> None:
        is_done = False
        while not is_done:
            is_done = True
            for tls in (self._tls, secured.tls):
                try:
                    tls.do_handshake()
                except ssl.SSLWantReadError:
                    is_done = False
                secured.incoming.write(self._outgoing.read())
                self._incoming.write(secured.outgoing.read())

    def encrypted(self, data: bytes) -> bytes:
        """Return the records of what the client sends next."""
        at = 0
        while at < len(data):
            at += self._tls.write(data[at:])
        return self._outgoing.read()

    def receive(self, records: bytes) -> int:
        """Let the transport read these records. Return the number of requests in them."""
        self._socket.data = records
        self._transport.readable(0.0)
        return self._transport.requests


def _context(protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # later ones always have a certificate
    context.set_ciphers(_WITHOUT_CERTIFICATE)
    return context


def name_server_table(topics: list[str]) -> ProcessorTable:
    """Return the processors of a NameServer that has these topics of one broker."""
    routes = RouteTable()
    routes.register(
        BrokerKey("DefaultCluster", "broker-a", 0, "127.0.0.1:10911", ""),
        ha_address="127.0.0.1:10912",
        data_version=DataVersion(),
        topics={topic: TopicConfig(topic_name=topic) for topic in topics},
        filter_servers=[],
        owner=None,
        now=0,
    )
    table = ProcessorTable()
    NamesrvProcessor(routes, KvConfig(None), RuntimeConfig(NamesrvSettings(), ServerSettings())).register_all(table)
    return table
