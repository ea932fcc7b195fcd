"""AccessControl: checks each request against the ACL before its processor runs (RocketMQ: PlainAccessValidator).

The order of the checks and the wording of the refusals are RocketMQ's, because clients and tools match on them. A
remark even names the place in RocketMQ's source that refuses, since RocketMQ's broker sends whatever its hooks throw.
"""

from __future__ import annotations

from collections.abc import Container

import structlog

from triomq.broker.acl.access_table import AccessTable
from triomq.broker.acl.accounts import PUB, Account
from triomq.broker.acl.resources import ADMIN_CODES, needed_resources
from triomq.broker.errors import AccessDenied
from triomq.protocol import signature
from triomq.protocol.command import RemotingCommand
from triomq.protocol.system_topics import TRACE_TOPIC, group_of_retry_topic, is_retry_topic
from triomq.remoting.connection import Connection

log = structlog.get_logger("triomq.broker.acl")

_PLACE = "org.apache.rocketmq.acl.plain.PlainPermissionManager.{method}(PlainPermissionManager.java:{line})"
_NO_KEY = _PLACE.format(method="validate", line=663)
_NO_ACCOUNT = _PLACE.format(method="validate", line=667)
_BAD_SIGNATURE = _PLACE.format(method="validate", line=683)
_NOT_ADMIN = _PLACE.format(method="checkPerm", line=580)
_NO_DEFAULT = _PLACE.format(method="checkPerm", line=605)
_NO_PERMISSION = _PLACE.format(method="checkPerm", line=610)


class AccessControl:
    """A before-hook for processor tables. `admin_codes` are the requests that only admin accounts may send."""

    def __init__(self, table: AccessTable, *, admin_codes: Container[int] = ADMIN_CODES) -> None:
        self._table = table
        self._admin_codes = admin_codes

    def __call__(self, connection: Connection, request: RemotingCommand) -> None:
        """Check a request. Raises AccessDenied."""
        remote = connection.remote
        for pattern in self._table.white_addresses:
            if pattern.matches(remote):
                return
        fields = request.ext_fields or {}
        access_key = fields.get(signature.ACCESS_KEY)
        if access_key is None:
            raise self._refusal(connection, request, "No accessKey is configured", _NO_KEY)
        account = self._table.account(access_key)
        if account is None:
            raise self._refusal(connection, request, f"No acl config for {access_key}", _NO_ACCOUNT)
        if account.white_addresses.matches(remote):
            return
        if not signature.is_signed_by(fields, request.body, account.secret_key):
            text = f"Check signature failed for accessKey={access_key}"
            raise self._refusal(connection, request, text, _BAD_SIGNATURE)
        self._check_permissions(connection, request, account)

    def _check_permissions(self, connection: Connection, request: RemotingCommand, account: Account) -> None:
        needed = needed_resources(request)
        if needed.get(TRACE_TOPIC) == PUB:
            return
        if request.code in self._admin_codes and not account.is_admin:
            text = f"Need admin permission for request code={request.code}, but accessKey={account.access_key} is not"
            raise self._refusal(connection, request, text, _NOT_ADMIN)
        if account.is_admin and not account.permissions:
            return
        for resource, wanted in needed.items():
            if not account.may(resource, wanted):
                what = f"group:{group_of_retry_topic(resource)}" if is_retry_topic(resource) else f"topic:{resource}"
                place = _NO_PERMISSION if resource in account.permissions else _NO_DEFAULT
                raise self._refusal(connection, request, f"No default permission for {what}", place)

    def _refusal(self, connection: Connection, request: RemotingCommand, text: str, place: str) -> AccessDenied:
        log.info("access refused", remote=connection.remote.text, code=request.code, reason=text)
        return AccessDenied(f"{text}, {place}")
