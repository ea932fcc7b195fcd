"""Administration: everything the `mqadmin` commands ask of brokers and name servers, as async calls.

    async with Admin(name_server="127.0.0.1:9876") as admin:
        await admin.create_topic("Orders", read_queues=8, write_queues=8)
        print((await admin.consume_stats("billing")).total_diff())

Topics and groups are wire names here: write `<namespace>%<name>` where a namespace is used. The methods live in
topics.py, groups.py and messages.py; those for brokers and name servers themselves are below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self, Unpack

import trio

from triomq.client.administer.messages import MessageAdmin, MessageTrack, TrackType
from triomq.client.core.config import ClientOptions
from triomq.client.core.errors import ClientClosed
from triomq.client.instance.client import Client
from triomq.client.instance.event_loop import check_in_trio
from triomq.protocol import java_properties
from triomq.protocol.bodies.acl import GetBrokerClusterAclConfigResponseBody, PlainAccessConfig
from triomq.protocol.bodies.broker_stats import BrokerStatsData
from triomq.protocol.bodies.kv_table import KVTable
from triomq.protocol.codes import RequestCode
from triomq.protocol.headers.acl import (
    CreateAccessConfigRequestHeader,
    DeleteAccessConfigRequestHeader,
    GetBrokerAclConfigResponseHeader,
    UpdateGlobalWhiteAddrsConfigRequestHeader,
)
from triomq.protocol.headers.broker_config import ViewBrokerStatsDataRequestHeader
from triomq.protocol.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)

__all__ = ["Admin", "MessageTrack", "TrackType"]


class Admin(MessageAdmin):
    """Administration: everything the `mqadmin` commands ask of brokers and name servers, as async calls (RocketMQ:
    DefaultMQAdminExt). Use it as `async with Admin(...) as admin`. Topics and groups are wire names. `timeout_seconds`:
    limit of each call. `client`: share this open client."""

    def __init__(
        self, *, client: Client | None = None, timeout_seconds: float = 5.0, **options: Unpack[ClientOptions]
    ) -> None:
        super().__init__(client, options)
        self._timeout_seconds = timeout_seconds

    async def __aenter__(self) -> Self:
        check_in_trio(type(self).__name__)
        if self._is_open:
            raise ClientClosed("this Admin is already open")
        await self._enter_client(self._stack)
        self._opening_task = trio.lowlevel.current_task()
        return self

    # Brokers.

    async def broker_runtime(self, broker_address: str) -> dict[str, str]:
        """Return what a broker reports about itself (mqadmin brokerStatus)."""
        response = await self._broker(broker_address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return dict(KVTable.decode(response.body).table)

    async def broker_config(self, broker_address: str) -> dict[str, str]:
        """Return all settings of a broker."""
        response = await self._broker(broker_address, RequestCode.GET_BROKER_CONFIG)
        return java_properties.parse(response.body.decode("utf-8", "replace"))

    async def update_broker_config(self, broker_address: str, values: Mapping[str, str]) -> None:
        """Change settings of a running broker."""
        body = java_properties.format(dict(values)).encode()
        await self._broker(broker_address, RequestCode.UPDATE_BROKER_CONFIG, None, body)

    async def broker_stats(self, broker_address: str, name: str, key: str) -> BrokerStatsData:
        """Return one counter, for instance ("TOPIC_PUT_NUMS", "Orders"). Raises BrokerRefused when there is none."""
        header = ViewBrokerStatsDataRequestHeader(stats_name=name, stats_key=key)
        response = await self._broker(broker_address, RequestCode.VIEW_BROKER_STATS_DATA, header)
        return BrokerStatsData.decode(response.body)

    async def delete_expired_commit_log(self, broker_address: str) -> None:
        """Have a broker delete expired files now."""
        await self._broker(broker_address, RequestCode.DELETE_EXPIRED_COMMITLOG)

    # Access control of a broker.

    async def acl_versions(self, broker_address: str) -> GetBrokerAclConfigResponseHeader:
        """Return the versions of the access control files. A broker without access control does not respond:
        OperationTimeout."""
        response = await self._broker(broker_address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        return response.header(GetBrokerAclConfigResponseHeader)

    async def acl_config(self, broker_address: str) -> GetBrokerClusterAclConfigResponseBody:
        """Return the accounts, with their secrets in clear text."""
        response = await self._broker(broker_address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        return GetBrokerClusterAclConfigResponseBody.decode(response.body)

    async def put_acl_account(self, broker_address: str, account: PlainAccessConfig) -> None:
        """Create or change an account."""
        header = CreateAccessConfigRequestHeader(
            access_key=account.access_key or "",
            secret_key=account.secret_key,
            white_remote_address=account.white_remote_address,
            admin=account.admin,
            default_topic_perm=account.default_topic_perm,
            default_group_perm=account.default_group_perm,
            topic_perms=None if account.topic_perms is None else ",".join(account.topic_perms),
            group_perms=None if account.group_perms is None else ",".join(account.group_perms),
        )
        await self._broker(broker_address, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header)

    async def delete_acl_account(self, broker_address: str, access_key: str) -> None:
        """Delete an account from the ACL of one broker."""
        header = DeleteAccessConfigRequestHeader(access_key=access_key)
        await self._broker(broker_address, RequestCode.DELETE_ACL_CONFIG, header)

    async def put_global_white_addresses(
        self, broker_address: str, patterns: Iterable[str], *, file_path: str | None = None
    ) -> None:
        """Replace the addresses that need no signature."""
        header = UpdateGlobalWhiteAddrsConfigRequestHeader(
            global_white_addrs=",".join(patterns), acl_file_full_path=file_path
        )
        await self._broker(broker_address, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header)

    # Name servers.

    async def name_server_configs(self, addresses: Iterable[str] | None = None) -> dict[str, dict[str, str]]:
        """Return all settings of each name server, by address."""
        responses = await self._every_name_server(RequestCode.GET_NAMESRV_CONFIG, addresses=addresses)
        return {
            address: java_properties.parse(response.body.decode("utf-8", "replace"))
            for address, response in responses.items()
        }

    async def update_name_server_config(
        self, values: Mapping[str, str], addresses: Iterable[str] | None = None
    ) -> None:
        """Change settings of running name servers."""
        body = java_properties.format(dict(values)).encode()
        await self._every_name_server(RequestCode.UPDATE_NAMESRV_CONFIG, None, body, addresses=addresses)

    async def wipe_write_perm(self, name_server: str, broker_name: str) -> int:
        """Have one name server hide a broker from producers; return the number of topics that changed."""
        header = WipeWritePermOfBrokerRequestHeader(broker_name=broker_name)
        responses = await self._every_name_server(
            RequestCode.WIPE_WRITE_PERM_OF_BROKER, header, addresses=[name_server]
        )
        return responses[name_server].header(WipeWritePermOfBrokerResponseHeader).wipe_topic_count

    async def add_write_perm(self, name_server: str, broker_name: str) -> int:
        """Undo `wipe_write_perm`; return the number of topics that changed."""
        header = AddWritePermOfBrokerRequestHeader(broker_name=broker_name)
        responses = await self._every_name_server(RequestCode.ADD_WRITE_PERM_OF_BROKER, header, addresses=[name_server])
        return responses[name_server].header(AddWritePermOfBrokerResponseHeader).add_topic_count
