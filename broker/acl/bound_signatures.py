"""BoundSignatures: requests of accounts with `boundSignature: true`, whose signature binds code, fields and time.

Such a request is valid within a few minutes of its time, once: what was seen is kept until it has expired. Only valid
requests enter the table, so nobody without the secret key can fill it. While more than `MAX_SEEN` requests arrive in
that time, the oldest can be repeated; none can be changed.

Touched only on the event loop. Limit: `MAX_SEEN` requests.
"""

from __future__ import annotations

from typing import Final

from triomq.broker.acl.accounts import Account
from triomq.protocol import signature
from triomq.protocol.clock import NowMs
from triomq.protocol.command import RemotingCommand

MAX_SEEN: Final = 100_000
MAX_SKEW_MS: Final = 300_000
UNBOUND: Final = "the account needs bound signatures (boundSignature), which this client does not send"


class BoundSignatures:
    """See the module's docstring."""

    def __init__(self, now_ms: NowMs) -> None:
        self._now_ms = now_ms
        self._seen: dict[tuple[str, str], int] = {}  # access key and SignedAt -> time of the request's arrival in ms

    def __len__(self) -> int:
        return len(self._seen)

    def problem(self, request: RemotingCommand, account: Account) -> str | None:
        """Return why a request with a right signature is too old or was seen before; None, once, if it is neither."""
        signed_at = (request.ext_fields or {}).get(signature.SIGNED_AT, "")
        now_ms = self._now_ms()
        signed_ms = signature.stamped_ms(signed_at)
        if signed_ms is None or abs(now_ms - signed_ms) > MAX_SKEW_MS:
            return f"SignedAt is not within {MAX_SKEW_MS // 60_000} minutes of the broker's clock: compare the clocks"
        key = (account.access_key, signed_at)
        if key in self._seen:
            return "the request was seen before"
        self._forget(now_ms)
        self._seen[key] = now_ms
        return None

    def _forget(self, now_ms: int) -> None:
        """Remove what has expired, or the oldest if there is no room. A request may be signed MAX_SKEW_MS ahead."""
        while self._seen:
            oldest = next(iter(self._seen))
            if len(self._seen) < MAX_SEEN and now_ms - self._seen[oldest] <= 2 * MAX_SKEW_MS:
                return
            del self._seen[oldest]
