"""The accounts of plain_acl.yml as the dashboard knows them."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

from triomq.broker.acl.access_table import AccessTable
from triomq.broker.acl.accounts import SUB, Account
from triomq.protocol.system_topics import retry_topic


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
