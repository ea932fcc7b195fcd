"""Detecting the moment at which an async call has to wait."""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


@types.coroutine
def tell_when_blocked(coroutine: Coroutine[Any, Any, T], blocked: Callable[[], None]) -> Generator[Any, Any, T]:
    """Await `coroutine`; call `blocked()` when it first has to wait for something, not at all when it never does.

    What the event loop sends and throws passes through, as with a plain `await`.
    """
    try:
        trap = coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    blocked()
    while True:
        try:
            sent = yield trap
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:
            try:
                trap = coroutine.throw(error)
            except StopIteration as end:
                result = end.value
                return result
        else:
            try:
                trap = coroutine.send(sent)
            except StopIteration as end:
                result = end.value
                return result
