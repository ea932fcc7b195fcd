"""Declarative configuration records: frozen dataclasses whose fields declare RocketMQ key, bounds and meaning.

    @settings_record
    class StoreSettings(SettingsRecord):
        flush_interval_ms: int = setting("flushIntervalCommitLog", 500, meaning="ms between flushes", minimum=1)

    settings, used = bind(StoreSettings, {"flushIntervalCommitLog": "200"}, source="broker.conf")
    to_text(settings)                                              # {"flushIntervalCommitLog": "200"}
    changed(settings, {"flushIntervalCommitLog": "100"})           # only settings declared changeable

Values arrive as text (properties files, command lines, update requests). The annotated type of the field determines how
they are parsed: bool, int, float, str, an Enum (by name), or one of these `| None` (empty text is None).
"""

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar

from msgspec import Struct

LARGEST = 2**63 - 1
"""The largest number that a setting takes: that of a Java long."""
MAX_TEXT_CHARACTERS = 65_536
"""The longest value of a setting."""

_METADATA = "triomq.setting"
_UNITS = {"ms": "ms", "seconds": "s", "hours": "hours", "bytes": "bytes", "percent": "%", "ratio": "0 to 1"}
_Record = TypeVar("_Record")


class SettingsRecord:
    """The methods of every record. A dataclass has them generated as source, which each start of a daemon compiles in
    2 ms for a record of ninety settings."""

    __slots__ = ()

    def __init__(self, **values: Any) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            if field.name in values:
                value = values.pop(field.name)
            elif field.default_factory is not dataclasses.MISSING:
                value = field.default_factory()
            else:
                value = field.default
            object.__setattr__(self, field.name, value)
        if values:
            raise TypeError(f"{type(self).__name__} has no settings {', '.join(values)}")

    def __setattr__(self, name: str, value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and _values(other) == _values(self)

    def __hash__(self) -> int:
        return hash(_values(self))

    def __repr__(self) -> str:
        pairs = zip(dataclasses.fields(self), _values(self), strict=True)  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{field.name}={value!r}' for field, value in pairs)})"


def _values(record: Any) -> tuple[Any, ...]:
    return tuple([getattr(record, field.name) for field in dataclasses.fields(record)])


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
def settings_record(cls: type[_Record]) -> type[_Record]:
    """Make a class of settings, a SettingsRecord, a frozen dataclass with slots."""
    return dataclasses.dataclass(init=False, repr=False, eq=False, slots=True)(cls)


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
    """Return a dataclass field for RocketMQ's `key`.

    A callable default is called for each record that is created without a value. The option -m lists `important`
    keys. `minimum` and `maximum` are inclusive. An update request may change a `changeable` setting while the daemon
    runs. `own` keys are TrioMQ's; `ignored` ones are RocketMQ's, accepted without effect. See `retired_setting`.
    """
    metadata = {
        _METADATA: {
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
    }
    if callable(default) and not isinstance(default, Enum):
        return dataclasses.field(default_factory=default, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


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
    hints = typing.get_type_hints(cls)
    found: list[Declaration] = []
    for field in dataclasses.fields(cls):
        if _METADATA not in field.metadata:
            continue
        hint, nullable = _without_none(hints[field.name])
        is_computed = field.default is dataclasses.MISSING
        found.append(
            Declaration(
                name=field.name,
                type=hint,
                nullable=nullable,
                default=None if is_computed else field.default,
                is_computed=is_computed,
                **field.metadata[_METADATA],
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
    return dataclasses.replace(record, **differing) if differing else record  # type: ignore[type-var]


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
