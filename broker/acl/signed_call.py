"""The signature of a gRPC call, from its headers (RocketMQ 5: AuthenticationPipeline, MQv2-HMAC-SHA1):

    x-mq-date-time: DATE
    authorization: MQv2-HMAC-SHA1 Credential=ACCESS_KEY, SignedHeaders=x-mq-date-time, Signature=HEX

HEX is the HMAC-SHA1 of DATE with the secret key. DATE is that of the client's clock in any format, so nothing can be
said of its age.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Final, TypeAlias

from triomq.protocol.command import RemotingCommand
from triomq.protocol.headers.base import Header, encode_header
from triomq.protocol.signature import ACCESS_KEY

Fields: TypeAlias = dict[str, str] | Header | None

_AUTHORIZATION: Final = re.compile(
    rb"MQv2-HMAC-SHA1 +Credential=([^,/ ]*)[^,]*, *SignedHeaders=[^,]*, *Signature=(\w+)\Z"
)


class CallRequest(RemotingCommand):
    """A request that a gRPC call needs. If the call is signed, AccessKey is among its fields, as remoting has it."""

    __slots__ = ("_date", "_signature")

    def __init__(
        self, headers: Mapping[bytes, bytes], code: int, ext_fields: Fields, body: bytes, opaque: int, language: int
    ) -> None:
        """`headers` are those of the call."""
        authorization = headers.get(b"authorization")
        found = _AUTHORIZATION.match(authorization) if authorization is not None else None
        access_key = found[1].decode("utf-8", "replace") if found is not None else ""
        if access_key:
            texts = encode_header(ext_fields) if isinstance(ext_fields, Header) else ext_fields or {}
            ext_fields = {**texts, ACCESS_KEY: access_key}
        super().__init__(code, ext_fields, body, 0, opaque, None, 0, language)
        self._signature = found[2].lower() if found is not None else b""
        self._date = headers.get(b"x-mq-date-time", b"")

    def is_signed_by(self, secret_key: str) -> bool:
        """Return whether the holder of this key made the call."""
        expected = hmac.digest(secret_key.encode(), self._date, hashlib.sha1).hex().encode()
        return hmac.compare_digest(self._signature, expected)
