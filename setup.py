"""Compiles the hot modules with mypyc, and the few functions that have a twin in C, where that is asked for:
TRIOMQ_COMPILE=1 pip install . (or bin/build).

Without it, and where no C compiler is, the same source runs as plain Python.
"""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Extension, setup

HERE = Path(__file__).resolve().parent


def hot_modules() -> list[str]:
    """The files to compile, one a line in compiled.txt; as modules of `triomq`, they are found through src/."""
    lines = (HERE / "compiled.txt").read_text().splitlines()
    return [f"src/triomq/{line.strip()}" for line in lines if line.strip() and not line.startswith("#")]


def extensions() -> list[object]:
    if os.environ.get("TRIOMQ_COMPILE") != "1":
        return []
    from mypyc.build import mypycify

    options = ["--config-file", str(HERE / "pyproject.toml")]
    twins = [
        Extension(
            f"triomq.{room}._speedups",
            [f"src/triomq/{room}/_speedups.c"],
            depends=["src/triomq/protocol/_speedups.h"],
            extra_compile_args=["-O3", "-g0"],
        )
        for room in ("protocol", "store")
    ]
    return [*mypycify([*options, *hot_modules()], opt_level="3", debug_level="0"), *twins]


setup(ext_modules=extensions())
