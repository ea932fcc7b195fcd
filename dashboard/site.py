"""Site: from a request to a page. Decides who may see it, then lets a view make the data and a template show it.

/static/...   the style sheet and the script
/login        and POST /login, POST /logout, if the daemon has accounts or a one-time token
/<view>       a page
/<download>   a file, as an attachment
/<stream>     server-sent events
POST /act/... an action (acting.py)
/api/<view>   its data as JSON; /api is the list of them
"""

from __future__ import annotations

import dataclasses
import hmac
import json
import string
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

import structlog
import trio

from triomq.dashboard.acting import MOST_TEXT_CHARACTERS, Acting
from triomq.dashboard.checks import host_judge, is_own_change
from triomq.dashboard.cookies import cookies_of
from triomq.dashboard.listing import fields_of
from triomq.dashboard.proxies import Proxies
from triomq.dashboard.render import Renderer, language_of
from triomq.dashboard.sessions import Accounts, Session, Sessions, Viewer
from triomq.dashboard.views import Ask, Data, Download, NotThere, Program, Stream, View
from triomq.dashboard.visit import Visit
from triomq.monitoring.host_names import is_loopback
from triomq.monitoring.http_server import GetContext, HttpServer, Request, Response, Rules, plain
from triomq.remoting import network
from triomq.remoting.config import ServerSettings

audit = structlog.get_logger("triomq.dashboard.audit")

MOST_FORM_BYTES: Final = 64 * 1024
HEADERS: Final = (
    ("Cache-Control", "no-store"),
    (
        "Content-Security-Policy",
        "default-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'none'; object-src 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "same-origin"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
_HTML: Final = "text/html; charset=utf-8"
_JSON: Final = "application/json"
_STATIC: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_NAME_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "._-")
_LANGUAGE_SECONDS: Final = 365 * 24 * 3600


def prepare(
    program: Program, settings: ServerSettings, get_context: GetContext | None, port: int
) -> Callable[[network.Listening], HttpServer]:
    """Load everything that pages need, which a thread may do; return what makes the server of an open port."""
    scheme = "https" if get_context is not None else "http"
    proxies = Proxies(settings.dashboard_proxies, settings.dashboard_path, scheme)
    site = Site(program, proxies=proxies, port=port, clock=trio.current_time)
    rules = Rules(
        methods=("GET", "HEAD", "POST"),
        most_body_bytes=MOST_FORM_BYTES,
        headers=HEADERS,
        is_host=host_judge(settings.dashboard_hosts),
        get_context=get_context,
    )
    return lambda listening: HttpServer(
        settings.dashboard_address, settings.dashboard_port, site.answer, rules, listening
    )


class Site:
    """See the module's docstring. `port` is part of the cookie's name: browsers share cookies between ports."""

    def __init__(self, program: Program, *, proxies: Proxies, port: int, clock: Callable[[], float]) -> None:
        self._program = program
        self._proxies = proxies
        self._cookie = f"triomq_{port}"
        self._views = {view.path: view for view in program.views}
        self._actions = {action.path: action for action in program.actions}
        self._streams = {stream.path: stream for stream in program.streams}
        self._downloads = {download.path: download for download in program.downloads}
        self._accounts: Accounts | None = program.accounts or program.token
        self._sessions = Sessions(clock)
        self._renderer = Renderer(program, proxies.root)
        self._acting = Acting(self._renderer, has_accounts=program.accounts is not None)
        self._static = {f"/static/{path.name}": path.read_bytes() for path in sorted(_STATIC.iterdir())}

    async def answer(self, request: Request) -> Response:
        """Return the page of a request."""
        scheme = self._proxies.scheme(request.address, request.headers)
        request = self._proxies.original(request)
        if request.path in self._static:
            content_type = _TYPES[Path(request.path).suffix]
            return Response(200, content_type, self._static[request.path])
        if request.method == "POST":
            return await self._changed(request, scheme)
        if request.path in self._actions:
            return plain(405, "this changes something: only a form does it", allow="POST")
        visit = self._visit(request)
        if request.path == "/login" and self._accounts is not None and visit.session is None:
            return self._login_page(request, 200)
        is_api = request.path == "/api" or request.path.startswith("/api/")
        if self._program.accounts is not None and visit.viewer is None:
            if is_api:
                return _json(401, {"error": "log in first"})
            target = quote(request.path + ("?" + request.query if request.query else ""), safe="/")
            return self._redirect(f"/login?next={target}")
        if request.path in self._streams:
            return self._stream(self._streams[request.path], visit)
        if request.path in self._downloads:
            return self._file(self._downloads[request.path], visit)
        if request.path == "/api":
            return _json(200, self._index(visit.viewer))
        view = self._views.get(request.path.removeprefix("/api") if is_api else request.path)
        status, text = (200, "") if view is not None else (404, "there is no such page")
        if view is not None and view.acts and (is_api or not visit.may_act):
            status, text = 403, "only an administrator of a dashboard that is not read-only may do this"
        if view is None or text:
            return _json(status, {"error": text}) if is_api else self._failure(visit, status, text)
        return await self._view(view, visit, is_api=is_api)

    async def _view(self, view: View, visit: Visit, *, is_api: bool) -> Response:
        request = visit.request
        query = fields_of(request.query)
        ask = Ask(query, visit.viewer)
        try:
            if not view.is_for(visit.viewer):
                raise NotThere("only administrators see this page")
            if view.gather is not None:
                await view.gather(ask)
            data = await request.steps.run(view.make(ask))
        except NotThere as error:
            return _json(404, {"error": str(error)}) if is_api else self._failure(visit, 404, str(error))
        if is_api:
            return _json(200, data)
        html = await request.steps.run(self._renderer.page(view, data, visit))
        chosen = language_of(request, query)[1]
        headers = [("Set-Cookie", self._set_language(visit.language))] if chosen else []
        return Response(200, _HTML, html.encode(errors="replace"), headers)

    def _index(self, viewer: Viewer | None) -> Data:
        """Return what there is below /api, and the files."""
        program = self._program
        pages = [view for view in program.views if not view.acts and view.is_for(viewer)]
        return {
            "kind": program.kind,
            "name": program.name,
            "version": program.version,
            "pages": [{"path": "/api" + view.path, "title": view.title, "page": view.path} for view in pages],
            "files": [{"path": download.path} for download in program.downloads],
            "is_read_only": program.is_read_only(),
        }

    def _file(self, download: Download, visit: Visit) -> Response:
        try:
            file = download.make(Ask(fields_of(visit.request.query), visit.viewer))
        except NotThere as error:
            return self._failure(visit, 404, str(error))
        name = "".join([character if character in _NAME_CHARACTERS else "_" for character in file.name])
        headers = [("Content-Disposition", f'attachment; filename="{name}"')]
        return Response(200, file.content_type, file.pieces, headers)

    def _stream(self, stream: Stream, visit: Visit) -> Response:
        request = visit.request
        last_id = request.headers.get("last-event-id", "")
        try:
            pieces = stream.make(Ask(fields_of(request.query), visit.viewer), last_id, request.steps)
        except NotThere as error:
            return self._failure(visit, 404, str(error))
        return Response(200, "text/event-stream", pieces)

    def _failure(self, visit: Visit, status: int, text: str) -> Response:
        return Response(status, _HTML, self._renderer.failure(text, visit).encode(errors="replace"))

    def _visit(self, request: Request) -> Visit:
        """Return who asks, and what they may do now."""
        session, viewer = self._session(request)
        is_open = bool(self._actions) and not self._program.is_read_only()
        if self._program.accounts is None:  # the token is for this machine
            is_open = is_open and is_loopback(request.address)
        may_act = is_open and viewer is not None and viewer.is_admin
        may_enter = is_open and viewer is None and self._accounts is not None
        language = language_of(request, fields_of(request.query))[0]
        return Visit(request, language, session, viewer, may_act, may_enter)

    # -- login ---------------------------------------------------------------------------------------------------------

    def _session(self, request: Request) -> tuple[Session | None, Viewer | None]:
        token = cookies_of(request.headers).get(self._cookie, "")
        if self._accounts is None or not token:
            return None, None
        return self._sessions.find(token, self._accounts) or (None, None)

    async def _changed(self, request: Request, scheme: str) -> Response:
        """Handle a POST from a page with this scheme."""
        if not is_own_change(request.headers, scheme):
            audit.warning("a change from another site was refused", remote=request.address, path=request.path[:80])
            return plain(403, "this change does not come from a page of this dashboard")
        body = request.body.decode("utf-8", "replace")
        action = self._actions.get(request.path)
        if action is not None:
            form = fields_of(body, MOST_TEXT_CHARACTERS, action.list_field)
            is_read_only = self._program.is_read_only()
            return await self._acting.answer(action, form, self._visit(request), is_read_only=is_read_only)
        if self._accounts is None or request.path not in ("/login", "/logout"):
            return plain(404, "there is nothing to change here")
        form = fields_of(body)
        if request.path == "/logout":
            return self._log_out(request, form, scheme)
        return await self._log_in(request, form, self._accounts, scheme)

    async def _log_in(self, request: Request, form: Mapping[str, str], accounts: Accounts, scheme: str) -> Response:
        if self._sessions.must_wait(request.address):
            return self._login_page(request, 429, "Too many wrong logins: wait a minute.")
        name = form.get("name", "")
        token = self._program.token if self._program.accounts is None else None
        is_far = token is not None and not is_loopback(request.address)
        viewer = accounts.log_in(name, form.get("secret", "")) if not is_far else None
        if viewer is None:
            self._sessions.failed(request.address)
            audit.warning("a login failed", account=name[:80], remote=request.address)
            return self._login_page(
                request,
                403,
                "This is not the token in the file now." if token else "This access key and secret key do not fit.",
            )
        session = self._sessions.begin(viewer)
        audit.info("logged in", account=viewer.name, remote=request.address)
        if token is not None:
            await trio.to_thread.run_sync(token.renew)
        response = self._redirect(own_path(form.get("next", "/")))
        response.headers.append(("Set-Cookie", self._set_cookie(session, scheme)))
        return response

    def _log_out(self, request: Request, form: Mapping[str, str], scheme: str) -> Response:
        session, viewer = self._session(request)
        if session is None or viewer is None:
            return self._redirect("/login")
        if not _is_equal(form.get("csrf", ""), session.csrf):
            return plain(403, "the token of this form is not that of the session: load the page again")
        self._sessions.end(cookies_of(request.headers)[self._cookie])
        audit.info("logged out", account=viewer.name, remote=request.address)
        response = self._redirect("/login")
        response.headers.append(("Set-Cookie", self._set_cookie("", scheme) + "; Max-Age=0"))
        return response

    def _login_page(self, request: Request, status: int, error: str = "") -> Response:
        query = fields_of(request.query if request.method == "GET" else request.body.decode("utf-8", "replace"))
        html = self._renderer.login(error, own_path(query.get("next", "/")), language_of(request, query)[0])
        return Response(status, _HTML, html.encode(errors="replace"))

    def _set_cookie(self, token: str, scheme: str) -> str:
        secure = "; Secure" if scheme == "https" else ""
        return f"{self._cookie}={token}; HttpOnly; SameSite=Strict; Path={self._proxies.root}/{secure}"

    def _set_language(self, language: str) -> str:
        path = f"{self._proxies.root}/"
        return f"triomq_language={language}; SameSite=Strict; Path={path}; Max-Age={_LANGUAGE_SECONDS}"

    def _redirect(self, path: str) -> Response:
        """Lead to a page of this site."""
        headers = [("Location", self._proxies.root + path)]
        return Response(303, "text/plain; charset=utf-8", b"", headers)


def own_path(target: str) -> str:
    """Return a path of this site to go to, never another site."""
    is_own = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_own and target.isascii() else "/"


def _json(status: int, data: Data) -> Response:
    return Response(status, _JSON, json.dumps(data, default=_plain, ensure_ascii=True).encode() + b"\n")


def _plain(value: object) -> object:
    """Return a record of a page as JSON shows it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} is not for JSON")


def _is_equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())
