"""One request of somebody: what pages are made for."""

from __future__ import annotations

from dataclasses import dataclass

from triomq.dashboard.sessions import Session, Viewer
from triomq.monitoring.http_server import Request


@dataclass(frozen=True, slots=True)
class Visit:
    """`session` and `viewer` are None for somebody who has not logged in. `may_act`: actions are shown and done.
    `may_enter`: a login would make them so."""

    request: Request
    language: str
    session: Session | None = None
    viewer: Viewer | None = None
    may_act: bool = False
    may_enter: bool = False
