"""The type variable of producers and consumers: the values that they send or receive, bytes without a serializer.

Defaults of type variables are for type checkers, which bring `typing_extensions` themselves; Python 3.11 has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=bytes)
else:
    from typing import TypeVar

    T = TypeVar("T")
