"""Administration of the ACL files: codes 50 to 54 (a part of AdminBrokerProcessor)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from triomq.broker.acl.errors import AclUpdateRefused
from triomq.broker.audit import UNNAMED, Audit
from triomq.broker.configuration import Configuration
from triomq.protocol.bodies import fastjson
from triomq.protocol.bodies.acl import GetBrokerClusterAclConfigResponseBody, PlainAccessConfig
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Processor

if TYPE_CHECKING:
    from triomq.broker.acl.access_table import AccessTable

log = structlog.get_logger("triomq.broker.acl")

ACL_CODES = (
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
)


_Update = Callable[[Connection, RemotingCommand, "AccessTable | None"], RemotingCommand]

ACL_IS_OFF = "this broker checks no access: set aclEnable=true in its configuration and restart it"


class AclProcessor:
    """Reads and changes the ACL files. `table` is None while ACL is off. `address` returns the broker's "ip:port"."""

    def __init__(
        self,
        configuration: Configuration,
        table: AccessTable | None,
        *,
        address: Callable[[], str],
        audit: Audit = UNNAMED,
    ) -> None:
        self._audit = audit
        self._configuration = configuration
        self._table = table
        self._address = address
        self._updates: dict[int, _Update] = {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self._update_account,
            RequestCode.DELETE_ACL_CONFIG: self._delete_account,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self._update_white_addresses,
        }

    def processors(self) -> dict[int, Processor]:
        """Return request code -> processor."""
        return dict.fromkeys(map(int, ACL_CODES), self)

    def __call__(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        table = self._table
        update = self._updates.get(request.code)
        if update is not None:
            answer = update(connection, request, table)
            answer.serialize_type = connection.serialize_type  # RocketMQ ignores the request's codec here
            return answer
        if table is None:
            # RocketMQ sends no response in this case, so its tools wait for their timeout.
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, ACL_IS_OFF)
        if request.code == RequestCode.GET_BROKER_CLUSTER_ACL_INFO:
            return self._info(request, table)
        white_addresses, configs = table.configs()
        self._audit.done(connection, request, "accounts read with their secret keys", accounts=len(configs))
        body = GetBrokerClusterAclConfigResponseBody(global_white_addrs=white_addresses, plain_access_configs=configs)
        return new_response(request, body=body.encode(), ext_fields={})

    def _update_account(
        self, connection: Connection, request: RemotingCommand, table: AccessTable | None
    ) -> RemotingCommand:
        header = request.header(CreateAccessConfigRequestHeader)
        config = PlainAccessConfig(
            access_key=header.access_key,
            secret_key=header.secret_key,
            white_remote_address=header.white_remote_address,
            admin=header.admin,
            default_topic_perm=header.default_topic_perm,
            default_group_perm=header.default_group_perm,
            topic_perms=split_list(header.topic_perms),
            group_perms=split_list(header.group_perms),
        )
        refused = ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED
        if table is None:
            raise RequestRefused(refused, ACL_IS_OFF)
        account = self._audit.account(connection, request)
        before = table.config(header.access_key or "")
        try:
            table.update_account(config)
        except (AclUpdateRefused, OSError) as error:
            log.warning("account not written", key=header.access_key, error=type(error).__name__)
            raise RequestRefused(refused, str(error)) from None
        act = "account changed" if before is not None else "account created"
        after = table.config(header.access_key or "")
        self._audit.done(connection, request, act, account=account, key=header.access_key, before=before, after=after)
        return new_response(request)

    def _delete_account(
        self, connection: Connection, request: RemotingCommand, table: AccessTable | None
    ) -> RemotingCommand:
        access_key = request.header(DeleteAccessConfigRequestHeader).access_key
        refused = ResponseCode.DELETE_ACL_CONFIG_FAILED
        if table is None:
            raise RequestRefused(refused, ACL_IS_OFF)
        account = self._audit.account(connection, request)
        before = table.config(access_key)
        try:
            if table.delete_account(access_key):
                self._audit.done(connection, request, "account deleted", account=account, key=access_key, before=before)
                return new_response(request)
        except (AclUpdateRefused, OSError) as error:
            raise RequestRefused(refused, str(error)) from None
        raise RequestRefused(
            refused, f"The accesskey[{access_key}] corresponding to accessConfig has been deleted failed."
        )

    def _update_white_addresses(
        self, connection: Connection, request: RemotingCommand, table: AccessTable | None
    ) -> RemotingCommand:
        header = request.header(UpdateGlobalWhiteAddrsConfigRequestHeader)
        refused = ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED
        if table is None:
            raise RequestRefused(refused, ACL_IS_OFF)
        account = self._audit.account(connection, request)
        before = {"globalWhiteRemoteAddresses": table.configs()[0]}
        try:
            texts = split_list(header.global_white_addrs) or []
            if table.update_white_addresses(texts, header.acl_file_full_path):
                after = {"globalWhiteRemoteAddresses": table.configs()[0]}
                act = "white addresses changed"
                self._audit.done(connection, request, act, account=account, before=before, after=after)
                return new_response(request)
        except (AclUpdateRefused, OSError) as error:
            raise RequestRefused(refused, str(error)) from None
        raise RequestRefused(refused, f"The globalWhiteAddresses[{header.global_white_addrs}] has been updated failed.")

    def _info(self, request: RemotingCommand, table: AccessTable) -> RemotingCommand:
        broker = self._configuration.broker
        header = GetBrokerAclConfigResponseHeader(
            version=table.default_version().encode().decode(),
            all_acl_file_version=fastjson.dumps(table.versions()).decode(),
            broker_name=broker.broker_name,
            broker_addr=self._address(),
            cluster_name=broker.broker_cluster_name,
        )
        return new_response(request, header=header)


def split_list(text: str | None) -> list[str] | None:
    """Return the parts of a comma list. A list in braces ("1.2.3.{4,5}") stays one entry. Return None for None and for
    an empty text."""
    if not text:
        return None
    parts: list[str] = []
    depth = 0
    for piece in text.split(","):
        if depth:
            parts[-1] += "," + piece
        else:
            parts.append(piece)
        depth += piece.count("{") - piece.count("}")
    return [part.strip() for part in parts]
