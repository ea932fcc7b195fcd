"""A cable between this process and a network namespace: it can be cut, and can delay, lose and reorder packets.

Two kinds: TUN devices whose packets a thread of this process carries, and a veth pair that the kernel carries (there
delay and loss need its netem). Both need CAP_NET_ADMIN and `ip` (iproute2).
"""

from __future__ import annotations

import fcntl
import heapq
import os
import random
import selectors
import shutil
import struct
import subprocess
import threading
import time
from contextlib import suppress

TUN_DEVICE = "/dev/net/tun"
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
PACKET_BYTES = 65536
MTU = 9000
MAX_UNDERWAY = 10_000


def ip(*arguments: str) -> None:
    """Run `ip`. Raises OSError with its output."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


class TunCable:
    """Packets go through a thread of this process. With `jitter_seconds` they overtake each other."""

    def __init__(self) -> None:
        self.delay_seconds = 0.0
        self.jitter_seconds = 0.0
        self.loss = 0.0
        self.is_cut = False
        self.carried = self.lost = self.reordered = 0
        self._random = random.Random(49)
        self._fds: list[int] = []
        self._stop_reading, self._stop_writing = os.pipe()
        self._thread = threading.Thread(target=self._carry, daemon=True)

    def make(self, near: str, far: str) -> None:
        """Make two devices with these names, both in this namespace. Raises OSError."""
        for name in (near, far):
            fd = os.open(TUN_DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self._fds.append(fd)
            fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
            ip("link", "set", name, "mtu", str(MTU))
        self._thread.start()

    def close(self) -> None:
        if self._thread.ident is not None:
            os.write(self._stop_writing, b"x")
            self._thread.join()
        for fd in (*self._fds, self._stop_reading, self._stop_writing):
            os.close(fd)

    def cut(self) -> None:
        """Drop all packets, silently."""
        self.is_cut = True

    def mend(self) -> None:
        self.is_cut = False

    def disturb(self, *, delay_seconds: float = 0, jitter_seconds: float = 0, loss: float = 0) -> bool:
        self.delay_seconds, self.jitter_seconds, self.loss = delay_seconds, jitter_seconds, loss
        return True

    def calm(self) -> None:
        self.disturb()

    def _carry(self) -> None:
        one, other = self._fds
        target = {one: other, other: one}
        underway: list[tuple[float, int, int, bytes]] = []
        number = newest = 0
        selector = selectors.DefaultSelector()
        for fd in (one, other, self._stop_reading):
            selector.register(fd, selectors.EVENT_READ)
        while True:
            wait = max(0.0, underway[0][0] - time.monotonic()) if underway else None
            ready = [key.fd for key, _ in selector.select(wait)]
            if self._stop_reading in ready:
                selector.close()
                return
            for fd in ready:
                with suppress(OSError):  # a device that is down
                    packet = os.read(fd, PACKET_BYTES)
                    number += 1
                    if self.is_cut or self._random.random() < self.loss or len(underway) >= MAX_UNDERWAY:
                        self.lost += 1
                    else:
                        due = time.monotonic() + self.delay_seconds + self._random.random() * self.jitter_seconds
                        heapq.heappush(underway, (due, number, target[fd], packet))
            while underway and underway[0][0] <= time.monotonic():
                _, sent, fd, packet = heapq.heappop(underway)
                self.reordered += sent < newest
                newest = max(newest, sent)
                self.carried += 1
                with suppress(OSError):
                    os.write(fd, packet)


class VethCable:
    """The kernel carries the packets."""

    def __init__(self) -> None:
        self._near = ""

    def make(self, near: str, far: str) -> None:
        ip("link", "add", near, "type", "veth", "peer", "name", far)
        self._near = near

    def close(self) -> None:
        if self._near:
            subprocess.run(["ip", "link", "del", self._near], capture_output=True, check=False)

    def cut(self) -> None:
        ip("link", "set", self._near, "down")

    def mend(self) -> None:
        ip("link", "set", self._near, "up")

    def disturb(self, *, delay_seconds: float = 0, jitter_seconds: float = 0, loss: float = 0) -> bool:
        """Return False if the kernel cannot."""
        delay = f"delay {delay_seconds * 1000:g}ms {jitter_seconds * 1000:g}ms" if delay_seconds else ""
        rules = [*delay.split(), *(["loss", f"{loss:.0%}"] if loss else [])]
        command = ["tc", "qdisc", "replace", "dev", self._near, "root", "netem", *rules]
        return (
            shutil.which("tc") is not None and not subprocess.run(command, capture_output=True, check=False).returncode
        )

    def calm(self) -> None:
        subprocess.run(["tc", "qdisc", "del", "dev", self._near, "root"], capture_output=True, check=False)


class Network:
    """A cable from this namespace (`master_ip`) to another (`slave_ip`)."""

    def __init__(self, cable: TunCable | VethCable) -> None:
        number = os.getpid() % 250
        self.cable = cable
        self.namespace = f"triomq-{os.getpid()}"
        self.master_ip, self.slave_ip = f"10.213.{number}.1", f"10.213.{number}.2"

    def make(self) -> None:
        """Set up the network. Raises OSError with everything removed again."""
        near, far = f"tqm{os.getpid() % 100000}", f"tqs{os.getpid() % 100000}"
        try:
            ip("netns", "add", self.namespace)
            self.cable.make(near, far)
            ip("link", "set", far, "netns", self.namespace)
            ip("addr", "add", f"{self.master_ip}/24", "dev", near)
            ip("link", "set", near, "up")
            ip("-n", self.namespace, "addr", "add", f"{self.slave_ip}/24", "dev", far)
            ip("-n", self.namespace, "link", "set", far, "up")
            ip("-n", self.namespace, "link", "set", "lo", "up")
        except OSError:
            self.remove()
            raise

    def remove(self) -> None:
        self.cable.close()
        subprocess.run(["ip", "netns", "del", self.namespace], capture_output=True, check=False)


def make_network() -> Network:
    """Make a network with the kind of cable that is available. Raises OSError with the reasons."""
    if shutil.which("ip") is None:
        raise OSError("there is no `ip` (iproute2)")
    reasons = []
    for cable in (TunCable, VethCable):
        network = Network(cable())
        try:
            network.make()
        except OSError as error:
            reasons.append(str(error))
        else:
            return network
    raise OSError("; ".join(reasons))
