"""The accounts of plain_acl.yml as the dashboard knows them."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Final

from triomq.broker.acl.access_table import AccessTable
from triomq.broker.acl.accounts import Account
from triomq.broker.acl.names import SUB
from triomq.dashboard.listing import ROWS, number_of
from triomq.dashboard.views import Ask, Steps, View
from triomq.protocol.system_topics import retry_topic

MOST_PERMISSIONS: Final = 100
"""Of one account, on the page."""


@dataclass(frozen=True, slots=True)
class AccountViewer:
    """Sees what its account may consume; an administrator sees everything."""

    account: Account

    @property
    def name(self) -> str:
        return self.account.access_key

    @property
    def is_admin(self) -> bool:
        return self.account.is_admin

    @property
    def stamp(self) -> str:
        return hashlib.sha256(self.account.secret_key.encode()).hexdigest()

    def may_read(self, topic: str) -> bool:
        """Return whether the messages of a topic may be shown."""
        return self.account.is_admin or self.account.may(topic, SUB)

    def may_read_group(self, group: str) -> bool:
        """Return whether the progress of a consumer group may be shown."""
        return self.account.is_admin or self.account.may(retry_topic(group), SUB)


class AccountPages:
    """The page of the accounts, without secrets."""

    def __init__(self, table: AccessTable) -> None:
        self._table = table

    def views(self) -> list[View]:
        """Return the page."""
        return [View("/accounts", "Accounts", "accounts.html", self.accounts, admins_only=True)]

    def accounts(self, ask: Ask) -> Steps:
        """Make the list of accounts with what they may do, and the addresses that need none."""
        white, configs = self._table.configs()
        yield
        search = ask.query.get("q", "").strip()
        found = sorted(
            (one for one in configs if search.lower() in (one.access_key or "").lower()),
            key=lambda one: one.access_key or "",
        )
        pages = max(1, -(-len(found) // ROWS))
        number = number_of(ask.query, "page", 1, 1, pages)
        rows = [
            {
                "name": one.access_key,
                "is_admin": one.admin,
                "addresses": one.white_remote_address or "",
                "default_topic": one.default_topic_perm or "DENY",
                "default_group": one.default_group_perm or "DENY",
                "topics": (one.topic_perms or [])[:MOST_PERMISSIONS],
                "groups": (one.group_perms or [])[:MOST_PERMISSIONS],
                "left_out": max(0, len(one.topic_perms or []) - MOST_PERMISSIONS)
                + max(0, len(one.group_perms or []) - MOST_PERMISSIONS),
            }
            for one in found[(number - 1) * ROWS : number * ROWS]
        ]
        return {
            "rows": rows,
            "total": len(found),
            "page": number,
            "pages": pages,
            "search": search,
            "white_addresses": white[:MOST_PERMISSIONS],
        }


class AclAccounts:
    """Accounts by access key, as the ACL files have them now."""

    def __init__(self, table: AccessTable) -> None:
        self._table = table

    def viewer(self, name: str) -> AccountViewer | None:
        """Return the viewer of an account; None if there is none."""
        account = self._table.account(name)
        return AccountViewer(account) if account is not None else None

    def log_in(self, name: str, secret: str) -> AccountViewer | None:
        """Return the viewer if the secret is right. The time tells neither names nor parts of a secret."""
        account = self._table.account(name)
        expected = account.secret_key if account is not None else "\0"
        given_digest, expected_digest = (
            hashlib.sha256(text.encode(errors="replace")).digest() for text in (secret, expected)
        )
        is_right = hmac.compare_digest(given_digest, expected_digest)
        return AccountViewer(account) if account is not None and is_right else None
