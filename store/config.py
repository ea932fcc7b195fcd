"""StoreSettings: the keys of RocketMQ's MessageStoreConfig, and after them those that only this store has.

In RocketMQ, the first two of the latter are system properties.
"""

from __future__ import annotations

from triomq.protocol.settings import changeable_setting, setting
from triomq.store.rocketmq_config import BrokerRole as BrokerRole
from triomq.store.rocketmq_config import FlushDiskType as FlushDiskType
from triomq.store.rocketmq_config import RocketMQStoreSettings


class StoreSettings(RocketMQStoreSettings, frozen=True, kw_only=True):
    """Every setting of a store."""

    disk_space_warning_level_ratio: float = changeable_setting(
        "diskSpaceWarningLevelRatio",
        0.90,
        meaning="disk usage at which writes are refused (RocketMQ: a system property)",
        minimum=0.01,
        maximum=1,
    )
    disk_space_clean_forcibly_ratio: float = changeable_setting(
        "diskSpaceCleanForciblyRatio",
        0.85,
        meaning="disk usage at which unexpired files go too (RocketMQ: a system property)",
        minimum=0.01,
        maximum=1,
    )
    max_store_bytes: int = changeable_setting(
        "maxStoreBytes",
        0,
        meaning="oldest CommitLog files are deleted while the log is larger than this; 0 = no limit",
        minimum=0,
        own=True,
    )
    archive_before_delete: bool = changeable_setting(
        "archiveBeforeDelete",
        False,
        meaning="retention keeps CommitLog files that are not archived yet, whatever their age, maxStoreBytes or the "
        "disk say; config/archived.json, which `mqpipeline archive --store` writes, tells how far the archive is",
        own=True,
    )
    ha_cut_copied: bool = changeable_setting(
        "haCutCopied",
        False,
        meaning="a slave whose master lacks messages that came from a master cuts them, after saving them under "
        "salvage/; otherwise it stops following until this is set or the master has them again",
        own=True,
    )
    max_open_files: int = setting(
        "maxOpenFiles",
        16_384,
        meaning="consume queue, index and old log files kept open at a time",
        minimum=16,
        own=True,
    )
    ha_slave_addresses: str = setting(
        "haSlaveAddresses",
        "",
        meaning="addresses and networks, separated by commas, that alone may connect to the HA port; their reports "
        "count as copies. Empty = everybody may connect",
        own=True,
    )
    ha_count_unregistered: bool = setting(
        "haCountUnregistered",
        False,
        meaning="count the reports of every peer of the HA port as copies, not only those of slaves that the "
        "NameServers know",
        own=True,
    )
    ha_serve_unregistered: bool | None = setting(
        "haServeUnregistered",
        None,
        meaning="send the log to peers of the HA port that are no slaves that the NameServers know; empty = unless "
        "aclEnable=true",
        own=True,
    )
    ha_max_connections: int = changeable_setting(
        "haMaxConnections",
        64,
        meaning="most connections to the HA port; a peer that counts takes the place of one that does not",
        minimum=1,
        maximum=1024,
        own=True,
    )
    ha_max_connections_per_address: int = changeable_setting(
        "haMaxConnectionsPerAddress",
        16,
        meaning="most connections to the HA port from one address",
        minimum=1,
        own=True,
    )
    dleger_peer_addresses: str = setting(
        "dLegerPeerAddresses",
        "",
        meaning="addresses and networks, separated by commas, that may connect to the port of dLegerPeers besides the "
        "hosts of its members; * = everybody, as in RocketMQ",
        own=True,
    )
    dleger_fast_election: bool = setting(
        "dLegerFastElection",
        False,
        meaning="a group replaces a leader that is cut off or stands still within about a second; at all members of "
        "the group or at none, and not with members of RocketMQ",
        own=True,
    )
