"""AccessControl: checks each request against the ACL before its processor runs (RocketMQ: PlainAccessValidator).

needs.py says what each request code needs. A processor that finds out later which topic a request touches calls
`check_topic`.

The order of the checks and the wording of the refusals are RocketMQ's, because clients and tools match on them. A
remark even names the place in RocketMQ's source that refuses, since RocketMQ's broker sends whatever its hooks throw.
"""

from __future__ import annotations

import time
from collections import Counter

import structlog

from triomq.broker.acl.access_table import AccessTable
from triomq.broker.acl.accounts import Account
from triomq.broker.acl.bound_signatures import UNBOUND, BoundSignatures
from triomq.broker.acl.failed_signatures import FailedSignatures
from triomq.broker.acl.names import PUB
from triomq.broker.acl.needs import REPLY, NameMissing, need_of
from triomq.broker.acl.refusal_log import RefusalLog
from triomq.broker.acl.resources import ADMIN_CODES, needed_resources
from triomq.broker.acl.signed_call import CallRequest
from triomq.broker.errors import AccessDenied
from triomq.broker.record_border import INTERNAL_TOPICS
from triomq.daemon.clock import system_now_ms
from triomq.protocol import signature
from triomq.protocol.clock import NowMs
from triomq.protocol.command import RemotingCommand
from triomq.protocol.system_topics import TRACE_TOPIC, group_of_retry_topic, is_retry_topic, reply_topic
from triomq.remoting.connection import Connection

audit = structlog.get_logger("triomq.broker.audit")

_PLACE = "org.apache.rocketmq.acl.plain.PlainPermissionManager.{method}(PlainPermissionManager.java:{line})"
_NO_KEY = _PLACE.format(method="validate", line=663)
_NO_ACCOUNT = _PLACE.format(method="validate", line=667)
_BAD_SIGNATURE = _PLACE.format(method="validate", line=683)
_NOT_ADMIN = _PLACE.format(method="checkPerm", line=580)
_NO_DEFAULT = _PLACE.format(method="checkPerm", line=605)
_NO_PERMISSION = _PLACE.format(method="checkPerm", line=610)
_REASONS = {_NO_KEY: "no_access_key", _NO_ACCOUNT: "unknown_access_key", _BAD_SIGNATURE: "bad_signature"}


class AccessControl:
    """A before-hook for processor tables. `cluster` is the broker's cluster name. With `like_rocketmq` it checks only
    what RocketMQ 4.9.7 checks (aclLikeRocketMQ)."""

    def __init__(
        self,
        table: AccessTable,
        *,
        cluster: str = "DefaultCluster",
        like_rocketmq: bool = False,
        failures: FailedSignatures | None = None,
        now_ms: NowMs = system_now_ms,
    ) -> None:
        self._table = table
        self._refusals = RefusalLog(time.monotonic)
        self.refused = Counter[str]()
        """Reason -> requests: no_access_key, unknown_access_key, bad_signature or no_permission."""
        self._bound = BoundSignatures(now_ms)
        self._failures = failures
        self._reply_topic = reply_topic(cluster)
        self._like_rocketmq = like_rocketmq

    def __call__(self, connection: Connection, request: RemotingCommand) -> None:
        """Check a request. Raises AccessDenied and TooManyFailures."""
        account = self._account(connection, request)
        if account is None:
            return
        if account.white_addresses.matches(connection.remote):
            if self._like_rocketmq:
                return
        else:
            self._check_signature(connection, request, account)
        if self._like_rocketmq:
            self._check_like_rocketmq(connection, request, account)
        else:
            self._check_needs(connection, request, account)
        if connection.notes.get(self) != account.access_key:
            connection.notes[self] = account.access_key  # the last that passed there

    def may_send(self, connection: Connection, topic: str) -> bool:
        """Return whether the client at a connection may send to a topic, and so see its half messages."""
        if self._like_rocketmq or any(white.matches(connection.remote) for white in self._table.white_addresses):
            return True
        account = self._table.account(connection.notes.get(self, ""))
        return account is not None and (account.is_admin or account.may(topic, PUB))

    def check_topic(self, connection: Connection, request: RemotingCommand, topic: str | None, wanted: int) -> None:
        """Check the topic of a message that a request names by its place in the log; None: no message begins there. A
        processor calls this within the call that handles the request, whose signature is checked. Raises
        AccessDenied."""
        account = self._account(connection, request)
        if account is None or account.is_admin or self._like_rocketmq:
            return
        if topic is None:
            text = f"No message begins at the offset that the request code={request.code} names"
            raise self._refusal(connection, request, text, _NO_DEFAULT)
        self._check_resource(connection, request, account, topic, wanted)

    def who(self, connection: Connection, request: RemotingCommand) -> str:
        """Return the account of a request that passed, for the audit. An address may stand for a signature."""
        remote = connection.remote
        if any(pattern.matches(remote) for pattern in self._table.white_addresses):
            return "(white address)"
        access_key = (request.ext_fields or {}).get(signature.ACCESS_KEY, "")
        account = self._table.account(access_key)
        is_white = account is not None and account.white_addresses.matches(remote)
        return f"{access_key} (white address)" if is_white else access_key

    def account_of(self, connection: Connection, request: RemotingCommand) -> str:
        """Return the access key of a request that passed; "" if its address needs none, so that it proves nothing."""
        if any(pattern.matches(connection.remote) for pattern in self._table.white_addresses):
            return ""
        return (request.ext_fields or {}).get(signature.ACCESS_KEY, "")

    def _account(self, connection: Connection, request: RemotingCommand) -> Account | None:
        """Return the account that the request names; None for an address that needs none. Raises AccessDenied."""
        for pattern in self._table.white_addresses:
            if pattern.matches(connection.remote):
                return None
        access_key = (request.ext_fields or {}).get(signature.ACCESS_KEY)
        if access_key is None:
            raise self._refusal(connection, request, "No accessKey is configured", _NO_KEY)
        account = self._table.account(access_key)
        if account is None:
            raise self._refusal(connection, request, f"No acl config for {access_key}", _NO_ACCOUNT)
        return account

    def _check_signature(self, connection: Connection, request: RemotingCommand, account: Account) -> None:
        failures, access_key = self._failures, account.access_key
        if failures is not None:
            failures.check(connection, access_key)
        fields = request.ext_fields or {}
        text = f"Check signature failed for accessKey={access_key}"
        if isinstance(request, CallRequest):
            is_signed = not account.is_bound and request.is_signed_by(account.secret_key)
        elif account.is_bound:
            is_signed = signature.is_bound_by(request.code, fields, request.body, account.secret_key)
        else:
            is_signed = signature.is_signed_by(fields, request.body, account.secret_key)
        if is_signed:
            if failures is not None:
                failures.passed(connection, access_key)
            problem = self._bound.problem(request, account) if account.is_bound else None
            if problem is None:
                return
            text = f"{text}: {problem}"
        elif signature.BOUND_SIGNATURE not in fields and account.is_bound:
            text = f"{text}: {UNBOUND}"
        elif failures is not None:
            failures.failed(connection, access_key)
        raise self._refusal(connection, request, text, _BAD_SIGNATURE)

    def _check_needs(self, connection: Connection, request: RemotingCommand, account: Account) -> None:
        need = need_of(request.code)
        if need.is_admin:
            self._check_admin(connection, request, account)
        if need.wanted is None or (account.is_admin and not (need.binds_admins and account.permissions)):
            return
        try:
            resources = need.wanted(request)
        except NameMissing as missing:
            text = f"Need field {missing.field} for request code={request.code}, whose permission is to be checked"
            raise self._refusal(connection, request, text, _NO_DEFAULT) from None
        for resource, wanted in resources:
            self._check_resource(connection, request, account, resource, wanted)

    def _check_like_rocketmq(self, connection: Connection, request: RemotingCommand, account: Account) -> None:
        needed = needed_resources(request)
        if needed.get(TRACE_TOPIC) == PUB:
            return
        if request.code in ADMIN_CODES:
            self._check_admin(connection, request, account)
        if account.is_admin and not account.permissions:
            return
        for resource, wanted in needed.items():
            if not account.may(resource, wanted):
                raise self._not_permitted(connection, request, account, resource)

    def _check_admin(self, connection: Connection, request: RemotingCommand, account: Account) -> None:
        if not account.is_admin:
            text = f"Need admin permission for request code={request.code}, but accessKey={account.access_key} is not"
            audit.info(
                "administration refused",
                account=account.access_key,
                remote=connection.remote.text,
                code=request.code,
            )
            raise self._refusal(connection, request, text, _NOT_ADMIN)

    def _check_resource(
        self, connection: Connection, request: RemotingCommand, account: Account, resource: str, wanted: int
    ) -> None:
        if wanted == REPLY:
            if resource == self._reply_topic:
                return
            wanted = PUB
        if wanted == PUB and resource == TRACE_TOPIC:
            return  # every client may trace
        # default permissions do not cover the messages of all topics
        is_hidden = resource in INTERNAL_TOPICS and resource not in account.permissions and not account.is_admin
        if is_hidden or not account.may(resource, wanted):
            raise self._not_permitted(connection, request, account, resource)

    def _not_permitted(
        self, connection: Connection, request: RemotingCommand, account: Account, resource: str
    ) -> AccessDenied:
        what = f"group:{group_of_retry_topic(resource)}" if is_retry_topic(resource) else f"topic:{resource}"
        place = _NO_PERMISSION if resource in account.permissions else _NO_DEFAULT
        return self._refusal(connection, request, f"No default permission for {what}", place)

    def _refusal(self, connection: Connection, request: RemotingCommand, text: str, place: str) -> AccessDenied:
        self._refusals.refused(connection.remote.text, request.code, text)
        self.refused[_REASONS.get(place, "no_permission")] += 1
        return AccessDenied(f"{text}, {place}")
