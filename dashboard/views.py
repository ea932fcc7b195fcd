"""What a daemon gives its dashboard: views, accounts, and the history of its figures."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from triomq.dashboard.history import History
from triomq.dashboard.sessions import Accounts, Viewer

Data = dict[str, Any]
Steps = Generator[None, None, Data]
"""Makes the data of a page; an item ends a step, after which other tasks run."""


class NotThere(Exception):
    """What a page is about does not exist, or the viewer may not see it: the same text for both."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a view may know. Without accounts `viewer` is None, and everybody reads everything."""

    query: dict[str, str] = field(default_factory=dict)
    viewer: Viewer | None = None

    @property
    def sees_all(self) -> bool:
        return self.viewer is None or self.viewer.is_admin

    def may_read(self, topic: str) -> bool:
        return self.viewer is None or self.viewer.is_admin or self.viewer.may_read(topic)

    def may_read_group(self, group: str) -> bool:
        return self.viewer is None or self.viewer.is_admin or self.viewer.may_read_group(group)


@dataclass(frozen=True, slots=True)
class View:
    """One page, and the same data as JSON under /api. `of` is the path of the menu's entry that it belongs to."""

    path: str
    title: str
    template: str
    make: Callable[[Ask], Steps]
    of: str = ""
    refreshes: bool = True


@dataclass(frozen=True, slots=True)
class Program:
    """One daemon. `kind` is broker or NameServer, `name` what the operator calls it."""

    kind: str
    name: str
    version: str
    views: list[View]
    history: History
    accounts: Accounts | None = None
