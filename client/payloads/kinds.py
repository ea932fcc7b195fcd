"""Types of values: how they are called, and what is certainly no value of them.

Nothing here guesses. Where a type has no class that a value could be compared with (`Any`, protocols, type variables,
types that a library makes other values of), everything fits.
"""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, NewType, Union, get_args, get_origin, is_typeddict

# Classes whose values count as values of another, as for type checkers.
_ALSO: dict[type, tuple[type, ...]] = {float: (float, int), bytes: (bytes, bytearray, memoryview)}


def classes_of(kind: Any) -> tuple[type, ...] | None:
    """Return classes of which each value of the type is an instance; None if that cannot be said."""
    origin = get_origin(kind)
    if origin is Annotated:
        return classes_of(get_args(kind)[0])
    if origin is Union or origin is UnionType:
        each = [classes_of(one) for one in get_args(kind)]
        return tuple(one for classes in each for one in classes or ()) if None not in each else None
    if isinstance(kind, NewType):
        return classes_of(kind.__supertype__)
    if is_typeddict(origin or kind):
        return (dict,)
    return (NoneType,) if kind is None else _class(origin or kind)


def _class(kind: Any) -> tuple[type, ...] | None:
    if kind is Any or not isinstance(kind, type):
        return None
    if hasattr(kind, "__get_pydantic_core_schema__") and not hasattr(kind, "model_fields"):
        return None  # for instance EmailStr, whose values are plain strings
    try:
        isinstance(None, kind)
    except TypeError:  # a protocol that cannot be checked
        return None
    return _ALSO.get(kind, (kind,))


def fits(kind: Any, wanted: Any) -> bool:
    """Return whether values of one type can be values of another; True if that cannot be said."""
    if get_origin(kind) is Annotated or get_origin(wanted) is Annotated:
        return fits(_plain(kind), _plain(wanted))
    have = classes_of(kind)
    want = classes_of(wanted)
    if have is None or want is None or kind == wanted:
        return True
    if is_typeddict(kind) and is_typeddict(wanted):
        return False
    if not all(issubclass(one, want) for one in have):
        return False
    of_one = get_args(kind)
    of_other = get_args(wanted)
    is_same = get_origin(kind) is get_origin(wanted) and get_origin(kind) not in (Union, UnionType)
    return not is_same or len(of_one) != len(of_other) or all(map(fits, of_one, of_other))


def _plain(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def names_of(one: Any, other: Any) -> tuple[str, str]:
    """Return what to call two types in one sentence: with their modules if they have the same name."""
    short = name_of(one), name_of(other)
    return short if short[0] != short[1] else (f"{one.__module__}.{short[0]}", f"{other.__module__}.{short[1]}")


def name_of(kind: Any) -> str:
    """Return what to call a type."""
    is_plain = isinstance(kind, type) and get_origin(kind) is None
    return kind.__qualname__ if is_plain else str(kind).removeprefix("typing.")
