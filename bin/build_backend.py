"""The build backend of pyproject.toml: setuptools, which asks for mypy as well when TRIOMQ_COMPILE=1.

mypyc type-checks what it compiles, so it also needs the packages that TrioMQ imports.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    with _setup_py_without_extensions():
        return [*build_meta.get_requires_for_build_wheel(config_settings), *_for_mypyc()]


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    with _setup_py_without_extensions():
        return [*build_meta.get_requires_for_build_editable(config_settings), *_for_mypyc()]


@contextmanager
def _setup_py_without_extensions() -> Iterator[None]:
    """setuptools runs setup.py to ask for requirements, when mypyc is not there yet."""
    before = os.environ.get("TRIOMQ_PURE")
    os.environ["TRIOMQ_PURE"] = "1"
    try:
        yield
    finally:
        del os.environ["TRIOMQ_PURE"]
        if before is not None:
            os.environ["TRIOMQ_PURE"] = before


def _for_mypyc() -> list[str]:
    if os.environ.get("TRIOMQ_COMPILE") != "1":
        return []
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["build"]]
