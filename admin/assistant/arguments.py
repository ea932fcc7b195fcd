"""The arguments of a tool: their JSON Schema, from the options of a command or verb, and the words of the command line
that a call stands for.

A property has the long name of its option, or the name of an argument (`GROUP`).
"""

from __future__ import annotations

from triomq.admin.assistant.offers import FIXED, HIDDEN, NEEDED
from triomq.admin.command import Command
from triomq.admin.errors import UsageError
from triomq.admin.verb import SEPARATOR, Verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Program = Command | Verb
    Schema = dict[str, Any]

ALWAYS_HIDDEN = frozenset({"help", "namesrvAddr"})
WHOLE_NUMBERS = frozenset({"N", "BYTES", "LEVEL"})


def input_schema(program: Program) -> Schema:
    """Return the schema of the object with a tool's arguments."""
    properties: dict[str, Schema] = {}
    required = set(NEEDED.get(program.name, ()))
    if isinstance(program, Verb):
        for argument in program.arguments:
            name = argument.strip("[].")
            properties[name] = _listed({"type": "string"}, argument.endswith("...]"))
            if not argument.startswith("["):
                required.add(name)
    for name, (_, value, text) in _options(program).items():
        properties[name] = {**_kind(value), "description": text}
    if isinstance(program, Command):
        required |= {_name(option.name) for option in program.options if option.is_required}
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name in required],
        "additionalProperties": False,
    }


def parsed(program: Program, arguments: dict[str, Any]) -> dict[str, str]:
    """Return the options of a call as `parse` of the command line does. Raises UsageError for what does not fit."""
    schema = input_schema(program)
    for name in schema["required"]:
        if name not in arguments:
            raise UsageError(f"{name} is missing")
    given = {name: value for name, value in arguments.items() if value is not None}
    unknown = [name for name in given if name not in schema["properties"]]
    if unknown:
        raise UsageError(
            f"unknown: {', '.join(unknown)}; there are {', '.join(schema['properties']) or 'no arguments'}"
        )
    words = list(FIXED.get(program.name, ()))
    for name, (letter, value, _) in _options(program).items():
        for text in _texts(name, given.get(name), value) if name in given else []:
            if isinstance(program, Verb):
                words.append(f"--{name}={text}" if value else f"--{name}")
            else:
                words += [f"-{letter}", text] if value else [f"-{letter}"]
    if "-" in given.values():
        raise UsageError("- stands for standard input, which a tool does not have")
    if isinstance(program, Verb):
        words.append("--")
        for argument in program.arguments:
            name = argument.strip("[].")
            if name in given:
                words += _texts(name, given[name], "VALUE..." if argument.endswith("...]") else "VALUE")
    return program.parse(words)


def _options(program: Program) -> dict[str, tuple[str, str, str]]:
    """Return (letter, name of the value or "" without one, help) of the options that the tool has, by long name."""
    if isinstance(program, Verb):
        found = {name: (letter, value, text) for name, letter, value, text in program.options}
    else:
        found = {
            _name(option.name): (option.letter, "VALUE" if option.takes_value else "", option.help)
            for option in program.options
        }
    hidden = ALWAYS_HIDDEN | HIDDEN.get(program.name, frozenset())
    return {name: option for name, option in found.items() if name not in hidden}


def _name(long_name: str) -> str:
    """Return a long name without the blanks that some of RocketMQ's have."""
    return long_name.strip().replace(" ", "_")


def _kind(value: str) -> Schema:
    """Return the schema of an option by the name of its value."""
    if not value:
        return {"type": "boolean"}
    name = value.removesuffix("...")
    if name in WHOLE_NUMBERS:
        kind: Schema = {"type": "integer", "minimum": 0}
    elif name in ("NUMBER", "SECONDS"):
        kind = {"type": "number"}
    else:
        kind = {"type": "string"}
    return _listed(kind, value.endswith("..."))


def _listed(kind: Schema, is_list: bool) -> Schema:
    return {"type": "array", "items": kind} if is_list else kind


def _texts(name: str, given: object, value: str) -> list[str]:
    """Return the values of an option or argument as words. Raises UsageError for what is not of its kind."""
    if not value:
        if not isinstance(given, bool):
            raise UsageError(f"{name} is true or false")
        return [""] if given else []
    if isinstance(given, list) and value.endswith("..."):
        return [_text(name, each) for each in given]
    return [_text(name, given)]


def _text(name: str, given: object) -> str:
    if isinstance(given, bool):
        return "true" if given else "false"
    if isinstance(given, float) and given.is_integer():
        given = int(given)
    if not isinstance(given, str | int | float):
        raise UsageError(f"{name} is a text or a number")
    text = str(given)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{name} is not text") from None
    if SEPARATOR in text:
        raise UsageError(f"{name} has a character that no name has")
    return text
