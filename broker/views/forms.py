"""Fields of the forms of actions."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from triomq.dashboard.actions import Act, ActionRefused
from triomq.protocol.errors import BodyError, RequestRefused


def number_of(act: Act, name: str) -> int:
    """Return a whole number of a form. Raises ActionRefused."""
    text = act.fields[name].strip()
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ActionRefused(f"{name} is not a number")
    return int(text)


@contextmanager
def broker_refusals() -> Generator[None, None, None]:
    """Turn what the broker would refuse into what an action refuses."""
    try:
        yield
    except RequestRefused as error:
        raise ActionRefused(error.remark or "the broker refuses this") from None
    except BodyError as error:
        raise ActionRefused(str(error)) from None
