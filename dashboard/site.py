"""Site: from a request to a page. Decides who may see it, then lets a view make the data and a template show it.

/static/...   the style sheet and the script
/login        and POST /login, POST /logout, if the daemon has accounts
/<view>       a page
/api/<view>   its data as JSON
"""

from __future__ import annotations

import dataclasses
import hmac
import json
from collections.abc import Callable, Mapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Final
from urllib.parse import quote

import structlog
import trio

from triomq.dashboard.checks import host_judge, is_own_change
from triomq.dashboard.listing import fields_of
from triomq.dashboard.render import Renderer, language_of
from triomq.dashboard.sessions import Session, Sessions, Viewer
from triomq.dashboard.views import Ask, Data, NotThere, Program
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
_LANGUAGE_SECONDS: Final = 365 * 24 * 3600


def prepare(
    program: Program, settings: ServerSettings, get_context: GetContext | None, port: int
) -> Callable[[network.Listening], HttpServer]:
    """Load everything that pages need, which a thread may do; return what makes the server of an open port."""
    scheme = "https" if get_context is not None else "http"
    site = Site(program, scheme=scheme, port=port, clock=trio.current_time)
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

    def __init__(self, program: Program, *, scheme: str, port: int, clock: Callable[[], float]) -> None:
        self._program = program
        self._scheme = scheme
        self._cookie = f"triomq_{port}"
        self._views = {view.path: view for view in program.views}
        self._sessions = Sessions(clock)
        self._renderer = Renderer(program, has_login=program.accounts is not None)
        self._static = {f"/static/{path.name}": path.read_bytes() for path in sorted(_STATIC.iterdir())}

    async def answer(self, request: Request) -> Response:
        """Return the page of a request."""
        if request.path in self._static:
            content_type = _TYPES[Path(request.path).suffix]
            return Response(200, content_type, self._static[request.path])
        if request.method == "POST":
            return self._changed(request)
        query = fields_of(request.query)
        session, viewer = self._session(request)
        is_api = request.path.startswith("/api/")
        if self._program.accounts is not None and viewer is None:
            if request.path == "/login":
                return self._login_page(request, 200)
            if is_api:
                return _json(401, {"error": "log in first"})
            target = quote(request.path + ("?" + request.query if request.query else ""), safe="/")
            return _redirect(f"/login?next={target}")
        view = self._views.get(request.path.removeprefix("/api") if is_api else request.path)
        if view is None:
            text = "there is no such page"
            return _json(404, {"error": text}) if is_api else self._failure(request, session, 404, text)
        try:
            data = await request.steps.run(view.make(Ask(query, viewer)))
        except NotThere as error:
            return _json(404, {"error": str(error)}) if is_api else self._failure(request, session, 404, str(error))
        if is_api:
            return _json(200, data)
        language, chosen = language_of(request, query)
        html = self._renderer.page(view, data, language, session, request)
        headers = [("Set-Cookie", self._set_language(language))] if chosen else []
        return Response(200, _HTML, html.encode(errors="replace"), headers)

    def _failure(self, request: Request, session: Session | None, status: int, text: str) -> Response:
        html = self._renderer.failure(text, language_of(request, {})[0], session, request)
        return Response(status, _HTML, html.encode(errors="replace"))

    # -- login ---------------------------------------------------------------------------------------------------------

    def _session(self, request: Request) -> tuple[Session | None, Viewer | None]:
        accounts = self._program.accounts
        token = cookies_of(request.headers).get(self._cookie, "")
        if accounts is None or not token:
            return None, None
        return self._sessions.find(token, accounts) or (None, None)

    def _changed(self, request: Request) -> Response:
        """Handle a POST."""
        if not is_own_change(request.headers, self._scheme):
            audit.warning("a change from another site was refused", remote=request.address, path=request.path[:80])
            return plain(403, "this change does not come from a page of this dashboard")
        if self._program.accounts is None or request.path not in ("/login", "/logout"):
            return plain(404, "there is nothing to change here")
        form = fields_of(request.body.decode("utf-8", "replace"))
        return self._log_in(request, form) if request.path == "/login" else self._log_out(request, form)

    def _log_in(self, request: Request, form: Mapping[str, str]) -> Response:
        accounts = self._program.accounts
        assert accounts is not None
        if self._sessions.must_wait(request.address):
            return self._login_page(request, 429, "Too many wrong logins: wait a minute.")
        name = form.get("name", "")
        viewer = accounts.log_in(name, form.get("secret", ""))
        if viewer is None:
            self._sessions.failed(request.address)
            audit.warning("a login failed", account=name[:80], remote=request.address)
            return self._login_page(request, 403, "This access key and secret key do not fit.")
        token = self._sessions.begin(viewer)
        audit.info("logged in", account=viewer.name, remote=request.address)
        response = _redirect(own_path(form.get("next", "/")))
        response.headers.append(("Set-Cookie", self._set_cookie(token)))
        return response

    def _log_out(self, request: Request, form: Mapping[str, str]) -> Response:
        session, viewer = self._session(request)
        if session is None or viewer is None:
            return _redirect("/login")
        if not _is_equal(form.get("csrf", ""), session.csrf):
            return plain(403, "the token of this form is not that of the session: load the page again")
        self._sessions.end(cookies_of(request.headers)[self._cookie])
        audit.info("logged out", account=viewer.name, remote=request.address)
        response = _redirect("/login")
        response.headers.append(("Set-Cookie", self._set_cookie("") + "; Max-Age=0"))
        return response

    def _login_page(self, request: Request, status: int, error: str = "") -> Response:
        query = fields_of(request.query if request.method == "GET" else request.body.decode("utf-8", "replace"))
        html = self._renderer.login(error, own_path(query.get("next", "/")), language_of(request, query)[0])
        return Response(status, _HTML, html.encode(errors="replace"))

    def _set_cookie(self, token: str) -> str:
        secure = "; Secure" if self._scheme == "https" else ""
        return f"{self._cookie}={token}; HttpOnly; SameSite=Strict; Path=/{secure}"

    def _set_language(self, language: str) -> str:
        return f"triomq_language={language}; SameSite=Strict; Path=/; Max-Age={_LANGUAGE_SECONDS}"


def cookies_of(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the cookies of a request; none if the header is malformed."""
    try:
        return {name: morsel.value for name, morsel in SimpleCookie(headers.get("cookie", "")).items()}
    except CookieError:
        return {}


def own_path(target: str) -> str:
    """Return a path of this site to go to, never another site."""
    is_own = target.startswith("/") and not target.startswith(("//", "/\\")) and target.isprintable()
    return target if is_own and target.isascii() else "/"


def _redirect(path: str) -> Response:
    return Response(303, "text/plain; charset=utf-8", b"", [("Location", path)])


def _json(status: int, data: Data) -> Response:
    return Response(status, _JSON, json.dumps(data, default=_plain, ensure_ascii=True).encode() + b"\n")


def _plain(value: object) -> object:
    """Return a record of a page as JSON shows it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise TypeError(f"{type(value).__name__} is not for JSON")


def _is_equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())
