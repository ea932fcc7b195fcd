"""TLS handshakes of both sides: bounded in time, and with an error that says what is wrong and what to do.

shake_hands       perform one within a number of seconds; HandshakeFailed carries the sentence
secure            the same for a socket that the poller will serve (tls_transport)
explained         that sentence for an error of OpenSSL, also for one that a later read or write meets: with TLS 1.3
                  a client learns at its first read that the server refused its certificate
HandshakeLog      the failures of peers that connect to this side, in a bounded number of lines
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import trio
from msgspec import Struct

from triomq.remoting.line_limit import LineLimit
from triomq.remoting.log import get_logger

log = get_logger("triomq.remoting.tls")

HANDSHAKE_BYTE: Final = 0x16
"""The first byte of a TLS connection."""
_TLS_BEGIN: Final = b"\x16\x03"
HANDSHAKE_SECONDS: Final = 10
_RECEIVE_BYTES: Final = 16 * 1024
LINES_PER_SECOND: Final = 20

NO_TLS_HERE: Final = (
    "it begins with a TLS handshake, and tls.server.mode is disabled here: set it to permissive or enforcing, or turn "
    "TLS off at the peer (tls.enable=false)"
)
PLAIN_REFUSED: Final = (
    "it does not use TLS, and tls.server.mode is enforcing here: turn TLS on at the peer (tls.enable=true), or set "
    "tls.server.mode=permissive"
)

_EXPIRED, _NOT_YET_VALID = 10, 9
_NOT_TRUSTED = frozenset({18, 19, 20, 21})
_OTHER_NAME = frozenset({62, 64})
"""Codes of OpenSSL's certificate checks (X509_V_ERR_*)."""

_PEER_DISTRUSTS = (
    "the peer does not accept the certificate of this side: it has to be signed by an authority that the peer's trust "
    "file (trustCertPath) holds"
)
_NO_TLS = (
    "what the peer sent is not TLS: turn TLS on at the peer (tls.server.mode, for replication tls.ha.mode), or off "
    "here (tls.enable=false, tls.ha.enable=false)"
)
_CLOSED = "the peer closed the connection during the TLS handshake: its log says why; perhaps TLS is disabled there"
_PEER_WANTS_CERTIFICATE = (
    "the peer requires a certificate of this side: set tls.client.certPath and tls.client.keyPath here"
)
_REASONS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer presented no certificate, and this side requires one: set "
    "tls.client.certPath and tls.client.keyPath at the peer",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": _PEER_WANTS_CERTIFICATE,
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "the peer refused the handshake: it may require a certificate of this side "
    "(tls.client.certPath, tls.client.keyPath), or have no protocol version in common",
    "TLSV1_ALERT_UNKNOWN_CA": _PEER_DISTRUSTS,
    "SSLV3_ALERT_BAD_CERTIFICATE": _PEER_DISTRUSTS,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _PEER_DISTRUSTS,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the peer says that the certificate of this side has expired: renew it",
    "WRONG_VERSION_NUMBER": _NO_TLS,
    "RECORD_LAYER_FAILURE": _NO_TLS,
    "HTTP_REQUEST": _NO_TLS,
    "UNSUPPORTED_PROTOCOL": "the peer offers no TLS version that is considered safe: it needs TLS 1.2 or newer",
}


class HandshakeFailed(OSError):
    """A TLS connection cannot be made. The text says what is wrong and what to do."""


class Secured(Struct, frozen=True):
    """OpenSSL's state of one connection after its handshake. It reads what the peer sent from `incoming` and writes to
    `outgoing`. `tickets` must be sent before anything else that it writes, and not before there is something else."""

    tls: ssl.SSLObject
    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    tickets: bytes


async def shake_hands(stream: trio.SSLStream[Any], seconds: float = HANDSHAKE_SECONDS) -> None:
    """Perform the handshake. Raises HandshakeFailed; the caller closes the stream.

    It is raised once the error of OpenSSL is forgotten: the frames of the two would keep each other alive, and
    with them the stream, until the garbage collector runs, which is seldom."""
    try:
        with trio.fail_after(seconds):
            await stream.do_handshake()
        return
    except trio.TooSlowError:
        failure = _no_response(seconds)
    except (trio.BrokenResourceError, OSError) as error:
        failure = _failure(error)
    raise HandshakeFailed(failure)


async def secure(
    sock: socket.socket, context: ssl.SSLContext, outgoing: ssl.MemoryBIO, seconds: float = HANDSHAKE_SECONDS
) -> Secured:
    """Perform the handshake of the accepting side over a non-blocking socket. Raises HandshakeFailed as above; the
    caller closes the socket. Others may use `outgoing`, too: it is empty at every await, and after an error."""
    incoming = ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=True)
    try:
        with trio.fail_after(seconds):
            while True:
                is_done = _continue(sock, tls, outgoing)
                tickets = b""
                if is_done and tls.version() == "TLSv1.3":
                    # The peer has all it needs. One that only sends and then closes would leave the session tickets
                    # unread, and its kernel would then reset the connection, with what was sent and not yet read here.
                    tickets = outgoing.read()
                await _send_all(sock, outgoing.read())
                if is_done:
                    return Secured(tls, incoming, outgoing, tickets)
                data = await _receive(sock)
                if data:
                    incoming.write(data)
                else:
                    incoming.write_eof()
    except trio.TooSlowError:
        failure = _no_response(seconds)
    except OSError as error:
        failure = _failure(error)
    raise HandshakeFailed(failure)


def _continue(sock: socket.socket, tls: ssl.SSLObject, outgoing: ssl.MemoryBIO) -> bool:
    """Take the handshake as far as possible. Return whether it is done. Raises SSLError, and tells the peer why if the
    socket takes that now."""
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return False
    except ssl.SSLError:
        with suppress(OSError):
            sock.send(outgoing.read())
        raise
    return True


async def _send_all(sock: socket.socket, data: bytes) -> None:
    while data:
        try:
            data = data[sock.send(data) :]
        except BlockingIOError:
            await trio.lowlevel.wait_writable(sock)


async def _receive(sock: socket.socket) -> bytes:
    while True:
        await trio.lowlevel.wait_readable(sock)
        with suppress(BlockingIOError):
            return sock.recv(_RECEIVE_BYTES)


def _no_response(seconds: float) -> str:
    return f"no response to the TLS handshake within {seconds:g} s: perhaps the peer does not speak TLS"


def _failure(error: BaseException) -> str:
    cause = error.__cause__ or error
    if isinstance(cause, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionResetError | BrokenPipeError):
        return f"{_CLOSED} ({cause})"
    return explained(error)


def begins_tls(data: bytes | bytearray) -> bool:
    """Return whether the first bytes of a connection are those of a TLS handshake. A frame that begins with them would
    have 369 MB, a report of a slave would be of an offset above an exabyte."""
    return data[:2] == _TLS_BEGIN


def explained(error: BaseException) -> str:
    """Return what is wrong and what to do, with OpenSSL's own words behind it; other errors as they are."""
    cause = error.__cause__ or error
    sentence = _sentence(cause)
    return f"{sentence} ({cause})" if sentence else str(cause)


def _sentence(cause: BaseException) -> str | None:
    if isinstance(cause, ssl.SSLCertVerificationError):
        if cause.verify_code == _EXPIRED:
            return "the certificate of the peer has expired: renew it there"
        if cause.verify_code == _NOT_YET_VALID:
            return "the certificate of the peer is not valid yet: compare the clocks of both machines"
        if cause.verify_code in _OTHER_NAME:
            return (
                "the certificate of the peer is for another name: issue it for the address that is used here "
                "(subjectAltName), or for replication set tls.ha.masterName to the name it has"
            )
        if cause.verify_code in _NOT_TRUSTED:
            return (
                "the certificate of the peer is not signed by an authority that this side trusts: see the trust file "
                "of this side (tls.client.trustCertPath for connections it opens, tls.server.trustCertPath for others)"
            )
        return "the certificate of the peer is not accepted"
    if isinstance(cause, ssl.SSLError):
        return _REASONS.get(cause.reason or "")
    return None


def frame_fault(error: BaseException, data: bytes) -> str:
    """Return what is wrong with a malformed frame in `data`; a TLS handshake is the frequent case that has a remedy."""
    return NO_TLS_HERE if begins_tls(data) else str(error)


class HandshakeLog:
    """Logs why peers were refused. At most LINES_PER_SECOND lines."""

    def __init__(self, event: str, clock: Callable[[], float] = trio.current_time) -> None:
        self._event = event
        self._clock = clock
        self._limit: LineLimit | None = None

    def failed(self, remote: str, error: str) -> None:
        """Log one failure, or count it for a later line."""
        if self._limit is None:  # a clock that needs a running event loop
            self._limit = LineLimit(LINES_PER_SECOND, self._clock)
        left_out = self._limit.take()
        if left_out is None:
            return
        more = {"not_logged": left_out} if left_out else {}
        log.warning(self._event, remote=remote, error=error, **more)
