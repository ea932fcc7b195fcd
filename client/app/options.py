"""The options of handlers and applications."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from difflib import get_close_matches
from typing import Any, TypedDict

from triomq.client.core.allocation import Strategy
from triomq.client.core.config import ClientOptions
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.errors import ConfigurationError
from triomq.client.core.hooks import ConsumeHook, FilterHook
from triomq.client.core.option_names import check_option_names
from triomq.client.core.results import ConsumeFromWhere, MessageModel
from triomq.client.payloads.serializer import Serializer


class ConsumerOptions(TypedDict, total=False):
    """Keyword arguments of `TrioMQ.consumer` that go to the handler's `PushConsumer`; see there for what they mean."""

    model: MessageModel
    ordered: bool
    consume_from: ConsumeFromWhere
    consume_from_time: datetime | None
    strategy: Strategy | None
    rules: ConsumeRules | None
    consume_hooks: Iterable[ConsumeHook]
    filter_hooks: Iterable[FilterHook]
    trace: bool | str


class HandlerOptions(ConsumerOptions, total=False):
    """Further keyword arguments of `TrioMQ.consumer`; see there for what they mean."""

    publish_to: str
    publish_serializer: Serializer[Any]


def check_consumer_options(given: Mapping[str, object]) -> None:
    """Raise ConfigurationError for a keyword argument that `TrioMQ.consumer` does not have."""
    known = ("topic", "expression", "group", "retries", "serializer", *HandlerOptions.__annotations__)
    for name in given:
        if name in ClientOptions.__annotations__:
            raise ConfigurationError(f"{name!r} is an option of the application, not of a handler: TrioMQ({name}=...)")
    check_option_names("app.consumer", given, known, rules="ConsumeRules")


def check_application_options(given: Mapping[str, object]) -> None:
    """Raise ConfigurationError for a keyword argument that `TrioMQ` does not have."""
    check_option_names(
        "TrioMQ", given, ("name", "serializer", "backend", "send_timeout_seconds", *ClientOptions.__annotations__)
    )


def unsettable(name: str, attributes: Collection[str]) -> str:
    """Return why an application has no such attribute to set, and what to do instead."""
    options = ("serializer", "send_timeout_seconds", *ClientOptions.__annotations__)
    near = next(iter(get_close_matches(name, {*options, *attributes}, 1)), None)
    meant = "" if near in (None, name) else f" did you mean {near!r}?"
    if near in options:
        return (
            f"an application has no attribute {name!r} to set:{meant} {near} is given to TrioMQ(...), and in a test "
            "`with app.testing(rocketmq):` points the application at its cluster"
        )
    return f"an application has no attribute {name!r} to set{f':{meant}' if meant else ''}"
