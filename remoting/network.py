"""The network below connections: the system's TCP, or one that a simulation supplies.

A simulation enters its hosts with `simulated.set(host)` in the task that starts a server or a client; the tasks that it
starts inherit the host. Everywhere else the variable is empty, and the functions here use trio and the system.
"""

from __future__ import annotations

import socket
from contextvars import ContextVar
from typing import Protocol

import trio

from triomq.protocol.address import HostPort


class SimulatedStream(trio.abc.Stream):
    """A stream that knows its two ends."""

    remote: HostPort
    local: HostPort


class SimulatedListener(trio.abc.Listener[SimulatedStream]):
    """A port of a simulated host."""

    port: int

    def close(self) -> None:
        """Stop listening; open connections continue."""


class SimulatedHost(Protocol):
    """One host of a simulated network."""

    async def connect(self, host: str, port: int) -> SimulatedStream:
        """Open a connection. Raises OSError if nothing listens there."""

    def listen(self, port: int) -> SimulatedListener:
        """Listen on a port. Raises OSError if it is taken."""


simulated: ContextVar[SimulatedHost | None] = ContextVar("triomq_simulated_host", default=None)

Stream = trio.SocketStream | SimulatedStream
Listening = socket.socket | SimulatedListener


async def connect(host: str, port: int) -> Stream:
    """Open a connection. Raises OSError if that fails."""
    here = simulated.get()
    if here is not None:
        return await here.connect(host, port)
    return await trio.open_tcp_stream(host, port)


def listen(address: str, port: int, backlog: int) -> Listening:
    """Listen on `address`, or, if it is empty, on all addresses: IPv6 and IPv4 where both exist. Raises OSError if the
    port is taken.
    """
    here = simulated.get()
    if here is not None:
        return here.listen(port)
    if not address and socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog)
        except OSError as error:
            import errno

            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family, backlog=backlog)


def port_of(listening: Listening) -> int:
    """Return the port that the listener uses."""
    if isinstance(listening, SimulatedListener):
        return listening.port
    port: int = listening.getsockname()[1]
    return port


def listener_of(listening: Listening) -> trio.SocketListener | SimulatedListener:
    """Return a trio listener that accepts streams."""
    if isinstance(listening, SimulatedListener):
        return listening
    return trio.SocketListener(trio.socket.from_stdlib_socket(listening))


def ends(stream: Stream | socket.socket) -> tuple[HostPort, HostPort]:
    """Return remote and local end. IPv4-mapped IPv6 addresses are returned as IPv4. Raises OSError if the stream is
    closed.
    """
    if isinstance(stream, SimulatedStream):
        return stream.remote, stream.local
    sock = stream.socket if isinstance(stream, trio.SocketStream) else stream
    return _host_port(sock.getpeername()), _host_port(sock.getsockname())


def _host_port(name: tuple[str, int]) -> HostPort:
    return HostPort(name[0].removeprefix("::ffff:") if "." in name[0] else name[0], name[1])
