"""What a class says to mypyc. The decorator is part of mypy, which only `bin/build` needs, so at run time it is another
that does nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = ["mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_: Any) -> Callable[[type], type]:
        """Return a class unchanged."""
        return lambda compiled: compiled
