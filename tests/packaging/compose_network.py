"""A stand-in for Docker's network: one namespace for each service of a compose file, and one for the host.

    host namespace: bridge 10.123.0.1/24, and for each published port a forwarder on 127.0.0.1, as docker-proxy is one
    service namespaces: 10.123.0.2 and up, with a hosts file that knows the names of all services

Nothing of the machine's own network is touched. Names carry the process id, so that several may exist side by side.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SUBNET = "10.123.0"
FORWARDER = """
import functools, sys, trio

async def copy(source, target):
    async for data in source:
        await target.send_all(data)
    await target.aclose()

async def forward(host, port, stream):
    try:
        async with stream, await trio.open_tcp_stream(host, port) as target, trio.open_nursery() as nursery:
            nursery.start_soon(copy, stream, target)
            nursery.start_soon(copy, target, stream)
    except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError):
        pass

async def main():
    async with trio.open_nursery() as nursery:
        for text in sys.argv[1:]:
            port, host, target = text.split(":")
            await nursery.start(functools.partial(
                trio.serve_tcp, functools.partial(forward, host, int(target)), int(port), host="127.0.0.1"))
        print("forwarding", flush=True)

trio.run(main)
"""


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def why_not() -> str | None:
    """Return why namespaces cannot be used here, or None."""
    if shutil.which("ip") is None:
        return "ip (iproute2) is not installed"
    name = f"triomq-probe-{os.getpid()}"
    try:
        ip("netns", "add", name)
        try:
            ip("-n", name, "link", "add", "probe", "type", "bridge")
        finally:
            ip("netns", "delete", name)
    except OSError as error:
        return f"network namespaces are not permitted: {error}"
    return None


class ComposeNetwork:
    """The services of a parsed compose file. `directory` takes their volumes and configuration files; `names` has the
    name at which the others know a service, where that is not its own."""

    def __init__(
        self,
        document: Mapping[str, Any],
        directory: Path,
        variables: Mapping[str, str],
        names: Mapping[str, str] | None = None,
    ) -> None:
        self._document = document
        self._services: Mapping[str, Any] = document["services"]
        self._directory = directory
        self._variables = variables
        self._names = names or {}
        own = [name for name, service in self._services.items() if "network_mode" not in service]
        self._addresses = {name: f"{SUBNET}.{number}" for number, name in enumerate(own, start=2)}
        self._processes: list[subprocess.Popen[str]] = []
        self._namespaces: list[str] = []
        self._hosts = directory / "hosts"

    def __enter__(self) -> Self:
        self._directory.mkdir(exist_ok=True)
        lines = [f"{address} {self._names.get(name, name)}" for name, address in self._addresses.items()]
        self._hosts.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        try:
            self._add_namespace("host")
            self._in_host("link", "add", "bridge", "type", "bridge")
            self._in_host("addr", "add", f"{SUBNET}.1/24", "dev", "bridge")
            self._in_host("link", "set", "bridge", "up")
            for name, address in self._addresses.items():
                self._connect(name, address)
            self._publish()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
        for namespace in self._namespaces:
            ip("netns", "delete", namespace)

    def start(self, name: str) -> subprocess.Popen[str]:
        """Start the command of a service with its configuration and environment."""
        service = self._services[name]
        volume = self._directory / name
        volume.mkdir()
        replaced = {"/var/lib/triomq": str(volume)}
        for config in service.get("configs", []):
            path = self._directory / f"{name}.conf"
            text = self._document["configs"][config["source"]]["content"]
            path.write_text(text.replace("/var/lib/triomq", str(volume)))
            replaced[config["target"]] = str(path)
        command = [replaced.get(word, word) for word in service["command"]]
        variables = {**service.get("environment", {}), "HOME": str(volume), "TRIOMQ_LOG_DIR": "-"}
        return self._spawn(name, command, variables)

    def log(self, name: str) -> str:
        """Return what a service has written to standard error."""
        return (self._directory / f"{name}.log").read_text()

    def wait_until_healthy(self, name: str) -> None:
        """Run the health check of a service until it passes, for at most a minute."""
        words = self._services[name]["healthcheck"]["test"]
        assert words[0] == "CMD"
        self.wait_until(name, words[1:])

    def wait_until(self, name: str, command: Sequence[str]) -> None:
        """Run a command in the namespace of a service until it succeeds, for at most a minute."""
        deadline = time.monotonic() + 60
        while (done := self.run(name, command)).returncode != 0 and time.monotonic() < deadline:
            pass
        assert done.returncode == 0, f"{name} is not healthy: {done.stdout}{done.stderr}"

    def run(self, name: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run a command to its end in the namespace of a service, or of the host."""
        return subprocess.run(
            self._inside(name, command), env=dict(self._variables), capture_output=True, text=True, timeout=120
        )

    def _spawn(self, name: str, command: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[str]:
        with (self._directory / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                self._inside(name, command),
                env={**self._variables, **variables},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._processes.append(process)
        return process

    def _inside(self, name: str, command: Sequence[str]) -> list[str]:
        # `ip netns exec` gives the command a mount namespace of its own, so the hosts file is changed for it alone.
        script = f'mount --bind "{self._hosts}" /etc/hosts && exec "$@"'
        return ["ip", "netns", "exec", self._namespace(name), "sh", "-c", script, "sh", *command]

    def _namespace(self, name: str) -> str:
        mode = self._services.get(name, {}).get("network_mode", f"service:{name}")
        return f"triomq-{os.getpid()}-{mode.removeprefix('service:')}"

    def _add_namespace(self, name: str) -> None:
        ip("netns", "add", self._namespace(name))
        self._namespaces.append(self._namespace(name))
        ip("-n", self._namespace(name), "link", "set", "lo", "up")

    def _in_host(self, *words: str) -> None:
        ip("-n", self._namespace("host"), *words)

    def _connect(self, name: str, address: str) -> None:
        self._add_namespace(name)
        inside = self._namespace(name)
        cable = f"to-{name}"
        self._in_host("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", inside)
        self._in_host("link", "set", cable, "master", "bridge", "up")
        ip("-n", inside, "addr", "add", f"{address}/24", "dev", "eth0")
        ip("-n", inside, "link", "set", "eth0", "up")

    def _publish(self) -> None:
        forwarded = []
        for name, address in self._addresses.items():
            for published in self._services[name]["ports"]:
                *_, outside, within = published.split(":")  # an address of the host may be in front
                forwarded.append(f"{outside}:{address}:{within}")
        process = self._spawn("host", [sys.executable, "-c", FORWARDER, *forwarded], {})
        assert process.stdout is not None
        assert process.stdout.readline() == "forwarding\n"
