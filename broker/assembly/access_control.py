"""Access control as the configuration sets it (aclEnable)."""

from __future__ import annotations

import trio

from triomq.broker.acl.access_control import AccessControl
from triomq.broker.acl.access_table import AccessTable
from triomq.broker.acl.failed_signatures import FailedSignatures
from triomq.broker.configuration import Configuration
from triomq.protocol.clock import NowMs


def build_access_control(access: AccessTable, configuration: Configuration, now_ms: NowMs) -> AccessControl:
    """Return the check of each request against the accounts of the table."""
    broker = configuration.broker
    return AccessControl(
        access,
        cluster=broker.broker_cluster_name,
        like_rocketmq=broker.acl_like_rocketmq,
        failures=FailedSignatures(lambda: configuration.broker.acl_failures_per_minute, trio.current_time),
        now_ms=now_ms,
    )
