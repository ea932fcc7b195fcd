"""The gRPC clients of RocketMQ 5, unmodified: Java and Go over TLS, which is their default, Python and Node plain."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from free_ports import free_port
from interop_builds import (
    ToolMissing,
    go_driver,
    grpc_java_class_path,
    grpc_python_client,
    need,
    need_java,
    node_driver,
)
from interop_cluster import Cluster, running_cluster
from interop_drivers import Driver
from interop_processes import Child, wait_until
from interop_texts import numbered

KINDS = ("normal", "keyed", "fifo", "delayed", "commit", "orphan")
WAIT_SECONDS = 90.0


@pytest.fixture(scope="module")
def grpc_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def grpc_cluster(target: str, grpc_port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if target != "triomq":
        pytest.skip("RocketMQ 4.9.7 does not speak gRPC")
    settings = {"grpcServerPort": str(grpc_port)}
    with running_cluster(target, tmp_path_factory.mktemp("grpc"), settings) as running:
        yield running


class GrpcDriver:
    """A driver as a process; `lines` are what it has said."""

    def __init__(self, language: str, directory: Path, port: int, topic: str, group: str) -> None:
        arguments = [f"127.0.0.1:{port}", topic, group]
        environment = dict(os.environ, HOME=str(directory))
        try:
            if language == "java":
                argv = [need_java(), "-cp", grpc_java_class_path(), "Driver"]
            elif language == "go":
                argv = [str(go_driver("grpc-go"))]
            elif language == "node":
                argv = [need("node"), str(node_driver("grpc-node"))]
            else:
                home = grpc_python_client()
                environment["PYTHONPATH"] = str(home / "lib")
                argv = [sys.executable, str(home / "driver.py")]
        except ToolMissing as missing:
            pytest.skip(str(missing))
        self.child = Child([*argv, *arguments], log_path=directory / f"{language}.log", env=environment, piped=True)
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()
        self.wait("started")

    def _read(self) -> None:
        for line in self.child.stdout:
            self.lines.append(line.decode().strip())

    def tell(self, line: str) -> None:
        self.child.stdin.write(f"{line}\n".encode())
        self.child.stdin.flush()

    def wait(self, line: str) -> None:
        wait_until(lambda: line in self.lines, WAIT_SECONDS, f"{line!r} of the driver\n{self.child.log_tail()}")

    def wait_all(self, how: str, expected: set[str]) -> None:
        """Wait until everything was received and acknowledged."""
        try:
            wait_until(lambda: set(self.got(how)) >= expected, WAIT_SECONDS, how)
        except AssertionError as error:
            missing = sorted(expected - set(self.got(how)))
            raise AssertionError(f"{error}: {missing}\n{self.lines[-40:]}\n{self.child.log_tail()}") from None

    def got(self, how: str) -> Counter[str]:
        """Return how often each message was received and acknowledged."""
        found = [line.removeprefix(f"{how} ").rsplit(" ", 1) for line in list(self.lines) if line.startswith(f"{how} ")]
        is_done = [body for body, times in found if how == "simple" or not body.endswith("keyed") or times != "1"]
        return Counter(is_done)


@pytest.mark.parametrize("language", ["java", "python", "go", "node"])
def test_clients_of_both_generations_share_a_topic_and_a_killed_broker_repeats_nothing(
    language: str, grpc_cluster: Cluster, grpc_port: int, java4: Driver, tmp_path: Path
) -> None:
    topic = grpc_cluster.create_topic(f"Grpc{language}")
    grpc = GrpcDriver(language, tmp_path, grpc_port, topic, f"grpc_{language}")
    try:
        common = {"namesrv": grpc_cluster.namesrv_address, "topic": topic}
        remoting = java4.receive(**common, group=f"remoting_{language}")
        grpc.tell("a")
        expected = {f"a-{kind}" for kind in KINDS}
        for how in ("push", "simple"):
            grpc.wait_all(how, expected)
        assert "asked a-orphan" in grpc.lines
        remoting.wait_messages(len(expected))
        file = Path(numbered(tmp_path, 5))
        compressed = "long " + "x" * 6000  # by the client, as everything above 4 KiB
        file.write_text(f"{file.read_text().rstrip()}\n{compressed}\n")
        java4.run("send-lines", **common, file=str(file))
        for how in ("push", "simple"):
            wait_until(lambda: len(grpc.got(how)) == 12, WAIT_SECONDS, f"{how} gets those of remoting")  # noqa: B023
            assert compressed in grpc.got(how)
        grpc_cluster.broker.kill()
        grpc_cluster.broker.start()
        grpc.tell("b")
        expected |= {f"b-{kind}" for kind in KINDS}
        if language in ("python", "go"):  # they open their telemetry streams again only every five minutes
            expected.remove("b-orphan")
        for how in ("push", "simple"):
            grpc.wait_all(how, expected)
            got = grpc.got(how)
            assert not [body for body in got if body.endswith("rollback")]
            # How far delays were delivered is written every second or so, as in RocketMQ.
            repeated = {body for body, times in got.items() if times > 1 and not body.endswith("delayed")}
            assert repeated == set()
    finally:
        grpc.child.end()
