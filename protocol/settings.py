"""Declarative configuration records: frozen Structs whose fields declare RocketMQ key, bounds and meaning.

    class StoreSettings(SettingsRecord, frozen=True, kw_only=True):
        flush_interval_ms: int = setting("flushIntervalCommitLog", 500, meaning="ms between flushes", minimum=1)

    settings, used = bind(StoreSettings, {"flushIntervalCommitLog": "200"}, source="broker.conf")
    to_text(settings)                                              # {"flushIntervalCommitLog": "200"}
    changed(settings, {"flushIntervalCommitLog": "100"})           # only settings declared changeable

Values arrive as text (properties files, command lines, update requests). The annotated type of the field determines how
they are parsed: bool, int, float, str, an Enum (by name), or one of these `| None` (empty text is None).
"""

import types
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache, partial
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

LARGEST = 2**63 - 1
"""The largest number that a setting takes: that of a Java long."""
MAX_TEXT_CHARACTERS = 65_536
"""The longest value of a setting."""

_UNITS = {"ms": "ms", "seconds": "s", "hours": "hours", "bytes": "bytes", "percent": "%", "ratio": "0 to 1"}
_Record = TypeVar("_Record", bound=Struct)


class SettingsRecord(Struct, frozen=True, kw_only=True):
    """What records of settings are. They are values: equal if all settings are."""


class _Default(Struct, frozen=True):
    """Makes the default of a field, and carries what is declared about it: msgspec keeps nothing else of a field."""

    value: Any
    is_computed: bool
    facts: dict[str, Any]

    def __call__(self) -> Any:
        return self.value() if self.is_computed else self.value


class SettingError(ValueError):
    """A configuration value that cannot be used: its source, its key, and the reason."""

    def __init__(self, source: str, key: str, reason: str) -> None:
        super().__init__(f"{source}: {key}: {reason}")
        self.source = source
        self.key = key
        self.reason = reason


class Declaration(Struct, frozen=True):
    """The declaration of one field.

    `shown_as` is the key in listings, which differs from `key` if RocketMQ names the field unlike its setter. If
    `is_computed`, a function computes the default from the environment and `default` is None. `own`: a key of TrioMQ;
    `ignored`: a key of RocketMQ that is accepted without effect; `retired`: a key of TrioMQ that had an effect in the
    version before.
    """

    name: str
    key: str
    shown_as: str
    type: Any
    nullable: bool
    default: Any
    is_computed: bool
    meaning: str
    important: bool
    minimum: float | None
    maximum: float | None
    changeable: bool
    own: bool
    ignored: bool
    retired: bool

    @property
    def unit(self) -> str:
        """Return the unit that the name of the field ends in, or "" for counts and for types other than numbers."""
        return _UNITS.get(self.name.rpartition("_")[2], "") if self.type in (int, float) else ""


def setting(
    key: str,
    default: Any,
    *,
    meaning: str,
    important: bool = False,
    minimum: float | None = None,
    maximum: float | None = None,
    changeable: bool = False,
    shown_as: str | None = None,
    own: bool = False,
    ignored: bool = False,
    retired: bool = False,
) -> Any:
    """Return a field for RocketMQ's `key`.

    A callable default is called for each record that is created without a value. The option -m lists `important`
    keys. `minimum` and `maximum` are inclusive. An update request may change a `changeable` setting while the daemon
    runs. `own` keys are TrioMQ's; `ignored` ones are RocketMQ's, accepted without effect. See `retired_setting`.
    """
    facts = {
        "key": key,
        "shown_as": shown_as or key,
        "meaning": meaning,
        "important": important,
        "minimum": minimum,
        "maximum": maximum,
        "changeable": changeable,
        "own": own,
        "ignored": ignored,
        "retired": retired,
    }
    is_computed = callable(default) and not isinstance(default, Enum)
    return msgspec.field(default_factory=_Default(default, is_computed, facts))


changeable_setting = partial(setting, changeable=True)
"""A setting that an update request may change while the daemon runs."""

ignored_setting = partial(changeable_setting, meaning="no effect", ignored=True)
"""A key of RocketMQ that is accepted, listed and updated without effect."""


def retired_setting(key: str, *, instead: str) -> Any:
    """Return a field of type `str` for a key of TrioMQ that has had no effect since this version.

    Whatever value a file gives it is accepted and not looked at. Listings leave it out, a daemon that finds it in its
    configuration logs one warning, and `--explain` says `instead`: what holds now. The next version removes the field.
    """
    return setting(key, "", meaning=f"no effect any more: {instead}", own=True, retired=True)


def declarations(cls: Any) -> tuple[Declaration, ...]:
    """Return the settings of a record class in order of declaration. Fields declared without `setting` are omitted."""
    return _declarations(cls)


@lru_cache(maxsize=64)
def _declarations(cls: type) -> tuple[Declaration, ...]:
    found: list[Declaration] = []
    for field in msgspec.structs.fields(cls):
        default = field.default_factory
        if not isinstance(default, _Default):
            continue
        hint, nullable = _without_none(field.type)
        found.append(
            Declaration(
                name=field.name,
                type=hint,
                nullable=nullable,
                default=None if default.is_computed else default.value,
                is_computed=default.is_computed,
                **default.facts,
            )
        )
    return tuple(found)


def bind(cls: type[_Record], values: Mapping[str, str], *, source: str) -> tuple[_Record, set[str]]:
    """Return a record made of `values` (RocketMQ key -> text) and defaults, and the set of keys it used.

    Keys that the record does not declare are ignored, because another record may own them. Raise SettingError for a
    value that does not parse or is out of bounds.
    """
    fields: dict[str, Any] = {}
    used: set[str] = set()
    for declaration in declarations(cls):
        if declaration.key in values:
            used.add(declaration.key)
            if not declaration.retired:
                fields[declaration.name] = _parse(declaration, values[declaration.key], source)
    return cls(**fields), used


def to_text(record: Any, *, important_only: bool = False, null: str | None = None) -> dict[str, str]:
    """Return listed key -> value as Java prints it. A value of None becomes `null`, or is omitted if `null` is None."""
    texts: dict[str, str] = {}
    for declaration in declarations(type(record)):
        value = getattr(record, declaration.name)
        if declaration.retired or (important_only and not declaration.important):
            continue
        if value is not None:
            texts[declaration.shown_as] = value_text(value)
        elif null is not None:
            texts[declaration.shown_as] = null
    return texts


def changed(record: _Record, values: Mapping[str, str], *, source: str = "update") -> _Record:
    """Return the record with `values` applied, or the same object if nothing differs.

    A value equal to the current one is always accepted, so that a client can send back a whole listing. Raise
    SettingError for a bad value and for a key that must not change while the daemon runs. Ignore keys of other records,
    and retired ones.
    """
    differing: dict[str, Any] = {}
    for declaration, text in _given(type(record), values):
        value = _parse(declaration, text, source)
        if value == getattr(record, declaration.name):
            continue
        if not declaration.changeable:
            raise SettingError(source, declaration.key, "cannot be changed while running; edit the file and restart")
        differing[declaration.name] = value
    return msgspec.structs.replace(record, **differing) if differing else record


def _given(cls: type, values: Mapping[str, str]) -> Iterator[tuple[Declaration, str]]:
    for declaration in declarations(cls):
        if declaration.retired:
            continue
        for key in dict.fromkeys((declaration.key, declaration.shown_as)):
            if key in values:
                yield declaration, values[key]
                break


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        arguments = [argument for argument in typing.get_args(hint) if argument is not types.NoneType]
        if len(arguments) != 1:
            raise TypeError(f"a setting has one type, optionally with None, not {hint}")
        return arguments[0], True
    return hint, False


def _parse(declaration: Declaration, text: str, source: str) -> Any:
    text = text.strip()
    if len(text) > MAX_TEXT_CHARACTERS:
        reason = f"it has {len(text)} characters, the longest is {MAX_TEXT_CHARACTERS}"
        raise SettingError(source, declaration.key, reason)
    if not text and declaration.nullable:
        return None
    wanted = declaration.type
    if wanted is str:
        return text
    if wanted is bool:
        return _parse_bool(declaration, text, source)
    if wanted in (int, float):
        return _parse_number(declaration, text, source)
    if isinstance(wanted, type) and issubclass(wanted, Enum):
        if text not in wanted.__members__:
            raise SettingError(source, declaration.key, f"{text!r} is not one of {', '.join(wanted.__members__)}")
        return wanted[text]
    raise TypeError(f"{declaration.key}: no way to read a {wanted}")


def _parse_bool(declaration: Declaration, text: str, source: str) -> bool:
    # Java reads every other word as false. Here it is an error, so that a typo does not silently disable a feature.
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise SettingError(source, declaration.key, f"{text!r} is neither true nor false")
    return lowered == "true"


def _parse_number(declaration: Declaration, text: str, source: str) -> int | float:
    kind: type[int] | type[float] = declaration.type
    try:
        # int() also accepts "1_000" and non-ASCII digits, which Java's parseInt does not.
        if "_" in text or not text.isascii():
            raise ValueError(text)
        value = kind(text)
        if not -LARGEST <= value <= LARGEST:  # no number of Java's; of float it leaves infinity and NaN out, too
            raise ValueError(text)
    except (ValueError, OverflowError):
        what = "a whole number" if kind is int else "a number"
        raise SettingError(source, declaration.key, f"{text!r} is not {what}") from None
    if declaration.minimum is not None and not value >= declaration.minimum:
        raise SettingError(source, declaration.key, f"{text} is less than the minimum {declaration.minimum}")
    if declaration.maximum is not None and not value <= declaration.maximum:
        raise SettingError(source, declaration.key, f"{text} is more than the maximum {declaration.maximum}")
    return value


def value_text(value: Any) -> str:
    """Return a value as Java prints it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Enum):
        return value.name
    return str(value)
