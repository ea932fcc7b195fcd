"""The stored text of message properties (MessageDecoder.messageProperties2String and string2messageProperties).

    name \\x01 value \\x02 name \\x01 value ...

Clients of 4.9 write no trailing \\x02, older ones do; readers accept both. The order has no meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from triomq.protocol import property_names as names
from triomq.protocol.java import cached_string_hash

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"

MAX_PROPERTIES_BYTES: Final = 32767


def parse(text: str) -> dict[str, str]:
    """Parse text into a table. Drop pairs that lack a separator, name or value. Of duplicate names the last one wins. A
    value may contain \\x01."""
    table: dict[str, str] = {}
    if text:
        for pair in text.split(PROPERTY_SEPARATOR):
            name, _, value = pair.partition(NAME_VALUE_SEPARATOR)
            if name and value:
                table[name] = value
    return table


def parse_bytes(data: bytes) -> dict[str, str]:
    """Parse stored bytes into a table. Invalid UTF-8 decodes to U+FFFD, as in Java."""
    return parse(data.decode("utf-8", "replace"))


def format(table: Mapping[str, str]) -> str:
    """Format a table as text, in its order, without a trailing separator."""
    return "\x02".join([f"{name}\x01{value}" for name, value in table.items()])


def encode(table: Mapping[str, str]) -> bytes:
    """Encode a table as stored bytes. Lone surrogates become "?", as in Java."""
    text = format(table)
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def encoded_again(stored: bytes, table: Mapping[str, str]) -> bytes:
    """Return `encode(table)` for the table of these stored bytes, which most often are what it returns."""
    # As many names as pairs: none is repeated, and none lacks its name, its value or its separator.
    if len(table) == stored.count(b"\x02") + 1 and stored.isascii():
        return stored
    return encode(table)


def text_to_store_reference(text: str, cluster: str) -> tuple[bytes, bool, int, str | None, str | None] | None:
    """Return (stored, wait, tags_code, uniq_key, keys) for the properties of a plain message.

    `stored` are the bytes to store, without WAIT and with CLUSTER; the other items are read from the properties. Return
    None for a message that needs special treatment (delay, transaction, multi dispatch). The C function also returns
    None for repeated names, for CLUSTER among the sent properties, for more than 32 properties and for text that is
    not ASCII. Its caller then takes the general path.
    """
    table = parse(text)
    if names.DELAY in table or names.TRANSACTION_PREPARED in table or names.INNER_MULTI_DISPATCH in table:
        return None
    wait = table.pop(names.WAIT, "true") != "false"
    table[names.CLUSTER] = cluster
    tags = table.get(names.TAGS)
    tags_code = cached_string_hash(tags) if tags else 0
    return encode(table), wait, tags_code, table.get(names.UNIQ_KEY), table.get(names.KEYS)


def keys_and_tags_reference(
    stored: bytes, more: tuple[str, ...]
) -> tuple[int, str | None, str | None, tuple[str | None, ...]] | None:
    """Return (tags_code, uniq_key, keys), which dispatch needs, from the stored properties of a plain message, and the
    values of the properties with the names `more`.

    Without such names, return None for delayed messages and multi dispatch. With them, the properties are to be stored
    again: return None if `encode` would change them. The C function also returns None for text that is not ASCII, and
    with names for more than 8 of them and for more than 32 properties. Its caller then takes the general path.
    """
    table = parse_bytes(stored)
    if more and encoded_again(stored, table) != stored:
        return None
    if not more and (names.DELAY in table or names.INNER_MULTI_QUEUE_OFFSET in table):
        return None
    tags = table.get(names.TAGS)
    code = cached_string_hash(tags) if tags else 0
    return code, table.get(names.UNIQ_KEY), table.get(names.KEYS), tuple([table.get(name) for name in more])
