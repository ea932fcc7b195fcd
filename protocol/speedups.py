"""Chooses between Python and C for the few functions that every message passes.

`_speedups.c` in protocol/ and store/ implements them again in C. There are two kinds, and no third:

- `accelerated(function_reference)`: the Python function is the definition of the C one, and runs where the extension is
  not built. A few of the C functions may also return None, where the docstring of the reference says so.
- `fast_path(name)`: a decoder that handles the usual input only. It returns what the general decoder beside it
  would return, or None, and then the general decoder runs. Without the extension there is no fast path, because in
  Python the general decoder is the fastest.

The choice is made when a module is imported. TRIOMQ_PURE=1 in the environment chooses Python everywhere. In a checkout,
an extension that was built from other source than what lies beside it is not used.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.machinery import ExtensionFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar
from zlib import crc32

F = TypeVar("F", bound=Callable[..., Any])

SUFFIX = "_reference"
_PROTOCOL = __name__.rpartition(".")[0]


def accelerated(reference: F) -> F:
    """The C function of the same name (less "_reference") from the `_speedups` module of the room (`triomq.store`) that
    `reference` belongs to, or `reference` itself where that module is not built."""
    module = load(".".join(reference.__module__.split(".")[:2]))
    found: F = getattr(module, reference.__name__.removesuffix(SUFFIX), reference)
    return found


def fast_path(name: str) -> Any:
    """The C decoder `name` of protocol/, or None where it is not built."""
    return getattr(load(_PROTOCOL), name, None)


def load(package: str) -> ModuleType | None:
    """The C extension of `package`, or None where it is not built or not wanted."""
    if os.environ.get("TRIOMQ_PURE") == "1":
        return None
    return _import(f"{package}._speedups")


@cache
def _import(name: str) -> ModuleType | None:
    try:
        module = import_module(name)
    except ImportError:
        return None
    source = Path(str(module.__file__)).with_name("_speedups.c")
    is_stale = source.is_file() and source_crc(source) != module.SOURCE_CRC
    return None if is_stale else module


def source_crc(source: Path) -> int:
    """CRC-32 of a `_speedups.c` and the header it includes, which setup.py writes into the extension."""
    header = source.parent.parent / "protocol" / "_speedups.h"
    return crc32(header.read_bytes(), crc32(source.read_bytes()))


def running_build() -> str:
    """Which build of the code is running: "compiled" (mypyc and C), "speedups" (C only) or "pure"."""
    frame = find_spec(f"{_PROTOCOL}.frame")
    if frame is not None and isinstance(frame.loader, ExtensionFileLoader):
        return "compiled"
    return "pure" if load(_PROTOCOL) is None else "speedups"
