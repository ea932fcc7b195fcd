"""The functions in C of a package (`_quick.c`), for tests that compare them with their twins in Python."""

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

from triomq.protocol.quick import built

ROOT = Path(__file__).resolve().parent.parent


@cache
def quick(package: str) -> ModuleType:
    """Those that are built, otherwise ones built for this test run; skips where there is no C compiler."""
    found = built(package)
    if found is not None:
        return found
    compiler = shutil.which("cc") or shutil.which("gcc")
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if compiler is None or not header.is_file():
        pytest.skip("no C compiler, or no Python.h")
    with tempfile.TemporaryDirectory() as directory:
        file = f"{directory}/_quick.so"
        command = [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror"]
        subprocess.run(
            [*command, f"-I{header.parent}", str(ROOT / package / "_quick.c"), "-o", file], check=True, timeout=120
        )
        loader = ExtensionFileLoader(f"{package}._quick", file)
        spec = spec_from_loader(loader.name, loader)
        assert spec is not None
        return module_from_spec(spec)
