"""Builds the client drivers outside the source tree, once for each content (a hash of the sources)."""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from one_at_a_time import cache_directory, one_at_a_time

HERE = Path(__file__).resolve().parent
BUILD_SECONDS = 400
JAVA_NEEDED = 17


class ToolMissing(Exception):
    """A tool that a driver needs is not installed; the message names it."""


def source_hash(source: Path, extra: str) -> str:
    digest = hashlib.sha256(extra.encode())
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        if "target" not in path.parts and "node_modules" not in path.parts:
            digest.update(str(path.relative_to(source)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def built(source: Path, variant: str, build: Callable[[Path], None]) -> Path:
    """The directory with the built driver; `build` runs in a copy of `source` that counts only when it succeeded."""
    target = cache_directory() / f"{variant}-{source_hash(source, variant)}"
    with one_at_a_time():
        if target.exists():
            return target
        workplace = Path(tempfile.mkdtemp(prefix=f"{variant}-", dir=target.parent))
        try:
            shutil.copytree(source, workplace, dirs_exist_ok=True)
            build(workplace)
            workplace.rename(target)
        finally:
            shutil.rmtree(workplace, ignore_errors=True)
    return target


def run_tool(argv: list[str], directory: Path) -> None:
    done = subprocess.run(
        argv, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_SECONDS
    )
    if done.returncode != 0:
        output = (done.stdout + done.stderr)[-4000:]
        raise AssertionError(f"{' '.join(argv)} failed with {done.returncode}:\n{output}")


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
    """Class path of the Java driver built with the Maven profile `client4` or `client5`."""
    need_java()
    maven = need("mvn")
    directory = built(
        HERE / "java",
        f"java-{profile}",
        lambda workplace: run_tool([maven, "-q", "-B", f"-P{profile}", "package"], workplace),
    )
    return f"{directory}/target/driver.jar:{directory}/target/lib/*"


@cache
def node_driver() -> Path:
    need("node")
    npm = need("npm")
    install = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    return built(HERE / "node", "node", lambda workplace: run_tool(install, workplace)) / "driver.js"


@cache
def go_driver() -> Path:
    go = need("go")
    directory = built(
        HERE / "go", "go", lambda workplace: run_tool([go, "build", "-mod=readonly", "-o", "driver", "."], workplace)
    )
    return directory / "driver"


@cache
def cpp_client() -> Path:
    """The directory with the C++ driver and, beside it, the wheel that carries the C++ client."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise ToolMissing("the C++ client comes as a wheel for Linux on x86_64")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    install += ["--only-binary", ":all:", "--target", ".", "--requirement", "requirements.txt"]
    return built(HERE / "cpp", "cpp", lambda workplace: run_tool(install, workplace))
