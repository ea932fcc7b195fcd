"""Access control files of a broker. Field names and types: RocketMQ 4.9.7, classes of the same names."""

from __future__ import annotations

from triomq.protocol.bounds import AccountName, AddressList, FilePath, PermissionText, ResourceList, Secret
from triomq.protocol.headers.base import Header


class CreateAccessConfigRequestHeader(Header, frozen=True, kw_only=True):
    """UPDATE_AND_CREATE_ACL_CONFIG request."""

    access_key: AccountName
    secret_key: Secret | None = None
    white_remote_address: AddressList | None = None
    admin: bool = False
    default_topic_perm: PermissionText | None = None
    default_group_perm: PermissionText | None = None
    topic_perms: ResourceList | None = None  # comma-joined "topic=PERM"
    group_perms: ResourceList | None = None  # comma-joined "group=PERM"


class DeleteAccessConfigRequestHeader(Header, frozen=True, kw_only=True):
    """DELETE_ACL_CONFIG request."""

    access_key: AccountName


class GetBrokerAclConfigResponseHeader(Header, frozen=True, kw_only=True):
    """GET_BROKER_CLUSTER_ACL_INFO response."""

    version: str  # DataVersion as JSON
    all_acl_file_version: str | None = None  # JSON object: file path -> DataVersion
    broker_name: str
    broker_addr: str
    cluster_name: str


class UpdateGlobalWhiteAddrsConfigRequestHeader(Header, frozen=True, kw_only=True):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG request."""

    global_white_addrs: AddressList  # comma-joined address patterns
    acl_file_full_path: FilePath | None = None  # absent: the default file. Required in Java, yet clients omit it


class GetBrokerClusterAclConfigResponseHeader(Header, frozen=True, kw_only=True):
    """GET_BROKER_CLUSTER_ACL_CONFIG response. Its only field is always null; the accounts are in the body."""
