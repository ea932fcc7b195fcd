"""A list of name servers that is published over HTTP instead of configured in the client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
from client_cluster import Cluster, fresh
from client_fakes import FakeCluster
from trio.testing import MockClock

from triomq.client.api import Message, NameServersUnreachable, Producer, SendStatus
from triomq.client.instance.name_servers import NameServers
from triomq.remoting.http_get import HttpFailed, get_text


@asynccontextmanager
async def published(answer: str) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Serve the list. Return the URL and the requests received."""
    requests: list[bytes] = []

    async def handle(stream: trio.SocketStream) -> None:
        requests.append(await stream.receive_some(4096))
        await stream.send_all(answer.encode())
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, handle, 0, host="127.0.0.1"))
        yield f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}/rocketmq/nsaddr", requests
        nursery.cancel_scope.cancel()


async def test_the_list_is_asked_for_when_the_client_opens(triomq: Cluster) -> None:
    answer = f"HTTP/1.1 200 OK\r\nServer: x\r\n\r\n{triomq.name_server}\n"
    async with published(answer) as (url, requests), Producer(fresh("P"), name_server=url) as producer:
        assert (await producer.send(Message(fresh(), b"m"))).status is SendStatus.SEND_OK
        assert producer.client.name_servers.addresses == (triomq.name_server,)
    assert requests[0].startswith(b"GET /rocketmq/nsaddr HTTP/1.0\r\nHost: 127.0.0.1:")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("HTTP/1.1 404 Not Found\r\n\r\nnothing", "404"),
        ("HTTP/1.1 200 OK\r\n\r\n", "empty"),
        ("HTTP/1.1 200 OK\r\n\r\n<html>", "host:port"),
    ],
)
async def test_a_list_that_cannot_be_had_says_why(answer: str, reason: str) -> None:
    async with published(answer) as (url, _):
        with pytest.raises(NameServersUnreachable, match=reason) as caught:
            async with Producer("P", name_server=url):
                pass
        assert url in str(caught.value)


async def test_it_is_asked_for_again(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    FakeCluster("a").install(monkeypatch)
    answers = iter(["one:1;two:2", HttpFailed("down"), "two:2;three:3"])

    async def scripted(url: str, timeout_seconds: float) -> str:
        answer = next(answers)
        if isinstance(answer, HttpFailed):
            raise answer
        return answer

    monkeypatch.setattr("triomq.client.instance.caller.get_text", scripted)
    async with Producer("P", name_server="http://config/list") as producer:
        servers = producer.client.name_servers
        await trio.sleep(121)
        assert servers.addresses == ("one:1", "two:2")
        await trio.sleep(120)
        assert servers.addresses == ("two:2", "three:3")


def test_the_one_that_answered_is_kept() -> None:
    servers = NameServers(["a:1", "b:2"], start=1)
    servers.replace(["c:3", "b:2", "d:4"])
    assert servers.chosen == "b:2"
    servers.replace(["e:5"])
    assert servers.chosen == "e:5"


async def test_only_plain_http() -> None:
    with pytest.raises(HttpFailed, match="form"):
        await get_text("https://config/list", 1)
