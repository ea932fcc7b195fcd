"""State and configuration of the broker (RocketMQ: AdminBrokerProcessor): UPDATE_BROKER_CONFIG, GET_BROKER_CONFIG,
GET_BROKER_RUNTIME_INFO, VIEW_BROKER_STATS_DATA, DELETE_EXPIRED_COMMITLOG."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

from triomq.broker.audit import UNNAMED, Audit
from triomq.broker.configuration_update import ConfigurationUpdate
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.runtime_info import RuntimeInfo
from triomq.protocol.bodies.kv_table import KVTable
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.broker_config import GetBrokerConfigResponseHeader, ViewBrokerStatsDataRequestHeader
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Processor
from triomq.store.message_store import DefaultMessageStore


class RuntimeProcessor:
    """Serves and changes the configuration, and serves the state and statistics of the broker."""

    def __init__(
        self,
        update: ConfigurationUpdate,
        info: RuntimeInfo,
        stats: BrokerStats,
        store: DefaultMessageStore,
        audit: Audit = UNNAMED,
    ) -> None:
        self._audit = audit
        self._update = update
        self._info = info
        self._stats = stats
        self._store = store

    def processors(self) -> dict[int, Processor]:
        """Return request code -> processor."""
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.GET_BROKER_CONFIG: self.config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.VIEW_BROKER_STATS_DATA: self.stats_data,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.delete_expired_files,
        }

    def update_config(self, connection: Connection, request: RemotingCommand) -> Coroutine[Any, Any, RemotingCommand]:
        """Handle UPDATE_BROKER_CONFIG: apply properties text. A request without a body changes nothing."""

        def changed(before: Mapping[str, str], after: Mapping[str, str]) -> None:
            self._audit.done(connection, request, "configuration changed", before=before, after=after)

        update = None
        if request.body:
            update = self._update.update(request.body, remote=connection.remote.text, changed=changed)
        return _updated(request, update)

    def config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_BROKER_CONFIG: return one line for each key, unescaped as RocketMQ writes them."""
        lines = "".join(f"{key}={text}\n" for key, text in self._update.values().items())
        version = self._update.data_version.encode().decode()
        return new_response(request, header=GetBrokerConfigResponseHeader(version=version), body=lines.encode())

    def runtime_info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle GET_BROKER_RUNTIME_INFO."""
        return new_response(request, body=KVTable(table=self._info.values()).encode())

    def stats_data(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle VIEW_BROKER_STATS_DATA: return one statistic for the last minute, hour and day."""
        header = request.header(ViewBrokerStatsDataRequestHeader)
        data = self._stats.snapshot(header.stats_name, header.stats_key)
        if data is None:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR, f"The stats <{header.stats_name}> <{header.stats_key}> not exist"
            )
        return new_response(request, body=data.encode())

    def delete_expired_files(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle DELETE_EXPIRED_COMMITLOG: run the cleaner at once, at any hour."""
        self._audit.done(connection, request, "deletion of expired files requested")
        self._store.upkeep.delete_files_now()
        return new_response(request)


async def _updated(request: RemotingCommand, update: Coroutine[Any, Any, object] | None) -> RemotingCommand:
    if update is not None:
        await update
    return new_response(request)
