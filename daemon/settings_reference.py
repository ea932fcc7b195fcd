"""The meaning of each setting as text: an annotated configuration file (`-p --explain`) and manual page entries.

Everything comes from the declarations in the settings records, so that help, manual pages and documentation cannot
contradict the code.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from textwrap import wrap
from typing import Any

from triomq.daemon.configuration import ConfigurationLayers
from triomq.protocol.settings import Declaration, declarations, value_text

_WIDTH = 100


def explained(
    records: Iterable[Any], layers: ConfigurationLayers, *, important_only: bool = False, own_only: bool = False
) -> str:
    """Return all settings with their current values as a configuration file, with a comment that explains each."""
    entries: list[str] = []
    for record in records:
        for declaration in declarations(type(record)):
            if (declaration.important or not important_only) and (declaration.own or not own_only):
                entries.append(_entry(declaration, getattr(record, declaration.name), layers))
    return "\n".join(entries)


def facts(declaration: Declaration, default: str | None = None) -> Iterator[str]:
    """Yield short facts about a setting, such as "default 500", "ms" and "changeable at run time". `default` is that of
    the program, if it has one of its own."""
    if declaration.ignored or declaration.retired:
        return
    if declaration.own:
        yield "TrioMQ only"
    if default is None and declaration.default is not None:
        default = value_text(declaration.default)
    if default:
        yield f"default {default}"
    elif declaration.is_computed:
        yield "default computed at the start"
    if declaration.type is bool:
        yield "true or false"
    if isinstance(declaration.type, type) and issubclass(declaration.type, Enum):
        yield " or ".join(declaration.type.__members__)
    yield from filter(None, (declaration.unit, _bounds(declaration)))
    yield "changeable at run time" if declaration.changeable else "needs a restart"


def _entry(declaration: Declaration, value: Any, layers: ConfigurationLayers) -> str:
    source = layers.source(declaration.key)
    notes = "; ".join(facts(declaration, layers.defaults.get(declaration.key)))
    lines = wrap(declaration.meaning, _WIDTH - 2) + wrap(notes, _WIDTH - 2)
    if source != "default":
        lines.append(f"set by {source}")
    text = "" if value is None else value_text(value)
    # What is printed may become the file of the next start, in which a retired key would cause a warning.
    entry = f"# {declaration.shown_as}" if declaration.retired else f"{declaration.shown_as}={text}"
    return "".join(f"# {line}\n" for line in lines) + f"{entry}\n"


def _bounds(declaration: Declaration) -> str:
    low, high = declaration.minimum, declaration.maximum
    if low is not None and high is not None:
        return f"from {low} to {high}"
    if low is not None:
        return f"at least {low}"
    return f"at most {high}" if high is not None else ""
