"""The network of a run: a namespace for each member, one for the clients, and this process as the router between them.

    router 10.124.N.1 --- to-NAME ======== eth0 --- 10.124.N.2 host NAME

A partition is a rule of the router that drops packets, so that no end of a connection notices. All of it belongs to the
namespaces of this process (`enter`), and ends with it however it ends.
"""

from __future__ import annotations

import os
import subprocess
from itertools import count
from pathlib import Path

from interop_processes import die_with_parent

FIRST_PRIORITY, PRIORITIES = 10, 10_000
UNSHARE = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
AS_ROOT_INSIDE = ["--user", "--map-root-user"]
TRIAL = (
    "ip link set lo up && ip link add trial0 type veth peer name trial1 && ip rule add prio 9 blackhole to 10.124.0.9"
    " && mount -t tmpfs -o size=1m tmpfs /mnt && cat /proc/sys/net/ipv4/ip_forward"
)

_rules = count()


def ip(*words: str) -> None:
    """Run `ip`. Raises OSError with its output."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def way_in() -> list[str]:
    """Return the command that runs another in namespaces of its own. Raises OSError if that is not possible here."""
    reason = ""
    for words in ([*UNSHARE], [*UNSHARE, *AS_ROOT_INSIDE]):
        try:
            done = subprocess.run([*words, "--", "sh", "-c", TRIAL], capture_output=True, text=True, timeout=30)
        except FileNotFoundError:
            raise OSError("unshare (util-linux) is not installed") from None
        if done.returncode == 0:
            return words
        reason = reason or done.stderr.strip()
    raise OSError(f"namespaces are not permitted, neither as this user nor as root of a user namespace: {reason}")


class Host:
    """A namespace with one address. It lives as long as its holder, a process that does nothing."""

    def __init__(self, name: str, number: int) -> None:
        self.name = name
        self.address = f"10.124.{number}.2"
        self._router = f"10.124.{number}.1"
        self._cable = f"to-{name}"
        self._rules: list[str] = []
        ready = "unshare --net sh -c 'echo ready; exec sleep 1000000000'"
        self._holder = subprocess.Popen(
            ["sh", "-c", f"exec {ready}"], stdout=subprocess.PIPE, preexec_fn=die_with_parent()
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != b"ready\n":
            raise OSError(f"no network namespace for {name}")
        self._connect()

    def _connect(self) -> None:
        ip("link", "add", self._cable, "type", "veth", "peer", "name", "eth0", "netns", str(self._holder.pid))
        ip("addr", "add", f"{self._router}/30", "dev", self._cable)
        ip("link", "set", self._cable, "up")
        for words in (
            ("link", "set", "lo", "up"),
            ("addr", "add", f"{self.address}/30", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("route", "add", "default", "via", self._router),
        ):
            subprocess.run([*self.inside, "ip", *words], check=True, timeout=30)

    @property
    def inside(self) -> list[str]:
        """The command that runs another in this namespace, as the same process."""
        return ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net", "--"]

    def cut(self, way: str, other: Host | None = None) -> None:
        """Drop packets: `way` is both, in, out; or all packets between this host and another."""
        to, out = ["to", self.address], ["iif", self._cable]
        if other is not None:
            rules = [[*out, "to", other.address], ["iif", other._cable, *to]]
        else:
            rules = [*([out] if way in ("both", "out") else []), *([to] if way in ("both", "in") else [])]
        for rule in rules:
            self._drop(rule)

    def cut_way_to(self, other: Host) -> None:
        """Drop the packets from this host to another, and not those of the other direction."""
        self._drop(["iif", self._cable, "to", other.address])

    def _drop(self, rule: list[str]) -> None:
        # Of its own, because deleting by words takes the first rule that has them, also one that has more.
        priority = str(FIRST_PRIORITY + next(_rules) % PRIORITIES)
        ip("rule", "add", "prio", priority, "blackhole", *rule)
        self._rules.append(priority)

    def mend(self) -> None:
        for priority in self._rules:
            ip("rule", "del", "prio", priority)
        self._rules = []


def enter() -> None:
    """Make this process the router of the namespaces in which it runs. Raises OSError."""
    if os.getpid() != 1:
        raise OSError("the run must be the first process of its namespaces")
    ip("link", "set", "lo", "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def mount_memory(directory: Path, size_bytes: int) -> None:
    """Give a directory a file system of its own, of this size."""
    directory.mkdir(parents=True)
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(directory)], check=True, timeout=30
    )
