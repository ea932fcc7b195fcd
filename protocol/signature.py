"""Signatures of requests for brokers with ACL (AclClientRPCHook, AclUtils, AclSigner of RocketMQ 4.9.7).

A client adds AccessKey (and SecurityToken) to extFields, then Signature = Base64(HMAC-SHA1(secret key, content)).
The content is the UTF-8 text of the values of all extFields in the order of their keys, without separators and without
the signature itself, followed by the body.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Container, Mapping
from typing import Final

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"

_UNSIGNED_BY_CLIENT: Final = frozenset((SIGNATURE,))
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
