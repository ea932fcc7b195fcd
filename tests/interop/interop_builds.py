"""Builds the client drivers outside the source tree, once for each content (a hash of the sources)."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from built_once import built, run_tool

HERE = Path(__file__).resolve().parent
JAVA_NEEDED = 17


class ToolMissing(Exception):
    """A tool that a driver needs is not installed; the message names it."""


def need(tool: str) -> str:
    path = shutil.which(tool)
    if path is None:
        raise ToolMissing(f"{tool} is not installed")
    return path


@cache
def need_java() -> str:
    java = need("java")
    version = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30).stderr
    found = re.search(r'version "(\d+)', version)
    if found is None or int(found[1]) < JAVA_NEEDED:
        raise ToolMissing(f"Java {JAVA_NEEDED} is needed, found {version.splitlines()[:1]}")
    return java


@cache
def java_class_path(profile: str) -> str:
    """Return the class path of the Java driver built with the Maven profile `client4` or `client5`."""
    need_java()
    maven = need("mvn")
    directory = built(
        HERE / "java",
        f"java-{profile}",
        lambda workplace: run_tool([maven, "-q", "-B", f"-P{profile}", "package"], workplace),
    )
    return f"{directory}/target/driver.jar:{directory}/target/lib/*"


@cache
def java_agent() -> Path:
    """Return OpenTelemetry's agent, which instruments the Java client inside of a driver."""
    need_java()
    maven = need("mvn")
    directory = built(
        HERE / "java-agent", "java-agent", lambda workplace: run_tool([maven, "-q", "-B", "package"], workplace)
    )
    return directory / "target" / "opentelemetry-javaagent.jar"


@cache
def node_driver(name: str = "node") -> Path:
    """Return the driver in a directory beside this file: `node` or `grpc-node`."""
    need("node")
    npm = need("npm")
    install = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    return built(HERE / name, name, lambda workplace: run_tool(install, workplace)) / "driver.js"


@cache
def go_driver(name: str = "go") -> Path:
    """Return the driver in a directory beside this file: `go` or `grpc-go`."""
    go = need("go")
    directory = built(
        HERE / name, name, lambda workplace: run_tool([go, "build", "-mod=readonly", "-o", "driver", "."], workplace)
    )
    return directory / "driver"


@cache
def cpp_client() -> Path:
    """Return the directory with the C++ driver and the wheel of the C++ client."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise ToolMissing("the C++ client comes as a wheel for Linux on x86_64")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    install += ["--only-binary", ":all:", "--target", ".", "--requirement", "requirements.txt"]
    return built(HERE / "cpp", "cpp", lambda workplace: run_tool(install, workplace))


@cache
def grpc_java_class_path() -> str:
    """Return the class path of the driver with RocketMQ 5's gRPC client for Java."""
    need_java()
    maven = need("mvn")
    directory = built(
        HERE / "grpc-java", "grpc-java", lambda workplace: run_tool([maven, "-q", "-B", "package"], workplace)
    )
    return f"{directory}/target/driver.jar:{directory}/target/lib/*"


@cache
def grpc_python_client() -> Path:
    """Return the directory with the driver and RocketMQ 5's gRPC client for Python, which is not for this process."""
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    install += ["--only-binary", ":all:", "--target", "lib", "--requirement", "requirements.txt"]
    return built(HERE / "grpc-python", "grpc-python", lambda workplace: run_tool(install, workplace))
