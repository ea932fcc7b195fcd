"""A plain HTTP GET over a trio stream. It does not block, can be cancelled, and needs no HTTP library.

It is used for address servers, which publish a list of NameServers as short text (RocketMQ: TopAddressing). It supports
HTTP/1.0 without TLS, redirects or proxies.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import trio

MAX_RESPONSE_BYTES: Final = 64 * 1024
DEFAULT_PORT: Final = 80


class HttpFailed(Exception):
    """The text could not be fetched; the message names the URL and the reason."""


async def get_text(url: str, timeout_seconds: float) -> str:
    """Return the body of the response, stripped. Head and body together have at most 64 KiB. Raise HttpFailed."""
    try:
        with trio.fail_after(timeout_seconds):
            response = await _fetch(url)
    except trio.TooSlowError:
        raise HttpFailed(f"{url}: no response in {timeout_seconds:g} s") from None
    except (OSError, ValueError, trio.BrokenResourceError) as error:
        raise HttpFailed(f"{url}: {error}") from None
    head, blank, body = response.partition(b"\r\n\r\n")
    status_line = head.partition(b"\r\n")[0].decode("ascii", "replace")
    if not blank or status_line.split(" ")[1:2] != ["200"]:
        raise HttpFailed(f"{url}: responded {status_line[:100]!r}")
    return body.decode("utf-8", "replace").strip()


async def _fetch(url: str) -> bytes:
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("must have the form http://host:port/path")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    stream = await trio.open_tcp_stream(parts.hostname, parts.port or DEFAULT_PORT)
    async with stream:
        await stream.send_all(f"GET {target} HTTP/1.0\r\nHost: {parts.netloc}\r\nAccept: text/plain\r\n\r\n".encode())
        response = b""
        while len(response) <= MAX_RESPONSE_BYTES:
            data = await stream.receive_some(MAX_RESPONSE_BYTES)
            if not data:
                return response
            response += data
    raise ValueError(f"the response is longer than {MAX_RESPONSE_BYTES} bytes")
