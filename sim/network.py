"""A network in memory: hosts with addresses, connections that take time, and everything that breaks them.

A connection is two pipes, one for each direction. What is sent arrives in order after a delay of its own, so that
connections overtake each other. A pipe holds a bounded number of bytes; then its sender waits, as with TCP's windows.

    partition       two hosts cannot reach each other, or one of them not the other; what is sent meanwhile arrives when
                    they can, as TCP resends it
    reset           the connections between two hosts end
    lag             a host is far away for a while
    process killed  the system closes its connections: the peers read their end, or see a reset when they send
    power failure   nobody tells the peers: they wait until they send something after the host has returned (half open)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from random import Random

import trio

from sim.determinism import VirtualClock
from triomq.protocol.address import HostPort
from triomq.remoting import network

WINDOW_BYTES = 256 * 1024
CONNECT_SECONDS = 20.0
"""How long the system tries to connect to a host that does not answer."""
FIRST_FREE_PORT = 40_000


class Pipe:
    """One direction of a connection."""

    def __init__(self, source: Host, target: Host) -> None:
        self.source = source
        self.target = target
        self.is_reset = False
        """Nothing more is read, and sending fails."""
        self.is_lost = False
        """What is sent goes nowhere, and nothing says so."""
        self._in_flight: deque[tuple[float, bytes]] = deque()
        """(arrival, bytes); no bytes: the end."""
        self._bytes = 0
        self._last_arrival = 0.0
        self._reader: trio.lowlevel.Task | None = None
        self._room: trio.Event | None = None

    async def send(self, data: bytes) -> None:
        while not self.is_reset and self._bytes >= WINDOW_BYTES:
            await self._wait_for_room()
        if self.is_reset:
            raise trio.BrokenResourceError("connection reset by the peer")
        self._bytes += len(data)
        self._append(data)

    async def _wait_for_room(self) -> None:
        self._room = trio.Event()
        await self._room.wait()

    def _append(self, data: bytes) -> None:
        self._in_flight.append((self._arrival(), data))
        if len(self._in_flight) == 1:
            self._expect()

    def _arrival(self) -> float:
        """Return when something that is sent now arrives: never before what was sent earlier."""
        network = self.source.network
        if self.is_lost or network.is_cut(self.source, self.target):
            return inf
        delay = network.delay() + self.source.lag_seconds + self.target.lag_seconds
        self._last_arrival = max(self._last_arrival, network.clock.now + delay)
        return self._last_arrival

    async def receive(self, max_bytes: int) -> bytes:
        has_waited = False
        while True:
            if self.is_reset:
                raise trio.BrokenResourceError("connection reset by the peer")
            if self._in_flight and self._in_flight[0][0] <= self.source.network.clock.now:
                if not has_waited:
                    await trio.lowlevel.checkpoint()
                    if self.is_reset:
                        continue
                return self._take(max_bytes)
            self._reader = trio.lowlevel.current_task()
            self._expect()
            await trio.lowlevel.wait_task_rescheduled(self._reader_left)
            has_waited = True

    def _reader_left(self, _: object) -> trio.lowlevel.Abort:
        self._reader = None
        return trio.lowlevel.Abort.SUCCEEDED

    def _expect(self) -> None:
        """Have the reader woken when the next bytes arrive."""
        if self._reader is not None and self._in_flight and self._in_flight[0][0] < inf:
            self.source.network.clock.ring_at(self._in_flight[0][0], self)

    def ring(self) -> None:
        """Wake the reader, which then takes what has arrived."""
        if self._reader is not None:
            reader, self._reader = self._reader, None
            trio.lowlevel.reschedule(reader)

    def _take(self, max_bytes: int) -> bytes:
        arrival, data = self._in_flight[0]
        if not data:
            return b""
        self._in_flight.popleft()
        if len(data) > max_bytes:
            self._in_flight.appendleft((arrival, data[max_bytes:]))
            data = data[:max_bytes]
        self._bytes -= len(data)
        self._notify_writer()
        return data

    def healed(self) -> None:
        """Send again what a partition held back."""
        held = [data for arrival, data in self._in_flight if arrival == inf]
        if held and not self.is_lost:
            while self._in_flight and self._in_flight[-1][0] == inf:
                self._in_flight.pop()
            self._in_flight.extend((self._arrival(), data) for data in held)
            self._expect()

    def end(self) -> None:
        """The sender sends no more; the reader reads what is in flight, then the end."""
        self._append(b"")

    def reset(self) -> None:
        self.is_reset = True
        self._in_flight.clear()
        self.ring()
        self._notify_writer()

    def _notify_writer(self) -> None:
        if self._room is not None:
            self._room.set()
            self._room = None


class MemoryStream(network.SimulatedStream):
    """One end of a connection."""

    def __init__(self, host: Host, local: HostPort, remote: HostPort, outgoing: Pipe, incoming: Pipe) -> None:
        self.local = local
        self.remote = remote
        self._host = host
        self._outgoing = outgoing
        self._incoming = incoming
        self._is_closed = False

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._is_closed:
            raise trio.ClosedResourceError("this end is closed")
        await self._outgoing.send(bytes(data))

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint_if_cancelled()
        if self._is_closed:
            raise trio.ClosedResourceError("this end is closed")
        return await self._incoming.receive(max_bytes or WINDOW_BYTES)

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        """What was sent arrives; what the peer sends from now on is answered with a reset."""
        if not self._is_closed:
            self._is_closed = True
            self._host.streams.discard(self)
            self._outgoing.end()
            self._incoming.reset()

    def lose(self) -> None:
        """The host has no power: nothing leaves or arrives any more."""
        self._is_closed = True
        for pipe in (self._outgoing, self._incoming):
            pipe.is_lost = True

    def forget(self) -> None:
        """The host is back and does not know this connection: it answers the next bytes with a reset."""
        self._incoming.reset()


class MemoryListener(network.SimulatedListener):
    """A port of a host."""

    def __init__(self, host: Host, port: int) -> None:
        self._host = host
        self.port = port
        self.arrived, self._streams = trio.open_memory_channel[MemoryStream](1024)

    async def accept(self) -> network.SimulatedStream:
        return await self._streams.receive()  # raises ClosedResourceError once it is closed, as trio's listeners do

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()

    def close(self) -> None:
        self._host.listeners.pop(self.port, None)
        self._streams.close()


class Host:
    """One machine. `streams` and `listeners` belong to the process that runs on it."""

    def __init__(self, network: Network, name: str, ip: str) -> None:
        self.network = network
        self.name = name
        self.ip = ip
        self.listeners: dict[int, MemoryListener] = {}
        self.streams: set[MemoryStream] = set()
        self.has_power = True
        self.lag_seconds = 0.0
        """What arrives here or comes from here takes longer by this time."""
        self._lost: list[MemoryStream] = []
        self._next_port = FIRST_FREE_PORT

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Tasks that are started inside are on this host."""
        token = network.simulated.set(self)
        try:
            yield
        finally:
            network.simulated.reset(token)

    def free_port(self) -> int:
        self._next_port += 1
        return self._next_port

    def listen(self, port: int) -> MemoryListener:
        port = port or self.free_port()
        if port in self.listeners:
            raise OSError(98, "Address already in use")
        self.listeners[port] = listener = MemoryListener(self, port)
        return listener

    async def connect(self, host: str, port: int) -> MemoryStream:
        target = self.network.hosts.get(host)
        with trio.move_on_after(CONNECT_SECONDS):
            await trio.sleep(2 * self.network.delay())
            while target is None or not target.has_power or self.network.is_separated(self, target):
                await trio.sleep(1.0)
            listener = target.listeners.get(port)
            if listener is None:
                raise ConnectionRefusedError(111, "Connection refused")
            mine, theirs = self._connected(target, port)
            await listener.arrived.send(theirs)
            return mine
        raise TimeoutError(110, "Connection timed out")

    def _connected(self, target: Host, port: int) -> tuple[MemoryStream, MemoryStream]:
        here, there = HostPort(self.ip, self.free_port()), HostPort(target.ip, port)
        out, back = Pipe(self, target), Pipe(target, self)
        mine = MemoryStream(self, here, there, out, back)
        theirs = MemoryStream(target, there, here, back, out)
        self.streams.add(mine)
        target.streams.add(theirs)
        self.network.pipes += [out, back]
        return mine, theirs

    def process_died(self) -> None:
        """The system closes what the process had open. Peers behind a partition do not hear of that."""
        for stream in self._ordered():
            peer = self.network.hosts[stream.remote.ip]
            if self.network.is_separated(self, peer):
                stream.lose()
                self.streams.discard(stream)
                self._lost.append(stream)
            else:
                stream.close()
        self._close_ports()

    def power_failed(self) -> None:
        self.has_power = False
        for stream in self._ordered():
            stream.lose()
            self._lost.append(stream)
        self.streams.clear()
        self._close_ports()

    def process_starts(self) -> None:
        """From now on the host answers for connections that it does not know."""
        self.has_power = True
        for stream in self._lost:
            stream.forget()
        self._lost.clear()

    def _close_ports(self) -> None:
        for listener in list(self.listeners.values()):
            listener.close()

    def _ordered(self) -> list[MemoryStream]:
        return sorted(self.streams, key=lambda stream: (stream.local.port, stream.remote.ip, stream.remote.port))


class Network:
    """All hosts. `choose` decides the delays."""

    def __init__(self, choose: Random, clock: VirtualClock) -> None:
        self.clock = clock
        self.hosts: dict[str, Host] = {}
        self.pipes: list[Pipe] = []
        self._choose = choose
        self._cuts: set[tuple[str, str]] = set()
        """(source, target)"""

    def host(self, name: str) -> Host:
        """Add a machine."""
        ip = f"10.0.0.{len(self.hosts) + 1}"
        self.hosts[ip] = host = Host(self, name, ip)
        return host

    def delay(self) -> float:
        """Return how long the next bytes travel, in seconds: mostly next to nothing, sometimes noticeable."""
        draw = self._choose.random()
        return draw * 0.002 if draw < 0.97 else draw * self._choose.random() * 0.2

    def is_cut(self, source: Host, target: Host) -> bool:
        """Return whether nothing gets from one host to another."""
        return (source.ip, target.ip) in self._cuts

    def is_separated(self, one: Host, other: Host) -> bool:
        """Return whether a direction between two hosts is cut, so that no connection can be made."""
        return self.is_cut(one, other) or self.is_cut(other, one)

    def cut(self, source: Host, target: Host) -> None:
        self._cuts.add((source.ip, target.ip))

    def heal(self, one: Host, other: Host) -> None:
        self._cuts -= {(one.ip, other.ip), (other.ip, one.ip)}
        self._resend()

    def cut_only(self, pairs: set[tuple[Host, Host]]) -> None:
        """Cut these (source, target), and heal all others."""
        self._cuts = {(source.ip, target.ip) for source, target in pairs}
        self._resend()

    def reset(self, one: Host, other: Host) -> None:
        """End the connections between two hosts, as a firewall does that forgets them."""
        for pipe in self.pipes:
            if {pipe.source, pipe.target} == {one, other} and not pipe.is_lost:
                pipe.reset()

    def heal_all(self) -> None:
        self._cuts.clear()
        for host in self.hosts.values():
            host.lag_seconds = 0.0
        self._resend()

    def _resend(self) -> None:
        self.pipes = [pipe for pipe in self.pipes if not (pipe.is_reset or pipe.is_lost)]
        for pipe in self.pipes:
            if not self.is_cut(pipe.source, pipe.target):
                pipe.healed()
