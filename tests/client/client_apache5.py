"""Starts Apache RocketMQ 5: a NameServer and a broker without the proxy, whose port speaks the remoting protocol.

The jars (83 MB) come through Maven into the user's cache, once for each content of apache5/.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from built_once import built, run_tool
from client_cluster import Daemon

HERE = Path(__file__).resolve().parent / "apache5"
LOGGING = f"-Drmq.logback.configurationFile={HERE / 'logback.xml'}"
# What RocketMQ's own start script opens to the broker.
INTERNALS = (
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
)


def jars() -> Path:
    """Return the directory with the jars."""
    fetch = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
    return built(HERE, "apache5", lambda workplace: run_tool(fetch, workplace)) / "lib"


def start_namesrv(directory: Path, port: int) -> Daemon:
    return _start("namesrv.NamesrvStartup", directory, {"listenPort": str(port)}, ["-Xms64m", "-Xmx256m"])


def start_broker(directory: Path, port: int, name_server: str, settings: Sequence[str]) -> Daemon:
    """Start a broker with `settings`, each "key=value"."""
    configuration = {
        "listenPort": str(port),
        "namesrvAddr": name_server,
        "brokerIP1": "127.0.0.1",
        "brokerName": "broker-a",
        "storePathRootDir": str(directory / "store"),
        "storePathCommitLog": str(directory / "store" / "commitlog"),
        **dict(setting.split("=", 1) for setting in settings),
    }
    return _start("broker.BrokerStartup", directory, configuration, ["-Xms256m", "-Xmx1g", *INTERNALS])


def _start(main: str, directory: Path, configuration: dict[str, str], options: Sequence[str]) -> Daemon:
    directory.mkdir(parents=True)
    path = directory / "daemon.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in configuration.items()))
    return Daemon(
        "java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", LOGGING, *options, f"-Duser.home={directory}",
        "-cp", f"{jars()}/*", f"org.apache.rocketmq.{main}", "-c", str(path),
        environment={**os.environ, "ROCKETMQ_HOME": str(directory)},
    )  # fmt: skip
