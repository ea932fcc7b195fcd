"""Measure gRPC clients: sends, and receives of one message that is acknowledged, beside RocketMQ 5.3.3 whose proxy runs
in the broker's process (local mode).

    bin/dev/bench-grpc [--seconds 5] [--rounds 3] [--streams 64] [--bytes 1024] [--only triomq|rocketmq]

The load (benchmarks/grpc, in Go) is one process with one connection. The servers take turns, so that both have the same
machine; the figures are medians of the rounds. `idle` is the resident memory before the first client. RocketMQ's jars
come from Maven Central, into the user's cache.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.boot import free_port, resident_bytes
from benchmarks.peer_servers import HERE, cached, need, output_of, run_tool
from benchmarks.sync_flush import PROJECT, cpu_seconds, running
from benchmarks.watch import MIB

SOURCES = HERE / "grpc"
BROKER, TOPIC, QUEUES = "broker-a", "Load", 8
MODES = ("send", "pair")
SIDES = ("rocketmq", "triomq")
START_SECONDS = 60.0
JAVA_OPTIONS = (
    "-server -Xms4g -Xmx4g -XX:MetaspaceSize=128m -XX:MaxMetaspaceSize=320m -XX:+UseG1GC -XX:G1HeapRegionSize=16m "
    "-XX:G1ReservePercent=25 -XX:InitiatingHeapOccupancyPercent=30 -XX:SoftRefLRUPolicyMSPerMB=0 "
    "-XX:-OmitStackTraceInFastThrow -XX:-UseLargePages --add-opens=java.base/java.nio=ALL-UNNAMED "
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED --add-exports=java.base/jdk.internal.ref=ALL-UNNAMED"
)
"""Those of RocketMQ's own script for the proxy, and what Java 17 needs."""


class Figures(NamedTuple):
    """Calls (or pairs) per second and per CPU second of the server, and how long they took."""

    rate: float
    rate_of_cpu: float
    p50_ms: float
    p99_ms: float


class Server(NamedTuple):
    pid: int
    grpc_port: int
    idle_mib: float


def load_program() -> Path:
    """Return the program that makes the calls."""
    need("go")
    source = b"".join(path.read_bytes() for path in sorted(SOURCES.glob("*.go*")))

    def build(directory: Path) -> None:
        run_tool("go", "build", "-o", directory / "load", ".", directory=SOURCES)

    return cached("grpc-load", source, build) / "load"


def proxy_libraries() -> Path:
    """Return the directory of the jars of RocketMQ 5.3.3 with its proxy."""
    need("java", "mvn")
    pom = SOURCES / "pom.xml"

    def copy(directory: Path) -> None:
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={directory}"]
        run_tool("mvn", "--quiet", "--batch-mode", "--file", pom, *goal)

    return cached("rocketmq-proxy", pom.read_bytes(), copy)


def broker_config(home: Path, port: int, namesrv: str, **more: int) -> Path:
    values = {"listenPort": port, "namesrvAddr": namesrv, "brokerIP1": "127.0.0.1", "brokerName": BROKER}
    values |= {"storePathRootDir": f"{home}/store", "storePathCommitLog": f"{home}/store/commitlog", **more}
    config = home / "broker.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    return config


def command_of(side: str, home: Path, port: int, grpc_port: int, namesrv: str) -> list[str]:
    """Return the command that starts a broker with a port for gRPC clients."""
    if side == "triomq":
        return [
            str(PROJECT / "bin" / "mqbroker"),
            "-c",
            str(broker_config(home, port, namesrv, grpcServerPort=grpc_port)),
        ]
    proxy = home / "rmq-proxy.json"
    names = {"rocketMQClusterName": "DefaultCluster", "namesrvAddr": namesrv, "proxyMode": "LOCAL"}
    proxy.write_text(json.dumps({**names, "grpcServerPort": grpc_port, "remotingListenPort": free_port()}))
    java = ["java", *JAVA_OPTIONS.split(), f"-Duser.home={home}"]
    program = ["-cp", f"{proxy_libraries()}/*", "org.apache.rocketmq.proxy.ProxyStartup"]
    return [*java, *program, "-pc", str(proxy), "-pm", "local", "-bc", str(broker_config(home, port, namesrv))]


@contextmanager
def server(side: str) -> Iterator[Server]:
    """Run a broker that has the topic."""
    with tempfile.TemporaryDirectory(prefix="grpc-", ignore_cleanup_errors=True) as name:
        home, namesrv_port, port, grpc_port = Path(name), free_port(), free_port(), free_port()
        (home / "namesrv.conf").write_text(f"listenPort={namesrv_port}\nkvConfigPath={home}/kv.json\n")
        os.environ["ROCKETMQ_HOME"] = name
        with running([str(PROJECT / "bin" / "mqnamesrv"), "-c", str(home / "namesrv.conf")], home):
            namesrv = f"127.0.0.1:{namesrv_port}"
            boot = b"boot success" if side == "triomq" else b"startup successfully"
            with running(command_of(side, home, port, grpc_port, namesrv), home, boot=boot) as pid:
                time.sleep(5)
                idle_mib = resident_bytes(pid) / MIB
                admin = [str(PROJECT / "bin" / "mqadmin"), "updateTopic", "-n", namesrv, "-b", f"127.0.0.1:{port}"]
                output_of([*admin, "-t", TOPIC, "-r", str(QUEUES), "-w", str(QUEUES)], home, START_SECONDS)
                yield Server(pid, grpc_port, idle_mib)


def measure(at: Server, mode: str, options: argparse.Namespace) -> Figures:
    words = [mode, str(options.streams), str(options.seconds), str(options.bytes)]
    command = [str(load_program()), f"127.0.0.1:{at.grpc_port}", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as load:
        assert load.stdout is not None
        if load.stdout.readline() != "warm\n":
            raise RuntimeError(f"{' '.join(command)} failed")
        before = cpu_seconds(at.pid)
        count, seconds, p50, p99 = map(float, load.stdout.readline().split())
        return Figures(count / seconds, count / (cpu_seconds(at.pid) - before), p50, p99)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--bytes", type=int, default=1024)
    parser.add_argument("--only", choices=SIDES)
    options = parser.parse_args()
    sides = [options.only] if options.only else SIDES
    found: dict[tuple[str, str], list[Figures]] = {}
    idle: dict[str, list[float]] = {}
    for _ in range(options.rounds):
        for side in sides:
            with server(side) as at:
                idle.setdefault(side, []).append(at.idle_mib)
                for mode in MODES:
                    found.setdefault((mode, side), []).append(measure(at, mode, options))
                    print(f"# {side} {mode} {found[mode, side][-1]}", file=sys.stderr, flush=True)
    for mode in MODES:
        medians: dict[str, Figures] = {}
        for side in sides:
            each = medians[side] = Figures(
                *(statistics.median(values) for values in zip(*found[mode, side], strict=True))
            )
            print(f"{mode} {side:9} {each.rate:7.0f}/s {each.rate_of_cpu:7.0f}/CPU s", end=" ")
            print(f"p50 {each.p50_ms:.1f} ms p99 {each.p99_ms:.1f} ms")
        if len(medians) == len(SIDES):
            theirs, ours = (medians[side] for side in SIDES)
            ratios = f"{ours.rate / theirs.rate:.2f} by the clock, {ours.rate_of_cpu / theirs.rate_of_cpu:.2f} a CPU s"
            print(f"{mode} ratios    {ratios}, p99 {ours.p99_ms / theirs.p99_ms:.2f}")
    for side, values in idle.items():
        print(f"idle {side:9} {statistics.median(values):.0f} MiB")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
