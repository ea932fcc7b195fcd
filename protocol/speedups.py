"""Chooses between Python and C for the few functions on the path of every message.

`_speedups.c` in protocol/ and store/ implements these functions in C. There are exactly two kinds:

- `accelerated(function_reference)`: the Python function specifies the C function and replaces it where the extension is
  not built. A few C functions may return None in more cases; the docstring of the reference lists them.
- `fast_path(name)`: a decoder that handles only the usual input. It returns what the general decoder would return, or
  None, and then the caller runs the general decoder. Without the extension there is no fast path, because in Python the
  general decoder is the fastest.

The choice is made when a module is imported. TRIOMQ_PURE=1 in the environment selects Python everywhere. In a checkout,
a stale extension, built from other source than the file beside it, is not used.
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


def accelerated(reference: F, package: str | None = None) -> F:
    """Return the C function of the same name (without "_reference"), or `reference` if the extension is not built.

    The function comes from the `_speedups` module of a package, by default of that to which `reference` belongs (such
    as `triomq.store`).
    """
    module = load(package or _package_of(reference.__module__))
    found: F = getattr(module, reference.__name__.removesuffix(SUFFIX), reference)
    return found


def fast_path(name: str, user: str = __name__) -> Any:
    """Return the C function `name` of the package of the module `user`, or None if its extension is not built."""
    return getattr(load(_package_of(user)), name, None)


def _package_of(module: str) -> str:
    """Return `triomq.store` for `triomq.store.reading.collecting`."""
    return ".".join(module.split(".")[:2])


def load(package: str) -> ModuleType | None:
    """Return the C extension of `package`, or None if it is not built, stale or disabled by TRIOMQ_PURE."""
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
    """Return the CRC-32 of a `_speedups.c` and the files it includes, which setup.py writes into the extension."""
    protocol = source.parent.parent / "protocol"
    parts = {*protocol.glob("c/*.h"), *source.parent.glob("c/*.h")}
    crc = 0
    for file in (source, protocol / "_speedups.h", *sorted(parts)):
        crc = crc32(file.read_bytes(), crc)
    return crc


def running_build() -> str:
    """Return the build that is running: "compiled" (mypyc and C), "speedups" (C only) or "pure"."""
    frame = find_spec(f"{_PROTOCOL}.frame")
    if frame is not None and isinstance(frame.loader, ExtensionFileLoader):
        return "compiled"
    return "pure" if load(_PROTOCOL) is None else "speedups"
