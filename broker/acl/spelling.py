"""Mistakes in an ACL file that RocketMQ ignores silently: misspelt keys and invalid values.

A key that looks like a known one makes the file invalid: `acounts:` defines no account, `defaultTopicPrem:` leaves an
account with other permissions than it shows. Other unknown keys only log a warning, since tools may keep notes there.
An unknown permission counts as DENY, as in RocketMQ, and an unknown boolean as false; both log a warning. No mistake
ever grants access.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from difflib import get_close_matches
from typing import Any

from triomq.broker.acl.errors import AclFileError

FILE_KEYS = ("globalWhiteRemoteAddresses", "accounts", "dataVersion")
ACCOUNT_KEYS = (
    "accessKey",
    "secretKey",
    "secretKeyFile",
    "whiteRemoteAddress",
    "admin",
    "defaultTopicPerm",
    "defaultGroupPerm",
    "topicPerms",
    "groupPerms",
    "boundSignature",
)
PERMISSIONS = frozenset({"DENY", "PUB", "SUB", "PUB|SUB", "SUB|PUB"})
BOOLEANS = frozenset({"true", "false", "yes", "no", "on", "off"})
_SIMILAR = 0.8
MAX_REPORTED = 100


def check_keys(document: dict[str, Any]) -> None:
    """Raise AclFileError for a key that looks like a known one but is not."""
    _check_keys("", document, FILE_KEYS)
    for where, account in _accounts(document):
        _check_keys(f"{where}: ", account, ACCOUNT_KEYS)


def remarks(document: dict[str, Any]) -> tuple[str, ...]:
    """Return what is doubtful in a usable file, at most MAX_REPORTED sentences. No secret is quoted."""
    found = [f"the key {key!r} is unknown" for key in document if key not in FILE_KEYS]
    for where, account in _accounts(document):
        found += [f"{where}: the key {key!r} is unknown" for key in account if key not in ACCOUNT_KEYS]
        for name in ("defaultTopicPerm", "defaultGroupPerm"):
            found += _strange_permission(f"{where}: {name}", account.get(name))
        for name in ("topicPerms", "groupPerms"):
            entries = account.get(name)
            for entry in entries if isinstance(entries, list) else ():
                resource, _, permission = str(entry).partition("=")
                found += _strange_permission(f"{where}: {name}: {resource.strip()}", permission)
        for name in ("admin", "boundSignature"):
            text = str(account.get(name) or "").strip()
            if text and text.lower() not in BOOLEANS:
                found.append(f"{where}: {name}: {text!r} is neither true nor false; it counts as false")
    return tuple(found[:MAX_REPORTED])


def _accounts(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    accounts = document.get("accounts")
    for account in accounts if isinstance(accounts, list) else ():
        if isinstance(account, dict):
            yield f"account {account.get('accessKey')!r}", account


def _check_keys(where: str, members: dict[str, Any], known: Collection[str]) -> None:
    unknown = [str(key) for key in members if key not in known]
    if not unknown:
        return
    lowered = {name.lower(): name for name in known}
    for key in unknown:
        similar = get_close_matches(key.lower(), lowered, 1, _SIMILAR)
        if similar:
            raise AclFileError(f"{where}the key {key!r} is unknown; did you mean {lowered[similar[0]]!r}?")


def _strange_permission(where: str, value: Any) -> list[str]:
    text = str(value or "").strip()
    if not text or text in ("null", "~") or text in PERMISSIONS:
        return []
    return [f"{where}: {text!r} is not one of DENY, PUB, SUB, PUB|SUB; it counts as DENY"]
