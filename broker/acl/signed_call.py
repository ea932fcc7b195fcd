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
from typing import Final

from triomq.protocol.command import ExtFields, RemotingCommand

_AUTHORIZATION: Final = re.compile(
    rb"MQv2-HMAC-SHA1 +Credential=([^,/ ]*)[^,]*, *SignedHeaders=[^,]*, *Signature=(\w+)\Z"
)


class CallRequest(RemotingCommand):
    """A request that a gRPC call needs. `access_key` is empty if the call is not signed."""

    __slots__ = ("_date", "_signature", "access_key")

    def __init__(
        self, headers: Mapping[bytes, bytes], code: int, ext_fields: ExtFields, body: bytes, opaque: int, language: int
    ) -> None:
        """`headers` are those of the call."""
        super().__init__(code, ext_fields, body, 0, opaque, None, 0, language)
        found = _AUTHORIZATION.match(headers.get(b"authorization", b""))
        self.access_key = found[1].decode("utf-8", "replace") if found is not None else ""
        self._signature = found[2].lower() if found is not None else b""
        self._date = headers.get(b"x-mq-date-time", b"")

    def is_signed_by(self, secret_key: str) -> bool:
        """Return whether the holder of this key made the call."""
        expected = hmac.digest(secret_key.encode(), self._date, hashlib.sha1).hex().encode()
        return bool(self.access_key) and hmac.compare_digest(self._signature, expected)
