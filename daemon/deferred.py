"""Modules that dependencies import and daemons do not use.

trio imports ssl and structlog imports asyncio, of which a daemon without TLS uses nothing: together some 3 MiB, and a
tenth of what a start takes. They are loaded when something of them is used. `importlib.util.LazyLoader` cannot put this
off, because its modules are loaded as soon as a second `import` statement names them.

structlog also imports what makes tracebacks colorful, and greenlet, if other packages have brought them along: 4 MiB
more in a daemon that shows no colors.
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


def import_without(name: str, *others: str) -> None:
    """Import a module that does without these packages where they are not installed, as if they were not. They can be
    imported afterwards."""
    hidden = [other for other in others if other not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: "import" raises ModuleNotFoundError
    try:
        importlib.import_module(name)
    finally:
        for other in hidden:
            del sys.modules[other]
