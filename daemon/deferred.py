"""Modules that are loaded when something of them is used, and not when they are imported.

trio imports ssl and structlog imports asyncio, of which a daemon without TLS uses nothing: together some 3 MiB, and a
tenth of what a start takes. `importlib.util.LazyLoader` cannot put this off, because its modules are loaded as soon as
a second `import` statement names them.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class _Deferred(ModuleType):
    """Stands in sys.modules for a module until an attribute of it is asked for. Who has imported it until then keeps
    this object, which has everything of the module from then on."""

    def __getattr__(self, attribute: str) -> Any:  # only what this object does not have
        name = self.__name__
        if sys.modules.get(name) is self:
            del sys.modules[name]
        module = importlib.import_module(name)  # threads that come here at the same time wait for one of them
        self.__dict__.update(module.__dict__)
        return getattr(module, attribute)


def defer(*names: str) -> None:
    """Put these modules off, unless they are loaded. Raises ModuleNotFoundError."""
    for name in names:
        if name in sys.modules:
            continue
        module = _Deferred(name)
        module.__spec__ = find_spec(name)
        if module.__spec__ is None:
            raise ModuleNotFoundError(f"no module named {name!r} to put off")
        sys.modules[name] = module
