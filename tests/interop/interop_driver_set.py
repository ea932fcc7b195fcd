"""The driver processes of a test session, and how each kind of real client is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from interop_builds import ToolMissing, cpp_client, go_driver, java_class_path, need_java, node_driver
from interop_drivers import Driver

HERE = Path(__file__).resolve().parent

# Client 4.9 rebalances every 20 s, so only the broker's notification makes a quick take-over with it. Client 5 would
# wait that long for the route of a retry topic that its own first heartbeat created.
SHORT_REBALANCE_MS = 2000


class DriverSet:
    """The session's driver processes: one shared per kind, and extra ones for tests that kill them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.shared: dict[str, Driver] = {}
        self.started: list[Driver] = []

    def start(self, kind: str, *options: str) -> Driver:
        """Start another driver; `options` are for the Java machine."""
        try:
            argv = driver_command(kind, *options)
        except ToolMissing as e:
            pytest.skip(f"{kind} client: {e}")
        driver = Driver(f"{kind}-{len(self.started)}", argv, self.directory)
        self.started.append(driver)
        return driver

    def __call__(self, kind: str) -> Driver:
        if kind not in self.shared or self.shared[kind].ended:
            self.shared[kind] = self.start(kind)
        return self.shared[kind]


def driver_command(kind: str, *java_options: str) -> list[str]:
    """Return the command of a driver: java4, java5 (two generations), java4-binary (ROCKETMQ header codec), java4-tls,
    go, node, cpp, python.
    """
    if kind == "go":
        return [str(go_driver()), "serve"]
    if kind == "node":
        return ["node", str(node_driver()), "serve"]
    if kind == "cpp":
        return [sys.executable, str(cpp_client() / "driver.py"), "serve"]
    if kind == "python":
        return [sys.executable, str(HERE / "python" / "driver.py"), "serve"]
    generation, _, codec = kind.partition("-")
    class_path = java_class_path({"java4": "client4", "java5": "client5"}[generation])
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8"]
    if generation == "java5":
        options.append(f"-Drocketmq.client.rebalance.waitInterval={SHORT_REBALANCE_MS}")
    if codec == "tls":
        options.append("-Dtls.enable=true")
    if codec == "binary":
        options.append("-Drocketmq.serialize.type=ROCKETMQ")
    return [need_java(), *options, *java_options, "-cp", class_path, "interop.Main", "serve"]
