"""StoredProperties: the properties of one message, as the text that its record has and as the values it stands for.

The text of nearly every message is read once, by a function of C, for what the broker acts on. Everybody asks the value
by name; whether an answer was noted at that reading, or the text has to become a table first, is known here only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias, overload

from triomq.protocol import property_names as names
from triomq.protocol.java import cached_string_hash
from triomq.protocol.properties import PROPERTY_SEPARATOR, encode, parse, parse_bytes
from triomq.protocol.speedups import accelerated

Noted: TypeAlias = tuple[int, str | None, str | None, tuple[str | None, ...] | None, bool]
"""(tags_code, uniq_key, keys, values of the names asked for, or None where the text has none of them, is_encoded): the
last says that the text is ASCII, has at most 32 properties, and encoding them again would not change it."""
_MOST_ENCODED: Final = 32

SPECIAL: Final[tuple[str, ...]] = (
    *(names.DELAY, names.TRANSACTION_PREPARED, names.REAL_TOPIC, names.REAL_QUEUE_ID, names.WAIT),
    *(names.PRODUCER_GROUP, names.TRANSACTION_REPLACES, names.INNER_MULTI_DISPATCH, names.INNER_MULTI_QUEUE_OFFSET),
)
"""The properties that change what a broker does with a message. A reading notes their values."""
_SEPARATOR: Final = PROPERTY_SEPARATOR.encode()
_HANDLE: Final = names.POP_CHECKPOINT.encode()
_PLACES: Final = {name: place for place, name in enumerate(SPECIAL)}


def read_properties_reference(stored: bytes, wanted: tuple[str, ...]) -> Noted:
    """Return what stored properties say, and the values of the names in `wanted`."""
    table = parse_bytes(stored)
    tags = table.get(names.TAGS)
    values = tuple([table.get(name) for name in wanted])
    is_empty = values.count(None) == len(values)
    pairs = stored.count(_SEPARATOR) + 1 if stored else 0
    return (
        cached_string_hash(tags) if tags else 0,
        table.get(names.UNIQ_KEY),
        table.get(names.KEYS),
        None if is_empty else values,
        # As many names as pairs: none is repeated, and none lacks its name, its value or its separator.
        len(table) == pairs <= _MOST_ENCODED and stored.isascii(),
    )


def properties_to_store_reference(text: str, cluster: str, wanted: tuple[str, ...]) -> tuple[bytes, str | None, Noted]:
    """Return the bytes to store of the properties that a client sent, its WAIT, and what the bytes say.

    They have CLUSTER. They lack WAIT, which is for the broker that gets the message, the handle of a message that was
    received (`unit_text`), and pairs without a name or a value. The C function returns None for repeated names, for
    CLUSTER or a handle among those sent, for more than 32 of them and for text that is not ASCII.
    """
    table = parse(text)
    table.pop(names.POP_CHECKPOINT, None)
    wait = table.pop(names.WAIT, None)
    table[names.CLUSTER] = cluster
    stored = encode(table)
    return stored, wait, read_properties_reference(stored, wanted)


def properties_with_reference(stored: bytes, added: dict[str, str], wanted: tuple[str, ...]) -> tuple[bytes, Noted]:
    """Return the bytes of stored properties and others, and what these say. The others replace those of the same names;
    if there are none, they follow the bytes as they are. The C function returns None where a name is there twice
    then, where there are more than 32, and for others that are empty or not ASCII."""
    table = parse_bytes(stored)
    if table.keys() & added.keys():
        text = encode({**table, **added})
    else:
        text = stored.removesuffix(_SEPARATOR)  # older clients end with it
        text += (_SEPARATOR if text and added else b"") + encode(added)
    return text, read_properties_reference(text, wanted)


read_properties: Final = accelerated(read_properties_reference)
_with: Final[Callable[[bytes, dict[str, str], tuple[str, ...]], tuple[bytes, Noted] | None]] = accelerated(
    properties_with_reference
)
_to_store: Final[Callable[[str, str, tuple[str, ...]], tuple[bytes, str | None, Noted] | None]] = accelerated(
    properties_to_store_reference
)


class StoredProperties:
    """See the module's docstring. It does not change; `with_` and `without` make another value.

    `text` is what a record has. `tags_code` is Java's hash of TAGS, 0 without; `uniq_key` and `keys` are UNIQ_KEY and
    KEYS. `special` are the values of SPECIAL, None if it has none of them.
    """

    __slots__ = ("_is_encoded", "_table", "keys", "special", "tags_code", "text", "uniq_key")

    def __init__(self, text: bytes, noted: Noted) -> None:
        self.text = text
        self.tags_code, self.uniq_key, self.keys, self.special, self._is_encoded = noted
        self._table: dict[str, str] | None = None

    @overload
    def get(self, name: str) -> str | None: ...
    @overload
    def get(self, name: str, otherwise: str) -> str: ...
    def get(self, name: str, otherwise: str | None = None) -> str | None:
        """Return the value of a property."""
        place = _PLACES.get(name)
        if place is None:
            return self.table().get(name, otherwise)
        if self.special is None:
            return otherwise
        return self.special[place] or otherwise  # no value is empty

    def table(self) -> Mapping[str, str]:
        """Return all of them by name."""
        table = self._table
        if table is None:
            table = self._table = parse_bytes(self.text)
        return table

    def with_(self, added: dict[str, str]) -> StoredProperties:
        """Return these and others, which replace those of the same names."""
        found = _with(self.text, added, SPECIAL)
        if found is None:
            found = properties_with_reference(self.text, added, SPECIAL)
        text, noted = found
        return StoredProperties(text, noted)

    def without(self, *left_out: str) -> StoredProperties:
        """Return these without those of these names."""
        return of({name: value for name, value in self.table().items() if name not in left_out})

    def encoded_again(self) -> StoredProperties:
        """Return these as RocketMQ writes them when it stores a message again: each name once, and no separator behind
        the last one."""
        return self if self._is_encoded else of(self.table())

    def __repr__(self) -> str:
        return f"StoredProperties({dict(self.table())!r})"


def read(stored: bytes) -> StoredProperties:
    """Return the properties that a record has."""
    return StoredProperties(stored, read_properties(stored, SPECIAL))


def of(table: Mapping[str, str]) -> StoredProperties:
    """Return properties that the broker itself gives to a message. Lone surrogates become "?", as in Java."""
    return read(encode(table))


def sent(text: str, cluster: str) -> tuple[StoredProperties, str | None]:
    """Return what a broker of this cluster stores of the properties that a client sent, and the client's WAIT."""
    found = _to_store(text, cluster, SPECIAL)
    if found is None:
        found = properties_to_store_reference(text, cluster, SPECIAL)
    stored, wait, noted = found
    return StoredProperties(stored, noted), wait


def unit_text(text: bytes) -> bytes:
    """Return what a broker stores of the properties that one message of a batch was sent with: without the receipt
    handle of a message that was received and is sent on. RocketMQ 5's clients would acknowledge the new message with
    it, and be refused."""
    if _HANDLE not in text:
        return text
    table = parse_bytes(text)
    table.pop(names.POP_CHECKPOINT, None)
    return encode(table)


NONE: Final = of({})
