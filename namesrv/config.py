"""NamesrvSettings: the settings of the NameServer under RocketMQ's keys (RocketMQ: NamesrvConfig; its port is in
NettyServerConfig).

UPDATE_NAMESRV_CONFIG may only change what is marked `changeable`: never a path, because moving the file that is written
means writing anywhere, and never the addresses of other servers.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from triomq.daemon.configuration import ConfigurationLayers
from triomq.protocol.settings import SettingsRecord, changeable_setting, retired_setting, setting
from triomq.remoting.config import ServerSettings

DEFAULT_PORT = 9876


class NamesrvSettings(SettingsRecord, frozen=True, kw_only=True):
    """The NameServer's own settings. An empty path keeps the content of that file in memory only."""

    rocketmq_home: str = setting("rocketmqHome", "", meaning="installation directory")
    kv_config_path: str = setting("kvConfigPath", "", meaning="JSON file of the key-value configuration")
    config_store_path: str = setting(
        "configStorePath", "", meaning="file that UPDATE_NAMESRV_CONFIG writes; the -c file when there is one"
    )
    product_env_name: str = changeable_setting(
        "productEnvName", "center", meaning="environment that clusterTest asks for routes"
    )
    cluster_test: bool = changeable_setting(
        "clusterTest", False, meaning="ask the product environment for the routes of unknown topics"
    )
    order_message_enable: bool = changeable_setting("orderMessageEnable", False, meaning="add orderTopicConf to routes")
    namesrv_addr: str | None = setting("namesrvAddr", None, meaning="NameServers that clusterTest asks")
    max_topics: int = changeable_setting(
        "maxTopics",
        500_000,
        meaning="topics above this are refused, because the list of all of them is made at once and sent whole",
        minimum=1,
        own=True,
    )
    max_routes: str = retired_setting(
        "maxRoutes", instead="pairs of a topic and a broker name are bounded by half of maxRequestBytes"
    )
    max_broker_addresses: int = changeable_setting(
        "maxBrokerAddresses",
        20_000,
        meaning="brokers above this are refused, because the list of all of them is made at once and sent whole",
        minimum=1,
        own=True,
    )
    max_kv_entries: str = retired_setting(
        "maxKvEntries", instead="key-value entries are bounded by maxKvBytes and half of maxRequestBytes"
    )
    max_kv_bytes: int = changeable_setting(
        "maxKvBytes",
        8 * 1024**2,
        meaning="bytes of all key-value entries as JSON; more are refused, because registrations receive a namespace "
        "whole and the file is written whole",
        minimum=1,
        own=True,
    )
    protect_routes: bool = setting(
        "protectRoutes",
        False,
        meaning="while a broker is alive, only the client certificate that registered it, or without one the host, may "
        "replace or unregister it",
        own=True,
    )
    config_update_without_acl: bool = setting(
        "configUpdateWithoutAcl", False, meaning="let everybody change the configuration over the network", own=True
    )


PATH_KEYS = frozenset({"kvConfigPath", "configStorePath", "configStorePathName", "rocketmqHome"})
"""Keys whose presence alone refuses an update request."""


def namesrv_defaults(user_home: Path) -> Mapping[str, str]:
    """Return RocketMQ's defaults that depend on the environment: paths below the user's home, and the port."""
    directory = user_home / "namesrv"
    return {
        "listenPort": str(DEFAULT_PORT),
        "kvConfigPath": str(directory / "kvConfig.json"),
        "configStorePath": str(directory / "namesrv.properties"),
    }


def bind_settings(configuration: ConfigurationLayers) -> tuple[NamesrvSettings, ServerSettings]:
    """Return both records of a NameServer process, with its defaults. Raises SettingError."""
    return configuration.bind(NamesrvSettings), configuration.bind(ServerSettings)
