"""Base of all JSON bodies: typed records that decode leniently and encode as fastjson does.

The fields of a record ARE the schema. They are declared in alphabetical order of their wire names, which is their order
in the text. One call into msgspec decodes a body. Text that msgspec rejects (unquoted keys, references, numbers as
text, null for a field that cannot be null) is read by `protocol.bodies.fastjson` and then converted. Unknown fields are
ignored; absent ones have the default of the Java class.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar

import msgspec

from triomq.protocol.bodies import fastjson
from triomq.protocol.errors import BodyError

MAX_LENIENT_BYTES: Final = 128 * 1024
"""The longest body of a request that is not standard JSON. It is read a hundred times slower than standard JSON, and
other clients wait meanwhile. Clients send such texts for a few of their bodies, which have some KiB."""


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One JSON object of the remoting protocol, named after RocketMQ's class. Immutable: `replace` returns a copy."""

    def encode(self) -> bytes:
        """Return the compact JSON text that RocketMQ writes."""
        return fastjson.dumps(self)

    def encode_pretty(self) -> bytes:
        """Return the indented JSON text that RocketMQ writes to files below config/."""
        return fastjson.dumps_pretty(self)

    @classmethod
    def decode(cls: type[B], data: bytes) -> B:
        """Decode a JSON text. Raise `BodyError` naming the class and the position of the error."""
        body: B = decode_body(cls, data)
        return body

    @classmethod
    def decode_request(cls: type[B], data: bytes) -> B:
        """Decode the body of a request, as servers do: a text that is not standard JSON is short, or refused."""
        body: B = decode_body(cls, data, max_lenient_bytes=MAX_LENIENT_BYTES)
        return body


B = TypeVar("B", bound=Body)

_decoders: dict[Any, tuple[msgspec.json.Decoder[Any], str]] = {}

# Matches up to and including the next unquoted number key. Before the key it skips strings, other text, and braces and
# commas that no such key follows. Each match begins where the previous one ended and never backtracks, so the work is
# linear for any input.
_NUMBER_KEY = re.compile(
    rb"""((?:"(?:[^"\\]++|\\.)*+"|[^"{,]++|[{,](?!\s*+-?\d++\s*+:))*+[{,]\s*+)(-?\d++)\s*+:""", re.DOTALL
)


def decode_body(kind: Any, data: bytes, *, max_lenient_bytes: int | None = None) -> Any:
    """Decode a value of type `kind` (a record class, or a type such as `list[str]`). Raise `BodyError`.

    `max_lenient_bytes` is the longest text that is read if it is not standard JSON."""
    known = _decoders.get(kind)
    if known is None:
        known = _decoders[kind] = msgspec.json.Decoder(kind), getattr(kind, "__name__", str(kind))
    decoder, name = known
    if b'"$ref"' not in data:
        try:
            return decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if " of length <= " in str(error):  # no other reading makes it shorter
                raise BodyError(f"the body is not a valid {name}: {error}") from None
        # Maps with number keys, such as a large table of offsets, need only quotes around the keys.
        quoted = _quote_number_keys(data)
        if quoted is not None:
            try:
                return decoder.decode(quoted)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                pass
    if max_lenient_bytes is not None and len(data) > max_lenient_bytes:
        raise BodyError(
            f"the body is not a valid {name}: it has {len(data)} bytes that are not standard JSON, "
            f"{max_lenient_bytes} are allowed"
        )
    try:
        return msgspec.convert(_without_nulls(fastjson.loads(data)), kind, strict=False, str_keys=True)
    except msgspec.ValidationError as error:
        raise BodyError(f"the body is not a valid {name}: {error}") from None
    except BodyError as error:
        raise BodyError(f"the body is not a valid {name}: {error}") from None
    except RecursionError:
        raise BodyError(f"the body is not a valid {name}: nested too deeply") from None


def _quote_number_keys(data: bytes) -> bytes | None:
    """Return the text with quotes around its number keys, or None if it has no such keys."""
    found = _NUMBER_KEY.match(data)
    if found is None:
        return None
    pieces: list[bytes] = []
    end = 0
    while found is not None:
        pieces += (found[1], b'"', found[2], b'":')
        end = found.end()
        found = _NUMBER_KEY.match(data, end)
    pieces.append(data[end:])
    return b"".join(pieces)


def replace(body: B, **changes: Any) -> B:
    """Return a copy of a record with some fields changed."""
    return msgspec.structs.replace(body, **changes)


def _without_nulls(value: Any) -> Any:
    """Return the tree without null members: fastjson ignores a field whose value is null."""
    if isinstance(value, dict):
        return {key: _without_nulls(member) for key, member in value.items() if member is not None}
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    return value
