"""The type that a handler's value is annotated with is the type that is decoded, or the application does not start."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import NoneType, SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from triomq.client.core.errors import ConfigurationError
from triomq.client.core.results import ConsumeStatus
from triomq.client.instance.handlers import name_of, parameters_of
from triomq.client.payloads.kinds import fits, names_of
from triomq.client.payloads.kinds import name_of as name_of_type
from triomq.client.payloads.serializer import Serializer
from triomq.protocol.message import Message, MessageExt


def serializer_for(function: Callable[..., Any], given: Serializer[Any] | None) -> Serializer[Any] | None:
    """Return the serializer with which this handler gets the values that its annotations name: the given one, and if
    that has no type of its own one for the annotated type. Raises ConfigurationError if there is none."""
    serializer = given
    for parameter, wanted in _wanted(function):
        text = f"{name_of(function)} takes {parameter}"
        have = bytes if serializer is None else serializer.value_type()
        if serializer is not None and have is Any:
            try:
                serializer = serializer.for_type(wanted)
            except ConfigurationError as error:
                raise ConfigurationError(f"{text} of type {name_of_type(wanted)}: {error}") from error
        elif not fits(have, wanted):
            one, other = names_of(wanted, have)
            if serializer is None:
                raise ConfigurationError(
                    f"{text} of type {one}, but without a serializer it is {other}: give serializer=Json({one}), or "
                    "another of triomq.serializers"
                )
            raise ConfigurationError(
                f"{text} of type {one}, but {type(serializer).__name__} makes values of type {other}: give this "
                f"handler a serializer for {one}"
            )
    return serializer


def check_returns(function: Callable[..., Any], serializer: Serializer[Any] | None) -> None:
    """Raise ConfigurationError for a handler whose results are published, by this serializer, and which returns what
    that cannot write, as far as its annotation tells."""
    have = bytes if serializer is None else serializer.value_type()
    for kind in returned_values(function):
        if fits(kind, have):
            continue
        one, other = names_of(kind, have)
        name = type(serializer).__name__
        writes = "no serializer" if serializer is None else f"{name}, which writes values of type {other}"
        raise ConfigurationError(
            f"{name_of(function)} returns {one}, which is published, but there is {writes}: give "
            f"publish_serializer=Json({one}), or another of triomq.serializers"
        )


def returned_values(function: Callable[..., Any]) -> list[Any]:
    """Return the types of values that a handler returns, as far as its annotation tells; Any if it does not."""
    returned = _resolved(function, _returned(function))
    kinds = get_args(returned) if get_origin(returned) in (Union, UnionType) else (returned,)
    others = (None, NoneType, ConsumeStatus)
    return [kind for kind in kinds if kind not in others and (kind is Any or not fits(kind, Message))]


def _returned(function: Callable[..., Any]) -> Any:
    """Return the annotation of what a function returns; Any without one."""
    try:
        annotation = inspect.signature(function).return_annotation
    except (TypeError, ValueError):
        return Any
    return Any if annotation is inspect.Signature.empty else annotation


def _wanted(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """Yield the types of values that the annotations name, each with the parameter."""
    for parameter in parameters_of(function) or ():
        if parameter.name not in ("value", "message") or parameter.annotation is parameter.empty:
            continue
        kind = _resolved(function, parameter.annotation)
        if parameter.name == "value":
            yield "the value", kind
        elif get_origin(kind) is MessageExt:
            yield "the value of its message", get_args(kind)[0]
        elif not fits(MessageExt, kind):
            name = name_of_type(kind)
            raise ConfigurationError(
                f"{name_of(function)} takes a message of type {name}, which is a MessageExt: write value: {name}, or "
                f"message: MessageExt[{name}]"
            )


def _resolved(function: Callable[..., Any], annotation: Any) -> Any:
    """Return the type that an annotation means; Any for a name that only type checkers know."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    function = inspect.unwrap(getattr(function, "__func__", function))
    closure = inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}
    holder = SimpleNamespace(__annotations__={"value": annotation})
    try:
        hints = get_type_hints(holder, getattr(function, "__globals__", {}), dict(closure), include_extras=True)
    except Exception:  # whatever evaluating the text of an annotation may raise
        return Any
    return hints["value"]
