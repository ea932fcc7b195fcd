"""Access control data of a broker. Secret keys are in plain text: never log these records."""

from __future__ import annotations

from triomq.protocol.bodies.base import Body


class PlainAccessConfig(Body, frozen=True, kw_only=True):
    """One account of an ACL file. Permissions are lists of "name=PERM"."""

    access_key: str | None = None
    admin: bool = False
    default_group_perm: str | None = None
    default_topic_perm: str | None = None
    group_perms: list[str] | None = None
    secret_key: str | None = None
    topic_perms: list[str] | None = None
    white_remote_address: str | None = None

    def __repr__(self) -> str:
        return f"PlainAccessConfig(access_key={self.access_key!r}, admin={self.admin})"


class GetBrokerClusterAclConfigResponseBody(Body, frozen=True, kw_only=True):
    """GET_BROKER_CLUSTER_ACL_CONFIG."""

    global_white_addrs: list[str] | None = None
    plain_access_configs: list[PlainAccessConfig] | None = None
