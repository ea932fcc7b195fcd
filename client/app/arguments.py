"""Arguments by name: a handler gets what its parameters name, and nothing is looked up deeper than that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from typing import Any

from triomq.client.core.errors import ConfigurationError
from triomq.client.instance.handlers import is_async, name_of, parameters_of

_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


def check_names_arguments(function: Callable[..., Any], given: Iterable[str]) -> None:
    """Raise ConfigurationError for a function that names no argument, or has one that cannot be given by its name:
    known when it is registered, unlike which names exist."""
    parameters = parameters_of(function)
    wanted = f"by name {', '.join(given)}, producer, app, or what @app.provides provides"
    name = name_of(function)
    if parameters is None:
        raise ConfigurationError(f"{name} does not tell its parameters: wrap it in a function that accepts {wanted}")
    for parameter in parameters:
        if parameter.kind is parameter.POSITIONAL_ONLY and parameter.default is parameter.empty:
            raise ConfigurationError(f"{name} takes {parameter.name!r} by position alone: it must accept {wanted}")
    if not any(parameter.kind in _NAMED for parameter in parameters):
        raise ConfigurationError(f"{name} names nothing that it is called with: it must accept {wanted}")


def by_name(
    function: Callable[..., Any], given: Mapping[str, Callable[..., Any]], known: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return a function that calls `function` with the arguments that it names: those `given` with each call, made of
    what the caller passes, and those `known`. Raises ConfigurationError for a name that nobody provides."""
    parameters = {parameter.name: parameter for parameter in parameters_of(function) or ()}
    made = {name: given[name] for name in parameters if name in given}
    fixed = {name: known[name] for name in parameters if name in known and name not in given}
    for name, parameter in parameters.items():
        is_one = parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if is_one and parameter.default is parameter.empty and name not in made and name not in fixed:
            raise ConfigurationError(
                f"{name_of(function)} has a parameter {name!r} that nobody provides: name it one of "
                f"{', '.join([*given, *known])}, or provide it with @app.provides"
            )

    def arguments(passed: tuple[Any, ...]) -> dict[str, Any]:
        return {**fixed, **{name: make(*passed) for name, make in made.items()}}

    if not is_async(function):
        return lambda *passed: function(**arguments(passed))

    async def call(*passed: Any) -> Any:
        return await function(**arguments(passed))

    return call
