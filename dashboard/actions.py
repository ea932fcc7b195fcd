"""What a daemon lets its operators change through the dashboard.

An action is a form, a preview of what will change, and a result of what did. The daemon makes the contents of both;
acting.py decides who may, and in which order. All texts are English and translated by the pages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field


class ActionRefused(Exception):
    """What was asked for cannot be done. The text says why."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts, and from which address. `account` is an access key; empty for the holder of the one-time token."""

    account: str
    address: str


@dataclass(frozen=True, slots=True)
class Act:
    """One use of an action: the fields of its form, all of which are there."""

    fields: Mapping[str, str]
    actor: Actor


@dataclass(frozen=True, slots=True)
class Row:
    """One value that changes; None is one that does not exist. `place`: the broker, if there are several."""

    name: str
    before: object
    after: object
    place: str = ""

    @property
    def is_changed(self) -> bool:
        return self.before != self.after


@dataclass(frozen=True, slots=True)
class Fact:
    """What an operator should know before the change, such as how many messages would be lost."""

    name: str
    value: object


@dataclass(frozen=True, slots=True)
class Preview:
    """What will change. `subject` is the name of what it changes; `typed` must be typed to confirm it. `column` is the
    heading of the names of rows. `warnings` are sentences on this change, beside that of the action."""

    subject: str
    rows: list[Row] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    typed: str = ""
    column: str = "Setting"
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one part of an action. `subject` names it, `detail` is why it failed."""

    text: str
    subject: str
    ok: bool = True
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What an action did. `path` is the page that shows the new state, `facts` what it has learned. `secret` is one
    that it made, which this page alone shows."""

    outcomes: list[Outcome]
    rows: list[Row] = field(default_factory=list)
    path: str = "/"
    column: str = "Setting"
    facts: list[Fact] = field(default_factory=list)
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class Action:
    """`fields` are the names of its form's fields, of which `long_field` may be a text of many lines, and `list_field`
    one that each ticked box has: its values come as one text, separated by spaces. `of` is the path of the menu's
    entry that it belongs to. `warning` is part of the preview of what cannot be undone. Both functions raise
    ActionRefused."""

    path: str
    title: str
    fields: tuple[str, ...]
    preview: Callable[[Act], Awaitable[Preview]]
    run: Callable[[Act], Awaitable[Result]]
    of: str = "/"
    warning: str = ""
    long_field: str = ""
    list_field: str = ""
