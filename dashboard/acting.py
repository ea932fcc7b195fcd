"""Acting: from the POST of an action to its preview, and from the preview to the change.

    form  --POST-->  preview: what will change, one confirmation  --POST-->  result: what did

A change needs a page of this site (checks.py), `dashboardReadOnly=false`, an administrator who has logged in, the token
of the session in the form, and a confirmation: a name that the preview gave out for exactly these fields and that is
good once. So nothing changes unseen, by a link, by a page of another site, or twice by a second click.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Final

import structlog

from triomq.dashboard.actions import Act, Action, ActionRefused, Actor
from triomq.dashboard.listing import MOST_CHARACTERS
from triomq.dashboard.render import Renderer
from triomq.dashboard.sessions import Session
from triomq.dashboard.visit import Visit
from triomq.monitoring.http_server import Response

audit = structlog.get_logger("triomq.dashboard.audit")

MOST_PREVIEWS: Final = 16
"""Previews of one session that may still be confirmed."""
MOST_TEXT_CHARACTERS: Final = 16 * 1024
"""Of the long field of an action; the others have MOST_CHARACTERS."""
READ_ONLY: Final = "This dashboard is read-only (dashboardReadOnly)."
NOT_LOGGED_IN: Final = "Log in first."
NOT_ADMIN: Final = "Only administrators may change something."
FOREIGN_FORM: Final = "The token of this form is not that of the session: load the page again."
OLD_PREVIEW: Final = "This preview was used, or is too old: look once more."
NOT_TYPED: Final = "The name that was typed is another one: nothing was changed."
_HTML: Final = "text/html; charset=utf-8"


class Acting:
    """See the module's docstring."""

    def __init__(self, renderer: Renderer, *, has_accounts: bool) -> None:
        self._renderer = renderer
        self._has_accounts = has_accounts

    async def answer(self, action: Action, form: Mapping[str, str], visit: Visit, *, is_read_only: bool) -> Response:
        """Return the preview, the result, or why there is neither."""
        refusal = _refusal(form, visit, is_read_only=is_read_only)
        session = visit.session
        if refusal or session is None:
            account = visit.viewer.name if visit.viewer is not None else ""
            audit.warning(
                "a change was refused",
                remote=visit.request.address,
                path=action.path,
                account=account,
                reason=refusal,
            )
            return self._failed(visit, 403, refusal)
        long_fields = (action.long_field, action.list_field)
        missing = [
            name
            for name in action.fields
            if name not in form or (name not in long_fields and len(form[name]) > MOST_CHARACTERS)
        ]
        if missing:
            return self._failed(visit, 400, f"{missing[0]} is missing, or too long")
        fields = {name: form[name] for name in action.fields}
        act = Act(fields, Actor(session.name if self._has_accounts else "", visit.request.address))
        digest = _digest_of(action, fields)
        is_confirmed = False
        problem = ""
        if "preview" in form:
            is_confirmed = session.previews.pop(form["preview"], b"") == digest
            problem = "" if is_confirmed else OLD_PREVIEW
        try:
            preview = await action.preview(act)
            if is_confirmed and preview.typed and form.get("typed", "") != preview.typed:
                is_confirmed, problem = False, NOT_TYPED
            if is_confirmed:
                result = await action.run(act)
                return _page(200, self._renderer.result(action, result, visit))
        except ActionRefused as error:
            return self._failed(visit, 400, str(error))
        confirmation = _confirmation(session, digest)
        html = self._renderer.preview(action, preview, visit, fields=fields, confirmation=confirmation, problem=problem)
        return _page(409 if problem else 200, html)

    def _failed(self, visit: Visit, status: int, text: str) -> Response:
        return _page(status, self._renderer.failure(text, visit, title="Not changed"))


def _refusal(form: Mapping[str, str], visit: Visit, *, is_read_only: bool) -> str:
    """Return why a form is not looked at; "" if it is."""
    if is_read_only:
        return READ_ONLY
    if visit.session is None or visit.viewer is None:
        return NOT_LOGGED_IN
    if not visit.may_act:
        return NOT_ADMIN
    given = form.get("csrf", "").encode(errors="replace")
    return "" if hmac.compare_digest(given, visit.session.csrf.encode()) else FOREIGN_FORM


def _digest_of(action: Action, fields: Mapping[str, str]) -> bytes:
    parts = [action.path, *[text for name in sorted(fields) for text in (name, fields[name])]]
    return hashlib.sha256("\0".join(f"{len(part)}:{part}" for part in parts).encode(errors="replace")).digest()


def _confirmation(session: Session, digest: bytes) -> str:
    while len(session.previews) >= MOST_PREVIEWS:
        del session.previews[next(iter(session.previews))]
    confirmation = secrets.token_urlsafe(16)
    session.previews[confirmation] = digest
    return confirmation


def _page(status: int, html: str) -> Response:
    return Response(status, _HTML, html.encode(errors="replace"))
