"""The C extension of a package (`_speedups.c`), for tests that compare it with Python."""

from __future__ import annotations

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

from protocol.speedups import load

ROOT = Path(__file__).resolve().parent.parent


@cache
def built_speedups(package: str) -> ModuleType:
    """The extension that is built, otherwise one built for this test run; skips where there is no C compiler."""
    found = load(package)
    if found is not None:
        return found
    compiler = shutil.which("cc") or shutil.which("gcc")
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if compiler is None or not header.is_file():
        pytest.skip("no C compiler, or no Python.h")
    with tempfile.TemporaryDirectory() as directory:
        file = f"{directory}/_speedups.so"
        command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]
        subprocess.run(
            [*command, f"-I{header.parent}", str(ROOT / package / "_speedups.c"), "-o", file], check=True, timeout=120
        )
        loader = ExtensionFileLoader(f"{package}._speedups", file)
        spec = spec_from_loader(loader.name, loader)
        assert spec is not None
        return module_from_spec(spec)
