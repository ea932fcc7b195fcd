"""A whole broker with its dashboard, and what a browser gets from it."""

from __future__ import annotations

import http.cookiejar
import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
from broker_whole import WholeBroker, whole_broker
from free_ports import free_port


def fetch(port: int, path: str, host: str = "localhost") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


class Browser:
    """Keeps cookies, and fills in the forms that pages have."""

    def __init__(self, port: int) -> None:
        self.origin = f"http://127.0.0.1:{port}"
        self._opener = urllib.request.build_opener(
            urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar(http.cookiejar.DefaultCookiePolicy()))
        )

    def fetch(self, path: str, form: dict[str, str] | None = None) -> tuple[int, str]:
        data = None if form is None else urllib.parse.urlencode(form).encode()
        request = urllib.request.Request(self.origin + path, data=data, headers={"Origin": self.origin})
        try:
            with self._opener.open(request, timeout=30) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    async def get(self, path: str) -> tuple[int, str]:
        return await trio.to_thread.run_sync(self.fetch, path, None)

    async def post(self, path: str, form: dict[str, str]) -> tuple[int, str]:
        return await trio.to_thread.run_sync(self.fetch, path, form)

    def csrf(self) -> str:
        return hidden(self.fetch("/topics")[1], "csrf")

    async def preview(self, path: str, **fields: str) -> tuple[int, str]:
        """Post the form of an action as its page has it."""
        _, page = await self.get("/topics")
        return await self.post(path, {"csrf": hidden(page, "csrf"), **fields})

    async def act(self, path: str, *, typed: str = "", **fields: str) -> tuple[int, str]:
        """Post the form of an action, and confirm its preview."""
        status, page = await self.preview(path, **fields)
        assert status == 200, page
        more = {"csrf": hidden(page, "csrf"), "preview": hidden(page, "preview"), "typed": typed}
        return await self.post(path, {**fields, **more})


def hidden(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found is not None, page
    return found[1]


def cells(page: str) -> list[list[str]]:
    """Return the rows of the tables of a page, as text."""
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.DOTALL)
    return [[re.sub(r"<.*?>", "", cell) for cell in re.findall(r"<t[dh].*?>(.*?)</t[dh]>", row)] for row in rows]


class Shown:
    def __init__(self, broker: WholeBroker, port: int) -> None:
        self.broker = broker
        self.port = port

    async def get(self, path: str, host: str = "localhost") -> tuple[int, str]:
        return await trio.to_thread.run_sync(fetch, self.port, path, host)

    async def data(self, path: str, **query: str) -> Any:
        text = f"/api{path}?{urllib.parse.urlencode(query)}"
        status, body = await self.get(text)
        assert status == 200, body
        return json.loads(body)


@asynccontextmanager
async def shown(folder: Path, **settings: str) -> AsyncIterator[Shown]:
    port = free_port()
    async with whole_broker(folder, dashboardPort=str(port), **settings) as broker:
        yield Shown(broker, port)


@asynccontextmanager
async def operated(folder: Path, **settings: str) -> AsyncIterator[tuple[Shown, Browser]]:
    """A broker without accounts, and a browser that has logged in with the token."""
    async with shown(folder, dashboardReadOnly="false", **settings) as here:
        browser = Browser(here.port)
        await browser.get("/")
        secret = (folder / "store/dashboard.token").read_text().strip()
        assert (await browser.post("/login", {"secret": secret}))[0] == 200
        yield here, browser
