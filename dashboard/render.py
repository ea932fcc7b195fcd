"""Renderer: data into HTML. Templates are Jinja's with autoescape, so foreign text stays text by construction.

A page of fifty rows takes milliseconds, for which requests of clients would wait; so pages are made in steps. What a
macro or a filter makes is never divided: templates call macros for single rows, cards and charts, not for long lists.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from triomq.dashboard.actions import Action, Preview, Result
from triomq.dashboard.charts import line
from triomq.dashboard.cookies import cookies_of
from triomq.dashboard.history import DAY_POINTS, HOUR_POINTS
from triomq.dashboard.listing import fields_of
from triomq.dashboard.texts import LANGUAGES, translated
from triomq.dashboard.views import Data, Program, View
from triomq.dashboard.visit import Visit
from triomq.monitoring.http_server import Request

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STEP_SECONDS: Final = 0.0001
"""How long one step of a page takes, if what cannot be divided does not take longer."""
_NOTHING: Final = "\N{EN DASH}"


class Renderer:
    """`root` is what each link to a page begins with (Proxies.root)."""

    def __init__(self, program: Program, root: str = "") -> None:
        self._program = program
        self._environment = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            auto_reload=False,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters.update(
            number=number_text,
            bytes=bytes_text,
            rate=rate_text,
            moment=time_of,
            duration=duration_text,
            commands=commands_of,
        )
        self._environment.globals.update(line=line, root=root, link=link_text)
        for name in self._environment.list_templates():
            self._environment.get_template(name)  # compiled once, here: a thread loads this module

    def page(self, view: View, data: Data, visit: Visit) -> Generator[None, None, str]:
        """Make a page; an item ends a step."""
        values = self._common(visit, view.title, view.of or view.path)
        values.update(refreshes=view.refreshes, charts=self._charts)
        parts: list[str] = []
        began = perf_counter()
        for part in self._environment.get_template(view.template).generate({**values, **data}):
            parts.append(part)
            if perf_counter() - began > _STEP_SECONDS:
                yield
                began = perf_counter()
        return "".join(parts)

    def failure(self, text: str, visit: Visit, *, title: str = "Not found") -> str:
        """Return the page that says why there is none."""
        values = self._common(visit, title, "")
        return self._environment.get_template("failure.html").render({**values, "text": values["t"](text)})

    def preview(
        self,
        action: Action,
        preview: Preview,
        visit: Visit,
        *,
        fields: Mapping[str, str],
        confirmation: str,
        problem: str,
    ) -> str:
        """Return the page that shows what an action will change. `confirmation` confirms these fields."""
        values = self._common(visit, action.title, action.of)
        more = {"preview": preview, "fields": fields, "confirmation": confirmation, "problem": problem}
        return self._environment.get_template("preview.html").render({**values, **more, "action": action})

    def result(self, action: Action, result: Result, visit: Visit) -> str:
        """Return the page that shows what an action did."""
        values = self._common(visit, action.title, action.of)
        return self._environment.get_template("result.html").render({**values, "action": action, "result": result})

    def login(self, error: str, target: str, language: str) -> str:
        """Return the login page."""
        values: dict[str, Any] = {"t": translated(language), "language": language, "program": self._program}
        token = self._program.token if self._program.accounts is None else None
        values.update(error=error, target=target, token_path=str(token.path) if token is not None else "")
        return self._environment.get_template("login.html").render(values)

    def _common(self, visit: Visit, title: str, here: str) -> dict[str, Any]:
        request = visit.request
        return {
            "t": translated(visit.language),
            "language": visit.language,
            "program": self._program,
            "menu": [view for view in self._program.views if not view.of and view.is_for(visit.viewer)],
            "title": title,
            "here": here,
            "refreshes": False,
            "session": visit.session,
            "may_act": visit.may_act,
            "may_enter": visit.may_enter,
            "path": request.path,
            "is_posted": request.method == "POST",
            "link": link_text,
            "in_language": lambda chosen: "?" + urlencode({**fields_of(request.query), "lang": chosen}),
        }

    def _charts(self, span: str) -> Iterator[dict[str, object]]:
        """Yield what the charts of an hour or a day show, one for each series of the history."""
        history = self._program.history
        ring, points = (history.hour, HOUR_POINTS) if span == "hour" else (history.day, DAY_POINTS // 4)
        for number, one in enumerate(history.series):
            yield {"name": one.name, "unit": one.unit, "drawn": line(ring.column(number), points)}


def language_of(request: Request, query: dict[str, str]) -> tuple[str, bool]:
    """Return the language of a page, and whether the query chooses it: else a cookie does, else the browser."""
    chosen = query.get("lang", "")
    if chosen in LANGUAGES:
        return chosen, True
    kept = cookies_of(request.headers).get("triomq_language", "")
    if kept in LANGUAGES:
        return kept, False
    wanted = request.headers.get("accept-language", "").strip().lower()
    return ("zh" if wanted.startswith("zh") else "en"), False


def link_text(path: str, **values: object) -> str:
    """Return a link to a page with a query."""
    return f"{path}?{urlencode({name: str(value) for name, value in values.items()})}" if values else path


def number_text(value: float | None) -> str:
    """Return a number with groups of three digits."""
    return _NOTHING if value is None else f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def bytes_text(value: float | None) -> str:
    """Return a number of bytes: 1.5 MiB."""
    if value is None:
        return _NOTHING
    power = 0
    while abs(value) >= 1024 and power < len(_UNITS) - 1:
        value /= 1024
        power += 1
    return f"{value:.0f} B" if power == 0 else f"{value:.1f} {_UNITS[power]}"


def rate_text(value: float | None) -> str:
    """Return a rate: 0, 0.25, 3.1, 7, 1 500."""
    if value is None:
        return _NOTHING
    if value == int(value):
        return number_text(int(value))
    if value < 1:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 100 else number_text(round(value))


def moment_text(ms: float | None) -> str:
    """Return a time since 1970 in ms as a date, in UTC."""
    moment = _moment(ms)
    return _NOTHING if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}.{int(ms or 0) % 1000:03d}"


def time_of(ms: float | None) -> Markup:
    """Return the element of a time, of which the script shows the local one, too."""
    moment, text = _moment(ms), moment_text(ms)
    if moment is None:
        return Markup.escape(text)
    return Markup('<time datetime="{}">{}</time>').format(f"{moment:%Y-%m-%dT%H:%M:%S}Z", text)


def commands_of(text: str) -> Markup:
    """Return a text whose commands stand in backticks (protocol.findings.Finding.mend), with an element for each."""
    parts = [
        Markup("<code>{}</code>" if number % 2 else "{}").format(part) for number, part in enumerate(text.split("`"))
    ]
    return Markup("").join(parts)


def _moment(ms: float | None) -> datetime | None:
    if ms is None or ms <= 0:
        return None
    try:
        return datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None


_LENGTHS: Final = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def duration_text(seconds: float | None) -> str:
    """Return a duration in its two largest units: 2 d 3 h, 5 min 1 s, 0.3 s."""
    if seconds is None:
        return _NOTHING
    if seconds < 1:
        return "0 s" if seconds <= 0 else f"{seconds:.1f} s"
    rest = int(seconds)
    parts: list[str] = []
    for length, unit in _LENGTHS:
        count, rest = divmod(rest, length)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)
