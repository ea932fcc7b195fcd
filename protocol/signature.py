"""Signatures of requests for brokers with ACL (AclClientRPCHook, AclUtils, AclSigner of RocketMQ 4.9.7).

A client adds AccessKey (and SecurityToken) to extFields, then Signature = Base64(HMAC-SHA1(secret key, content)).
The content is the UTF-8 text of the values of all extFields in the order of their keys, without separators and without
the signature itself, followed by the body.

That content says neither which request it belongs to nor when it was signed, and values can move between fields.
TrioMQ's own tools add a second signature that binds all of it:

    SignedAt        <ms since 1970>-<nonce>
    BoundSignature  Base64(HMAC-SHA256(secret key, code, then length and text of each key and value, then the body))

Both are plain extFields for RocketMQ, which signs and ignores them.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
from collections.abc import Container, Mapping
from typing import Final

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNED_AT: Final = "SignedAt"
BOUND_SIGNATURE: Final = "BoundSignature"
CREDENTIALS: Final = frozenset((ACCESS_KEY, SIGNATURE, SECURITY_TOKEN, SIGNED_AT, BOUND_SIGNATURE))
"""Fields that hold no more than who signed a request."""

_UNSIGNED_BY_CLIENT: Final = frozenset((SIGNATURE,))
_UNBOUND: Final = frozenset((SIGNATURE, BOUND_SIGNATURE))
_UNSIGNED_BY_SERVER: Final = frozenset((SIGNATURE, "_UNIQUE_KEY_QUERY"))


def content(ext_fields: Mapping[str, str], body: bytes = b"", *, leave_out: Container[str] = (SIGNATURE,)) -> bytes:
    """Return the bytes that are signed. `leave_out`: keys whose values are excluded."""
    values = [ext_fields[key] for key in sorted(ext_fields, key=_java_order) if key not in leave_out]
    return "".join(values).encode("utf-8", "replace") + body


def sign(content: bytes, secret_key: str) -> str:
    """Return the HMAC-SHA1 of `content` in Base64."""
    return base64.b64encode(hmac.digest(secret_key.encode(), content, hashlib.sha1)).decode("ascii")


def sign_fields(
    ext_fields: Mapping[str, str], body: bytes, access_key: str, secret_key: str, security_token: str | None = None
) -> dict[str, str]:
    """Return a copy of `ext_fields` with AccessKey, SecurityToken (if given) and Signature, as a client sends it."""
    fields = dict(ext_fields)
    fields[ACCESS_KEY] = access_key
    if security_token is not None:
        fields[SECURITY_TOKEN] = security_token
    fields[SIGNATURE] = sign(content(fields, body), secret_key)
    return fields


def sign_bound(
    code: int,
    ext_fields: Mapping[str, str],
    body: bytes,
    access_key: str,
    secret_key: str,
    security_token: str | None = None,
    *,
    signed_at: str,
) -> dict[str, str]:
    """Return a copy of `ext_fields` with both signatures; `signed_at` comes from `stamp`."""
    fields = dict(ext_fields)
    fields[ACCESS_KEY] = access_key
    fields[SIGNED_AT] = signed_at
    if security_token is not None:
        fields[SECURITY_TOKEN] = security_token
    fields[BOUND_SIGNATURE] = _bound(code, fields, body, secret_key)
    fields[SIGNATURE] = sign(content(fields, body), secret_key)
    return fields


def stamp(now_ms: int, nonce: bytes) -> str:
    """Return the value of SignedAt. `nonce` differs for every request."""
    return f"{now_ms}-{nonce.hex()}"


def stamped_ms(signed_at: str) -> int | None:
    """Return the time in a value of SignedAt, None if it has another form."""
    text, dash, _ = signed_at.partition("-")
    return int(text) if dash and text.isascii() and text.isdigit() and len(text) <= 15 else None


def is_bound_by(code: int, ext_fields: Mapping[str, str], body: bytes, secret_key: str) -> bool:
    """Return whether BoundSignature matches the code and the rest of the request. Compares in constant time."""
    given = ext_fields.get(BOUND_SIGNATURE)
    if given is None:
        return False
    return hmac.compare_digest(given.encode("utf-8", "replace"), _bound(code, ext_fields, body, secret_key).encode())


def _bound(code: int, ext_fields: Mapping[str, str], body: bytes, secret_key: str) -> str:
    parts = [struct.pack(">i", code)]
    for key in sorted(ext_fields.keys() - _UNBOUND):
        for text in (key, ext_fields[key]):
            data = text.encode("utf-8", "surrogatepass")
            parts += (struct.pack(">i", len(data)), data)
    parts += (struct.pack(">i", -1), body)
    return base64.b64encode(hmac.digest(secret_key.encode(), b"".join(parts), hashlib.sha256)).decode("ascii")


def is_signed_by(ext_fields: Mapping[str, str], body: bytes, secret_key: str) -> bool:
    """Return whether Signature matches the rest of the request.

    Clients of 4.9.7 sign _UNIQUE_KEY_QUERY, which the broker of 4.9.7 excludes, so their queries fail there. This
    function accepts a signature over either content. It compares in constant time.
    """
    given = ext_fields.get(SIGNATURE)
    if given is None:
        return False
    for leave_out in (_UNSIGNED_BY_SERVER, _UNSIGNED_BY_CLIENT):
        expected = sign(content(ext_fields, body, leave_out=leave_out), secret_key)
        if hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode()):
            return True
        if "_UNIQUE_KEY_QUERY" not in ext_fields:
            return False
    return False


def _java_order(key: str) -> bytes:
    # Java compares UTF-16 units, Python compares code points.
    return key.encode("utf-16-be", "surrogatepass")
