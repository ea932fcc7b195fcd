"""One plain HTTP GET over a trio stream: it blocks nothing, can be cancelled, and needs no HTTP library.

For address servers, which publish a list of NameServers as a short text (RocketMQ: TopAddressing). HTTP/1.0, no TLS, no
redirects, no proxies.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import trio

MAX_ANSWER_BYTES: Final = 64 * 1024
DEFAULT_PORT: Final = 80


class HttpFailed(Exception):
    """There is no text; this one says from where and why."""


async def get_text(url: str, timeout_seconds: float) -> str:
    """The body of the answer, stripped, at most 64 KiB with its head. Raises HttpFailed."""
    try:
        with trio.fail_after(timeout_seconds):
            answer = await _ask(url)
    except trio.TooSlowError:
        raise HttpFailed(f"{url}: no answer in {timeout_seconds:g} s") from None
    except (OSError, ValueError, trio.BrokenResourceError) as error:
        raise HttpFailed(f"{url}: {error}") from None
    head, blank, body = answer.partition(b"\r\n\r\n")
    status_line = head.partition(b"\r\n")[0].decode("ascii", "replace")
    if not blank or status_line.split(" ")[1:2] != ["200"]:
        raise HttpFailed(f"{url}: answered {status_line[:100]!r}")
    return body.decode("utf-8", "replace").strip()


async def _ask(url: str) -> bytes:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("is no address of the form http://host:port/path")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    stream = await trio.open_tcp_stream(parts.hostname, parts.port or DEFAULT_PORT)
    async with stream:
        await stream.send_all(f"GET {target} HTTP/1.0\r\nHost: {parts.netloc}\r\nAccept: text/plain\r\n\r\n".encode())
        answer = b""
        while len(answer) <= MAX_ANSWER_BYTES:
            data = await stream.receive_some(MAX_ANSWER_BYTES)
            if not data:
                return answer
            answer += data
    raise ValueError(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
