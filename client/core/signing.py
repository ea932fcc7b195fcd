"""Signing of requests for brokers and name servers with ACL (RocketMQ: AclClientRPCHook)."""

from __future__ import annotations

import os

from triomq.client.core.config import Credentials
from triomq.protocol.clock import NowMs
from triomq.protocol.command import RemotingCommand
from triomq.protocol.signature import sign_bound, sign_fields, stamp


class SigningHook:
    """Adds AccessKey, Signature and SecurityToken to every request, and a bound signature if the credentials ask for
    it. Must be the last hook, because it signs what is sent."""

    def __init__(self, credentials: Credentials, now_ms: NowMs) -> None:
        self._credentials = credentials
        self._now_ms = now_ms

    def before_request(self, address: str, request: RemotingCommand) -> None:
        account, fields = self._credentials, request.ext_fields or {}
        who = account.access_key, account.secret_key, account.security_token
        if account.bound:
            signed_at = stamp(self._now_ms(), os.urandom(8))
            request.ext_fields = sign_bound(request.code, fields, request.body, *who, signed_at=signed_at)
        else:
            request.ext_fields = sign_fields(fields, request.body, *who)

    def after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        return
