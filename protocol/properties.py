"""The stored text of message properties (MessageDecoder.messageProperties2String and string2messageProperties).

    name \\x01 value \\x02 name \\x01 value ...

Clients of 4.9 write no trailing \\x02, older ones do; readers accept both. The order has no meaning.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

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
