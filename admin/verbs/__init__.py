"""The verbs: one module for each first word; the function of `offsets reset` is `offsets_reset` in `offsets`."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from triomq.admin.run import Run


def function_of(verb: str) -> Callable[[Run], None]:
    """Return the function that runs a verb of the table."""
    module = import_module(f"triomq.admin.verbs.{verb.split(' ')[0]}")
    function: Callable[[Run], None] = getattr(module, verb.replace(" ", "_"))
    return function
