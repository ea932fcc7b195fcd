"""A whole broker with its dashboard, and what a browser gets from it."""

from __future__ import annotations

import json
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
