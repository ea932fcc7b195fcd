"""Work for Spark tasks as the text of an option: functions travel by name, so they must be defined in a module."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

Walk = Callable[[Any], Iterable[tuple[Any, ...]]]
"""A piece of work -> its rows."""
Take = Callable[[Any, Iterator[Any]], None]
"""(argument, Arrow batches of one partition) -> nothing."""


def packed(work: Any) -> str:
    """Return a piece of work as the text of an option."""
    return base64.b64encode(pickle.dumps(work)).decode("ascii")


def unpacked(text: str) -> Any:
    """The inverse of `packed`."""
    return pickle.loads(base64.b64decode(text))
