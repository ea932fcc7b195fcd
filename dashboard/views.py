"""What a daemon gives its dashboard: views, accounts, and the history of its figures."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from triomq.dashboard.actions import Action
from triomq.dashboard.history import History
from triomq.dashboard.one_time_token import OneTimeToken
from triomq.dashboard.sessions import Accounts, Viewer
from triomq.remoting.scheduling.step_line import Steps as Turns

Data = dict[str, Any]
Steps = Generator[None, None, Data]
"""Makes the data of a page; an item ends a step, after which other tasks run."""


class NotThere(Exception):
    """What a page is about does not exist, or the viewer may not see it: the same text for both."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a view may know. Without accounts `viewer` is None, and everybody reads everything. `gathered` is what
    `gather` of a view leaves for its `make`."""

    query: dict[str, str] = field(default_factory=dict)
    viewer: Viewer | None = None
    gathered: Data = field(default_factory=dict)

    @property
    def sees_all(self) -> bool:
        return self.viewer is None or self.viewer.is_admin

    def may_read(self, topic: str) -> bool:
        return self.viewer is None or self.viewer.is_admin or self.viewer.may_read(topic)

    def may_read_group(self, group: str) -> bool:
        return self.viewer is None or self.viewer.is_admin or self.viewer.may_read_group(group)


@dataclass(frozen=True, slots=True)
class View:
    """One page, and the same data as JSON under /api. `of` is the path of the menu's entry that it belongs to. `acts`:
    it is the form of an action, for those who may act. `gather` is awaited before `make`: it asks other daemons.
    `admins_only`: with accounts, the others get neither the page nor a link to it."""

    path: str
    title: str
    template: str
    make: Callable[[Ask], Steps]
    of: str = ""
    refreshes: bool = True
    acts: bool = False
    gather: Callable[[Ask], Awaitable[None]] | None = None
    admins_only: bool = field(default=False, kw_only=True)

    def is_for(self, viewer: Viewer | None) -> bool:
        """Return whether somebody may see the page, as far as that does not depend on what it is about."""
        return not self.admins_only or viewer is None or viewer.is_admin


@dataclass(frozen=True, slots=True)
class File:
    """What a browser stores. Each piece of it ends a step; one may be empty."""

    name: str
    content_type: str
    pieces: Iterator[bytes]


@dataclass(frozen=True, slots=True)
class Download:
    """A file that a link leads to. `make` raises NotThere."""

    path: str
    make: Callable[[Ask], File]


@dataclass(frozen=True, slots=True)
class Stream:
    """Server-sent events. `make` takes who asks, the id of the last event that a browser has ("" for none), and the
    steps of the request; it raises NotThere."""

    path: str
    make: Callable[[Ask, str, Turns], AsyncGenerator[bytes, None]]


@dataclass(frozen=True, slots=True)
class Program:
    """One daemon. `kind` is broker or NameServer, `name` what the operator calls it. Without accounts, `token` lets its
    holder act. `is_read_only` says whether nobody may, at any moment."""

    kind: str
    name: str
    version: str
    views: list[View]
    history: History
    accounts: Accounts | None = None
    actions: list[Action] = field(default_factory=list)
    token: OneTimeToken | None = None
    is_read_only: Callable[[], bool] = lambda: True
    downloads: list[Download] = field(default_factory=list)
    streams: list[Stream] = field(default_factory=list)
