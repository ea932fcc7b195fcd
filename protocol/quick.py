"""Which twin runs: the functions of `_quick.c` where that was built (bin/build), otherwise those in Python.

Half a dozen functions are on the road of every message and are nothing but bytes. Each is written twice: in Python,
which says what it does and runs everywhere, and in C. `twin` picks one when its module is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

SUFFIX = "_in_python"


def twin(function: F) -> F:
    """The C twin of `function`, whose name ends with "_in_python": that of the same name in `_quick` of its package.
    The function itself where nothing was built."""
    found: F = getattr(built(function.__module__.partition(".")[0]), function.__name__.removesuffix(SUFFIX), function)
    return found


def built(package: str) -> ModuleType | None:
    """The package's functions in C, None where they were not built."""
    try:
        return import_module(f"{package}._quick")
    except ImportError:
        return None
