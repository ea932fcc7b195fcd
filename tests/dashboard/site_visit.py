"""A site with two accounts and hostile data, and a visitor who keeps cookies."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

from fake_clock import FakeSeconds

from triomq.dashboard.actions import Act, Action, ActionRefused, Fact, Outcome, Preview, Result, Row
from triomq.dashboard.history import History, Series
from triomq.dashboard.one_time_token import OneTimeToken
from triomq.dashboard.proxies import Proxies
from triomq.dashboard.site import Site
from triomq.dashboard.views import Ask, Data, NotThere, Program, View
from triomq.monitoring.http_server import Request, Response

HOSTILE = "<script>alert('1')</script>&\"\x00é"


@dataclass
class Person:
    name: str
    is_admin: bool = False
    stamp: str = "1"

    def may_read(self, topic: str) -> bool:
        return topic == "open"

    def may_read_group(self, group: str) -> bool:
        return group == "open"


@dataclass
class People:
    """Everybody's secret is their name twice."""

    known: dict[str, Person] = field(default_factory=dict)

    def log_in(self, name: str, secret: str) -> Person | None:
        return self.known.get(name) if secret == name * 2 else None

    def viewer(self, name: str) -> Person | None:
        return self.known.get(name)


def rows(ask: Ask) -> Generator[None, None, Data]:
    """A NameServer's overview with a hostile name."""
    yield
    if ask.query.get("name") == "gone":
        raise NotThere(f"there is no {HOSTILE}")
    broker = {"cluster": HOSTILE, "name": HOSTILE, "id": 0, "address": "a", "heard_seconds": 1.5}
    return {"brokers": [broker], "topics": 1, "routes": 2}


@dataclass
class Things:
    """An action on things, which are there or not, and what it has done."""

    done: list[tuple[str, str, str]] = field(default_factory=list)

    async def preview(self, act: Act) -> Preview:
        if act.fields["thing"] == "refused":
            raise ActionRefused(f"no {HOSTILE}")
        typed = act.fields["thing"] if act.fields["mode"] == "delete" else ""
        return Preview(act.fields["thing"], [Row("Queues", None, HOSTILE)], [Fact("Messages", HOSTILE)], typed)

    async def run(self, act: Act) -> Result:
        self.done.append((act.fields["thing"], act.actor.account, act.actor.address))
        return Result([Outcome("Done", act.fields["thing"], ok=False, detail=HOSTILE)], path="/")

    def action(self) -> Action:
        return Action("/act/thing", "Change the topic", ("thing", "mode"), self.preview, self.run, warning="Cancel")


class Visit:
    """A browser: it keeps the cookies that the site sets. `server` may be asked by several of them."""

    def __init__(
        self,
        people: People | None = None,
        *,
        scheme: str = "http",
        address: str = "10.0.0.1",
        token: OneTimeToken | None = None,
        proxies: str = "",
        path: str = "",
    ) -> None:
        self.things = Things()
        self.is_read_only = False
        self.clock = FakeSeconds()
        self.scheme = scheme
        history = History([Series("Topics", "", lambda: 1, is_counter=False)])
        views = [
            View("/", "Overview", "clusters.html", rows),
            View("/form", "Overview", "clusters.html", rows, of="/", acts=True),
        ]
        actions = [self.things.action()]
        program = Program(
            "NameServer", "9876", "1.0", views, history, people, actions, token, lambda: self.is_read_only
        )
        self.site = Site(program, proxies=Proxies(proxies, path, scheme), port=80, clock=self.clock)
        self.address = address
        self.cookies: dict[str, str] = {}
        self.last_cookie = ""

    async def get(self, path: str, **headers: str) -> Response:
        target, _, query = path.partition("?")
        return await self._ask(Request(target, query=query, headers=self._headers(headers), address=self.address))

    async def post(self, path: str, body: str, **headers: str) -> Response:
        found = {"origin": f"{self.scheme}://localhost", **headers}
        request = Request(path, method="POST", headers=self._headers(found), body=body.encode(), address=self.address)
        return await self._ask(request)

    def _headers(self, more: dict[str, str]) -> dict[str, str]:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        given = {name.replace("_", "-"): value for name, value in more.items() if value}
        return {"host": "localhost", "cookie": cookie, **given}

    async def _ask(self, request: Request) -> Response:
        response = await self.site.answer(request)
        for name, value in response.headers:
            if name == "Set-Cookie":
                self.last_cookie = value
                pair = value.partition(";")[0]
                self.cookies[pair.partition("=")[0]] = pair.partition("=")[2]
        return response


def text_of(response: Response) -> str:
    assert isinstance(response.body, bytes)
    return response.body.decode()


def header(response: Response, name: str) -> str:
    return dict(response.headers)[name]
