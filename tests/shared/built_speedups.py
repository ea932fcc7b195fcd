"""Builds the C extension of a package (`_speedups.c`) for the tests that compare it with Python.

TRIOMQ_SANITIZED=1 builds it with AddressSanitizer and UndefinedBehaviorSanitizer, whose library must be preloaded:
bin/dev/test-sanitized and bin/dev/fuzz see to that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
import tempfile
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

from triomq.protocol.speedups import load, source_crc

ROOT = Path(__file__).resolve().parents[2]
STRICT = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]
SANITIZE = ["-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]


def is_sanitized() -> bool:
    return os.environ.get("TRIOMQ_SANITIZED") == "1"


@cache
def built_speedups(package: str) -> ModuleType:
    """Return the installed extension, or one built for this test run. Skip the test without a C compiler."""
    found = None if is_sanitized() else load(f"triomq.{package}")
    if found is not None:
        return found
    with tempfile.TemporaryDirectory() as directory:
        return compile_speedups(package, Path(directory))


def compile_speedups(package: str, directory: Path, *more: str) -> ModuleType:
    """Build the extension into `directory` with strict warnings; `more`: further flags and files for the compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if compiler is None or not header.is_file():
        pytest.skip("no C compiler, or no Python.h")
    file = directory / f"{package}_speedups.so"
    source = ROOT / "src" / "triomq" / package / "_speedups.c"
    command = [compiler, "-shared", "-fPIC", "-O1", *STRICT, *(SANITIZE if is_sanitized() else []), *more]
    command += [f"-I{header.parent}", f"-DSOURCE_CRC={source_crc(source)}u", str(source), "-o", str(file)]
    subprocess.run(command, check=True, timeout=120)
    loader = ExtensionFileLoader(f"triomq.{package}._speedups", str(file))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    return module_from_spec(spec)
