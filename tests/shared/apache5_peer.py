"""Apache RocketMQ 5's own daemons, without the proxy: a broker whose port speaks the remoting protocol.

The jars (83 MB) come through Maven into the user's cache, once for each content of client/apache5/.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from built_once import built, run_tool

HERE = Path(__file__).resolve().parent.parent / "client" / "apache5"
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


def namesrv_command(directory: Path, port: int) -> list[str]:
    """Return the command line of a NameServer, whose configuration is written to the directory."""
    return _command("namesrv.NamesrvStartup", directory, {"listenPort": str(port)}, ["-Xms64m", "-Xmx256m"])


def broker_command(directory: Path, port: int, name_server: str, settings: Mapping[str, str]) -> list[str]:
    """Return the command line of a broker with `settings`."""
    configuration = {
        "listenPort": str(port),
        "namesrvAddr": name_server,
        "brokerIP1": "127.0.0.1",
        "brokerName": "broker-a",
        "storePathRootDir": str(directory / "store"),
        "storePathCommitLog": str(directory / "store" / "commitlog"),
        **settings,
    }
    return _command("broker.BrokerStartup", directory, configuration, ["-Xms256m", "-Xmx1g", *INTERNALS])


def _command(main: str, directory: Path, configuration: Mapping[str, str], options: Sequence[str]) -> list[str]:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "daemon.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in configuration.items()))
    return [
        "env",
        f"ROCKETMQ_HOME={directory}",
        "java",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        LOGGING,
        *options,
        f"-Duser.home={directory}",
        "-cp",
        f"{jars()}/*",
        f"org.apache.rocketmq.{main}",
        "-c",
        str(path),
    ]
