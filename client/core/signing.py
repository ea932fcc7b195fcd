"""Signing of requests for brokers and name servers with ACL (RocketMQ: AclClientRPCHook)."""

from __future__ import annotations

from triomq.client.core.config import Credentials
from triomq.protocol.command import RemotingCommand
from triomq.protocol.signature import sign_fields


class SigningHook:
    """Adds AccessKey, Signature and SecurityToken to every request. Must be the last hook, because it signs what is
    sent."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def before_request(self, address: str, request: RemotingCommand) -> None:
        account = self._credentials
        request.ext_fields = sign_fields(
            request.ext_fields or {}, request.body, account.access_key, account.secret_key, account.security_token
        )

    def after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        return
