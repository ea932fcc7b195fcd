"""Arguments by name: a handler gets what its parameters name, and nothing is looked up deeper than that."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from triomq.client.core.errors import ConfigurationError
from triomq.client.instance.handlers import is_async


def by_name(
    function: Callable[..., Any], given: Mapping[str, Callable[..., Any]], known: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return a function that calls `function` with the arguments that it names: those `given` with each call, made of
    what the caller passes, and those `known`. Raises ConfigurationError for a name that nobody provides."""
    parameters = inspect.signature(function).parameters
    made = {name: given[name] for name in parameters if name in given}
    fixed = {name: known[name] for name in parameters if name in known and name not in given}
    for name, parameter in parameters.items():
        is_one = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if is_one and parameter.default is parameter.empty and name not in made and name not in fixed:
            raise ConfigurationError(
                f"{function.__qualname__} has a parameter {name!r} that nobody provides: name it one of "
                f"{', '.join([*given, *known])}, or provide it with @app.provides"
            )

    def arguments(passed: tuple[Any, ...]) -> dict[str, Any]:
        return {**fixed, **{name: make(*passed) for name, make in made.items()}}

    if not is_async(function):
        return lambda *passed: function(**arguments(passed))

    async def call(*passed: Any) -> Any:
        return await function(**arguments(passed))

    return call
