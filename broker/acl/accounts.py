"""Accounts of ACL files and what they may do (PlainAccessResource, Permission).

A permission is one of DENY, PUB, SUB and both; resources are topics, and groups under the name %RETRY%<group>.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from triomq.broker.acl.addresses import AddressPattern
from triomq.broker.acl.errors import AclFileError, AclUpdateRefused
from triomq.broker.acl.names import DENY, EITHER, PUB, SUB
from triomq.protocol.bodies.acl import PlainAccessConfig
from triomq.protocol.system_topics import is_retry_topic, retry_topic

_PERMISSIONS = {"PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}
MIN_KEY_LENGTH = 7
MAX_RESOURCES = 100_000


class Account(Struct, frozen=True):
    """One account, ready for checks. Its repr leaves out the secret key."""

    access_key: str
    secret_key: str
    white_addresses: AddressPattern
    is_admin: bool
    default_topic_permission: int
    default_group_permission: int
    permissions: dict[str, int]  # topic, or %RETRY%<group> -> permission
    is_bound: bool = False  # its signatures have to bind code and time

    def __repr__(self) -> str:
        return f"Account({self.access_key!r}, {self.white_addresses!r}, is_admin={self.is_admin})"

    def may(self, resource: str, wanted: int) -> bool:
        """Return True if the account has all of the `wanted` permission bits for the resource."""
        owned = self.permissions.get(resource)
        if owned is None:
            owned = self.default_group_permission if is_retry_topic(resource) else self.default_topic_permission
        return owned != DENY if wanted == EITHER else owned & wanted == wanted


def parse_permission(text: str | None) -> int:
    """Return the bits of a permission; any other text is DENY."""
    return _PERMISSIONS.get((text or "").strip(), DENY)


def account_of(config: PlainAccessConfig, *, is_bound: bool = False) -> Account:
    """Return the account of a file's entry. Raises AclFileError naming the account and the value."""
    access_key = config.access_key or ""
    if len(access_key) < MIN_KEY_LENGTH or len(config.secret_key or "") < MIN_KEY_LENGTH:
        raise AclFileError(f"account {access_key!r}: accessKey and secretKey must be longer than 6 characters")
    permissions: dict[str, int] = {}
    for text in config.topic_perms or ():
        topic, permission = _resource(access_key, text)
        permissions[topic] = permission
    for text in config.group_perms or ():
        group, permission = _resource(access_key, text)
        permissions[retry_topic(group)] = permission
    if len(permissions) > MAX_RESOURCES:
        raise AclFileError(f"account {access_key!r}: lists more than {MAX_RESOURCES} resources")
    try:
        white_addresses = AddressPattern(config.white_remote_address or "")
    except AclFileError as error:
        raise AclFileError(f"account {access_key!r}: whiteRemoteAddress: {error}") from None
    return Account(
        access_key=access_key,
        secret_key=config.secret_key or "",
        white_addresses=white_addresses,
        is_admin=config.admin,
        default_topic_permission=parse_permission(config.default_topic_perm),
        default_group_permission=parse_permission(config.default_group_perm),
        permissions=permissions,
        is_bound=is_bound,
    )


def check_update(config: PlainAccessConfig) -> None:
    """Check an account that an administrator sends. Raises AclUpdateRefused with RocketMQ's wording."""
    if len(config.access_key or "") < MIN_KEY_LENGTH or len(config.secret_key or "") < MIN_KEY_LENGTH:
        raise AclUpdateRefused(
            f"The accessKey={_java(config.access_key)} and secretKey={_java(config.secret_key)} cannot be null and "
            "length should longer than 6"
        )
    for resource in (*(config.topic_perms or ()), *(config.group_perms or ())):
        parts = resource.split("=")
        if len(parts) != 2:
            raise AclUpdateRefused(
                f"Parse resource format error for {resource}.\nThe expected resource format is 'Res=Perm'. "
                "For example: topicA=SUB"
            )
        _check_permission(resource, parts[1])
    for name, permission in (
        ("defaultTopicPerm", config.default_topic_perm),
        ("defaultGroupPerm", config.default_group_perm),
    ):
        if permission:
            _check_permission(f"{name}={permission}", permission)
    try:
        AddressPattern(config.white_remote_address or "")
    except AclFileError as error:
        raise AclUpdateRefused(f"whiteRemoteAddress: {error}") from None


def check_patterns(texts: Iterable[str]) -> None:
    """Raise AclUpdateRefused unless all texts are address patterns."""
    for text in texts:
        try:
            AddressPattern(text)
        except AclFileError as error:
            raise AclUpdateRefused(str(error)) from None


def _check_permission(resource: str, text: str) -> None:
    if text.strip() != "DENY" and parse_permission(text) == DENY:
        raise AclUpdateRefused(
            f"Parse resource permission error for {resource}.\nThe expected permissions are 'SUB' or 'PUB' or "
            "'SUB|PUB' or 'PUB|SUB'."
        )


def _resource(access_key: str, text: str) -> tuple[str, int]:
    parts = text.split("=")
    if len(parts) != 2:
        raise AclFileError(f"account {access_key!r}: {text!r} is not of the form name=PERMISSION")
    return parts[0].strip(), parse_permission(parts[1])


def _java(text: str | None) -> str:
    return "null" if text is None else text
