"""Servers that benchmarks compare with: NATS, Redis and Kafka. Each is built or unpacked once into the user's cache,
and runs on a free port of 127.0.0.1, its files in a directory that is removed. None syncs before it acknowledges.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.boot import free_port

HERE = Path(__file__).resolve().parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "triomq-benchmarks"
NATS_SOURCES = HERE / "nats"
NATS_SERVER = "github.com/nats-io/nats-server/v2"
KAFKA_POM = HERE / "kafka" / "pom.xml"
PEERS = HERE / "python_peers.txt"
KAFKA_ID = "AAAAAAAAAAAAAAAAAAAAAA"
BUILD_SECONDS = 400
START_SECONDS = 60.0
STOP_SECONDS = 20.0


class Missing(Exception):
    """What a server needs is not installed; the message says what."""


class ToolFailed(Exception):
    """A program failed; the message has its output."""


class Server(NamedTuple):
    process: subprocess.Popen[bytes]
    port: int


def need(*tools: str) -> None:
    """Raise Missing if one of these programs is not installed."""
    for tool in tools:
        if shutil.which(tool) is None:
            raise Missing(f"{tool} is not installed")


def cached(name: str, source: bytes, build: Callable[[Path], None]) -> Path:
    """Return the directory that `build` fills, once for each content of its source."""
    directory = CACHE / f"{name}-{hashlib.sha256(source).hexdigest()[:12]}"
    complete = directory / ".complete"
    if not complete.exists():
        print(f"building {name} in {directory}; this happens once", file=sys.stderr, flush=True)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        build(directory)
        complete.touch()
    return directory


def run_tool(*command: str | Path, directory: Path = HERE) -> str:
    """Run a program that builds. Return what it printed to stdout. Raises ToolFailed with all it printed."""
    return output_of([str(word) for word in command], directory, BUILD_SECONDS)


def output_of(
    command: Sequence[str], directory: Path, seconds: float, environment: Mapping[str, str] | None = None
) -> str:
    """Run a program within a time. Return what it printed to stdout. Raises ToolFailed."""
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
        )
    except subprocess.TimeoutExpired as error:
        raise ToolFailed(f"{' '.join(command)} took more than {seconds:.0f} s") from error
    if done.returncode:
        raise ToolFailed(f"{' '.join(command)} failed ({done.returncode}):\n{(done.stdout + done.stderr)[-4000:]}")
    return done.stdout


@contextmanager
def running(command: Sequence[str], port: int, **environment: str) -> Iterator[Server]:
    """Run a server; enter the block when it accepts connections. Raises RuntimeError with its output if it does not."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **environment}
        )
        try:
            if not until_listening(process, port):
                output.seek(0)
                raise RuntimeError(f"{command[0]} did not start:\n{output.read().decode(errors='replace')[-4000:]}")
            yield Server(process, port)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def until_listening(process: subprocess.Popen[bytes], port: int) -> bool:
    """Wait until a server accepts connections. Return False if it has ended or is too slow."""
    give_up = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < give_up:
        try:
            with socket.create_connection(("127.0.0.1", port)):
                return True
        except OSError:
            time.sleep(0.05)
    return False


# NATS, from Go's modules.


def go_program(name: str, package: str) -> Path:
    need("go")
    directory = CACHE / "nats"
    directory.mkdir(parents=True, exist_ok=True)
    run_tool("go", "build", "-o", directory / name, package, directory=NATS_SOURCES)
    return directory / name


@contextmanager
def running_nats() -> Iterator[Server]:
    """Run a NATS server with JetStream in files."""
    program, port = go_program("nats-server", NATS_SERVER), free_port()
    with tempfile.TemporaryDirectory(prefix="nats-") as home:
        command = [str(program), "--addr", "127.0.0.1", "--port", str(port), "--jetstream", "--store_dir", home]
        with running(command, port) as server:
            yield server


# Redis: the installed one, or that of Debian's packages without installing them.


def unpack_redis(directory: Path) -> None:
    """Unpack redis-server and the libraries that are not installed."""
    planned = run_tool("apt-get", "--simulate", "--no-install-recommends", "install", "redis-server")
    packages = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
    run_tool("apt-get", "download", *packages, directory=directory)
    for package in directory.glob("*.deb"):
        run_tool("dpkg", "-x", package, directory)


def redis_program() -> tuple[str, str]:
    """Return the program, and the directories of its libraries for the linker. Raises Missing."""
    installed = shutil.which("redis-server")
    if installed is not None:
        return installed, os.environ.get("LD_LIBRARY_PATH", "")
    try:
        need("apt-get", "dpkg")
        directory = cached("redis", b"redis-server", unpack_redis)
    except (Missing, ToolFailed) as error:
        raise Missing(f"redis-server is not installed, and not among Debian's packages ({error})") from error
    libraries = {str(path.parent) for path in (directory / "usr" / "lib").rglob("*.so*")}
    return str(directory / "usr" / "bin" / "redis-server"), os.pathsep.join(sorted(libraries))


@contextmanager
def running_redis() -> Iterator[Server]:
    """Run a Redis server with an append-only file, written to the disk every second."""
    (program, libraries), port = redis_program(), free_port()
    with tempfile.TemporaryDirectory(prefix="redis-") as home:
        command = [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", home, "--save", ""]
        command += ["--appendonly", "yes", "--appendfsync", "everysec"]
        with running(command, port, LD_LIBRARY_PATH=libraries) as server:
            yield server


# Kafka, from Maven Central.


def kafka_libraries() -> Path:
    """Return the directory of Kafka's jars."""
    need("java", "mvn")

    def copy(directory: Path) -> None:
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={directory}"]
        run_tool("mvn", "--quiet", "--batch-mode", "--file", KAFKA_POM, *goal)

    return cached("kafka", KAFKA_POM.read_bytes(), copy)


def kafka_settings(home: Path, port: int, controller_port: int, partitions: int = 1) -> str:
    """Return the configuration of one process that is broker and controller."""
    values = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "log.dirs": home / "log",
        "num.partitions": partitions,
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
    }
    return "".join(f"{key}={value}\n" for key, value in values.items())


@contextmanager
def running_kafka(partitions: int = 1) -> Iterator[Server]:
    """Run a Kafka broker that is its own controller. `partitions` are those of topics that it creates by itself."""
    libraries, port, controller_port = kafka_libraries(), free_port(), free_port()
    with tempfile.TemporaryDirectory(prefix="kafka-", ignore_cleanup_errors=True) as home:
        config = Path(home) / "server.properties"
        config.write_text(kafka_settings(Path(home), port, controller_port, partitions))
        java = ["java", "-Xmx512m", "-cp", f"{libraries}/*"]
        run_tool(*java, "kafka.tools.StorageTool", "format", "-t", KAFKA_ID, "-c", config)
        with running([*java, "kafka.Kafka", str(config)], port) as server:
            yield server


# The peers' Python clients.


def peers_python() -> Path:
    """Return the Python of an environment with the clients of python_peers.txt."""

    def install(directory: Path) -> None:
        run_tool(sys.executable, "-m", "venv", directory)
        pip = [directory / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run_tool(*pip, "--no-input", "--requirement", PEERS)

    directory = cached("python-peers", PEERS.read_bytes() + sys.version.encode(), install)
    return directory / "bin" / "python"
