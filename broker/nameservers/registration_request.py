"""The requests of a registration: REGISTER_BROKER, QUERY_DATA_VERSION, UNREGISTER_BROKER.

A registration is a snapshot: topics and data version are read from the topic table in one step, without an `await` in
between, so the version identifies exactly what the body carries. The encoded whole table is kept until the version or
the settings change, because it goes to several NameServers, and again every 30 seconds.

A table that a file brought above MAX_PLAIN_BYTES goes compressed, whatever compressedRegister says: a NameServer closes
the connection on a frame above 16 MiB and forgets the broker.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Any, Final, TypeAlias

from triomq.broker.config import BrokerSettings
from triomq.broker.configuration import Configuration
from triomq.broker.tables.topics import TopicTable
from triomq.protocol import permission
from triomq.protocol.bodies.topic_config import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.headers.namesrv import (
    QueryDataVersionRequestHeader,
    RegisterBrokerRequestHeader,
    UnRegisterBrokerRequestHeader,
)

MAX_PLAIN_BYTES: Final = 15 * 1024**2

_Encoded: TypeAlias = tuple[bytes, bool]
"""A body, and whether it is in the compressed form."""


class RegistrationRequests:
    """Builds the requests that one broker sends to NameServers. `address` and `ha_address` are "host:port"."""

    def __init__(self, configuration: Configuration, topics: TopicTable, address: str, ha_address: str) -> None:
        self._configuration = configuration
        self._topics = topics
        self._address = address
        self._ha_address = ha_address
        self._kept: tuple[DataVersion, BrokerSettings, _Encoded] | None = None

    def whole(self) -> RemotingCommand:
        """Return a REGISTER_BROKER with all topics, under the current version."""
        version, broker = self._topics.data_version, self._configuration.broker
        kept = self._kept
        if kept is None or kept[0] != version or kept[1] is not broker:
            kept = self._kept = (version, broker, self._encode(self._topics.configs()))
        return self._register(kept[2])

    def changed(self, names: Iterable[str]) -> RemotingCommand:
        """Return a REGISTER_BROKER with those of the named topics that exist, under the current version."""
        return self._register(self._encode(config for name in names if (config := self._topics.get(name)) is not None))

    def query_version(self) -> RemotingCommand:
        """Return a QUERY_DATA_VERSION, which asks whether the NameServer has the current version."""
        header = QueryDataVersionRequestHeader(**self._identity())
        return new_request(RequestCode.QUERY_DATA_VERSION, header, self._topics.data_version.encode())

    def unregister(self) -> RemotingCommand:
        """Return an UNREGISTER_BROKER."""
        return new_request(RequestCode.UNREGISTER_BROKER, UnRegisterBrokerRequestHeader(**self._identity()))

    def _register(self, encoded: _Encoded) -> RemotingCommand:
        body, is_compressed = encoded
        header = RegisterBrokerRequestHeader(
            **self._identity(),
            ha_server_addr=self._ha_address,
            compressed=is_compressed,
            body_crc32=zlib.crc32(body) & 0x7FFFFFFF,
        )
        return new_request(RequestCode.REGISTER_BROKER, header, body)

    def _encode(self, configs: Iterable[TopicConfig]) -> _Encoded:
        broker = self._configuration.broker
        table = {config.topic_name: _permitted(config, broker.broker_permission) for config in configs}
        wrapper = TopicConfigSerializeWrapper(data_version=self._topics.data_version, topic_config_table=table)
        body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
        if broker.compressed_register:
            return body.encode_compressed(), True
        plain = body.encode()
        return (plain, False) if len(plain) <= MAX_PLAIN_BYTES else (body.encode_compressed(), True)

    def _identity(self) -> dict[str, Any]:
        """Return the header fields that all requests to a NameServer begin with."""
        broker = self._configuration.broker
        return {
            "broker_name": broker.broker_name,
            "broker_addr": self._address,
            "cluster_name": broker.broker_cluster_name,
            "broker_id": self._configuration.role.broker_id,
        }


def _permitted(config: TopicConfig, broker_permission: int) -> TopicConfig:
    """Return the topic as registered: if the broker must not be read or written, every topic has the broker's
    permission."""
    if permission.is_readable(broker_permission) and permission.is_writeable(broker_permission):
        return config
    return TopicConfig(
        topic_name=config.topic_name,
        read_queue_nums=config.read_queue_nums,
        write_queue_nums=config.write_queue_nums,
        perm=broker_permission,
    )
