"""What a class says to mypyc. The decorator is a part of mypy, which only `bin/build` needs; at run time it is one that
does nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["mypyc_attr"]

if TYPE_CHECKING:
    from mypy_extensions import mypyc_attr
else:

    def mypyc_attr(**_: Any) -> Any:
        return lambda compiled: compiled
