"""What type checkers know of an application: the values of its producer, and which class its producer has.

`TrioMQ("shop")` has a `triomq.aio.Producer`, `TrioMQ("shop", backend="trio")` a `triomq.Producer`. `TrioMQ[Order]` is
an application on asyncio whose producer sends orders.
"""

from __future__ import annotations

from types import GenericAlias
from typing import TYPE_CHECKING, Generic

if TYPE_CHECKING:  # type checkers bring `typing_extensions` themselves
    from typing_extensions import TypeVar

    from triomq.client.core.type_variables import T
    from triomq.client.facades.aio import Producer

    P = TypeVar("P", default=Producer[T])

    class OfKinds(Generic[T, P]):
        """An application whose producer is a P, which sends values of type T."""

else:

    class OfKinds:
        __slots__ = ()
        # Python 3.11 has no defaults of type variables: TrioMQ[Order] names one of two.
        __class_getitem__ = classmethod(GenericAlias)
