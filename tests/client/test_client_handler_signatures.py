"""Handlers that cannot be called, or not with the type that they name, are refused before a message comes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from client_fakes import NAME_SERVER

import triomq
from triomq import ConfigurationError, TrioMQ, aio, blocking

FACES = [triomq, aio, blocking]


def none() -> None: ...


def two(first: object, second: object) -> None: ...


def key_only(message: object, *, rate: float) -> None: ...


async def async_two(first: object, second: object) -> None: ...


class Bill:
    def handle(self, message: object, rate: float) -> None: ...

    async def __call__(self) -> None: ...


WRONG: list[tuple[Any, str]] = [
    (none, "none cannot be called as none(message): too many positional arguments; it must accept (message)"),
    (two, "two cannot be called as two(message): missing a required argument: 'second'; it must accept (message)"),
    (async_two, "async_two cannot be called as async_two(message): missing a required argument: 'second'"),
    (key_only, "key_only cannot be called as key_only(message): missing a required"),
    (Bill().handle, "Bill.handle cannot be called as Bill.handle(message): missing a required argument: 'rate'"),
    (Bill(), "Bill cannot be called as Bill(message): too many positional arguments"),
    (functools.partial(two, 1, 2), "two cannot be called as two(message): too many positional arguments"),
    (17, "a handler is a function, not 17"),
]


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(("handler", "says"), WRONG)
def test_a_listener_that_cannot_be_called_with_a_message_is_refused(face: Any, handler: Any, says: str) -> None:
    consumer = face.PushConsumer("g", name_server=NAME_SERVER)
    with pytest.raises(ConfigurationError) as refused:
        consumer.listen(handler)
    assert str(refused.value).startswith(says)
    with pytest.raises(ConfigurationError) as refused:
        consumer.listen_batch(handler)
    assert str(refused.value).startswith(says.replace("message", "messages"))


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    "handler",
    [
        lambda message: None,
        lambda *messages: None,
        lambda message, rate=1.5, *, again=1, **more: None,
        functools.partial(two, second=2),
        functools.partial(two, 1),
        print,
        int,
    ],
)
def test_a_listener_that_can_be_called_with_a_message_is_taken(face: Any, handler: Callable[..., Any]) -> None:
    face.PushConsumer("g", name_server=NAME_SERVER).listen(handler)


@pytest.mark.parametrize("face", FACES)
def test_a_local_transaction_takes_a_message_and_an_argument_and_its_check_a_message(face: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"none cannot be called as none\(message, argument\): too many"):
        face.TransactionProducer("g", none, print, name_server=NAME_SERVER)
    with pytest.raises(ConfigurationError, match=r"two cannot be called as two\(message\): missing .* 'second'"):
        face.TransactionProducer("g", two, two, name_server=NAME_SERVER)
    face.TransactionProducer("g", two, lambda message: None, name_server=NAME_SERVER)


def by_position(value: object, /) -> None: ...


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (none, "none names nothing that it is called with: it must accept by name message, value, producer, app, or"),
        (lambda *messages: None, "<lambda> names nothing that it is called with"),
        (by_position, "by_position takes 'value' by position alone: it must accept by name message, value, producer"),
        (Bill(), "Bill names nothing that it is called with"),
        (17, "a handler is a function, not 17"),
    ],
)
def test_a_handler_of_an_application_that_cannot_be_called_by_names_is_refused(handler: Any, says: str) -> None:
    app = TrioMQ("p", name_server=NAME_SERVER)
    says_of_locals = says.replace("<lambda>", handler.__qualname__) if "<lambda>" in says else says
    for register in (app.consumer("T", group="g"), app.transaction("t"), app.transaction("u")(key_only).check):
        with pytest.raises(ConfigurationError) as refused:
            register(handler)
        assert str(refused.value).startswith(says_of_locals.partition(": it must")[0])
    with pytest.raises(ConfigurationError) as refused:
        app.consumer("T", group="g")(handler)
    assert str(refused.value).startswith(says_of_locals)


def test_a_handler_may_take_what_it_names_by_keyword_alone() -> None:
    app = TrioMQ("p", name_server=NAME_SERVER)
    app.consumer("T", group="g")(key_only)
