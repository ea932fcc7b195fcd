"""Import structlog without asyncio.

structlog imports asyncio for the coroutines among its methods, which no daemon calls: two megabytes of memory and a
twentieth of the start. While a daemon imports structlog, a module stands in for asyncio that looks each name up in the
real one when it is asked for. Only structlog keeps it; a later import of asyncio gets asyncio.

The main module of a daemon imports this one before anything that imports structlog.
"""

import importlib
import sys
from types import ModuleType
from typing import Any


class _Asyncio(ModuleType):
    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module("asyncio"), name)


if "asyncio" not in sys.modules:
    sys.modules["asyncio"] = _Asyncio("asyncio")
    try:
        importlib.import_module("structlog")
    finally:
        del sys.modules["asyncio"]
