"""Requests of the dashboard to other daemons, signed."""

from __future__ import annotations

from contextlib import suppress

from triomq.broker.assembly.serving import Serving, account_of
from triomq.broker.views.operator import Operator
from triomq.dashboard.actions import ActionRefused, Actor
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.signature import ACCESS_KEY


class SigningClient:
    """Asks other daemons with an account: that of this broker at others (conf/tools.yml), or else that of the
    administrator who looks, which a cluster usually has at all its brokers."""

    def __init__(self, serving: Serving, operator: Operator) -> None:
        self._client = serving.client
        self._sign = account_of(serving.tables).sign
        self._operator = operator
        self.viewer = ""

    def has_own_account(self) -> bool:
        """Return whether this broker has an account at others, so that it may ask for everybody."""
        request = new_request(RequestCode.QUERY_BROKER_TOTALS)
        self._sign(request)
        return ACCESS_KEY in (request.ext_fields or {})

    async def invoke(self, address: str, command: RemotingCommand, timeout_seconds: float, /) -> RemotingCommand:
        """Return the response of a daemon. Raises RemotingError."""
        self._sign(command)
        if self.viewer and ACCESS_KEY not in (command.ext_fields or {}):
            actor = Actor(self.viewer, "127.0.0.1")
            with suppress(ActionRefused):  # the account went while its page was open: the others refuse it, too
                fields = self._operator.signed(actor, command.code, command.ext_fields or {}, bytes(command.body))
                command.ext_fields = fields
        return await self._client.invoke(address, command, timeout_seconds)
