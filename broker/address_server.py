"""AddressServer: where the list of NameServers is published (RocketMQ: TopAddressing).

    GET http://<domain>:8080/rocketmq/<subgroup>        ":8080" is left out when the domain has a port
    answer 200 with "host:port;host:port"

One plain HTTP/1.0 request over a trio stream: it blocks nothing, can be cancelled, and needs no HTTP library.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import trio

DEFAULT_DOMAIN: Final = "jmenv.tbsite.net"
DEFAULT_SUBGROUP: Final = "nsaddr"
DEFAULT_PORT: Final = 8080

FETCH_SECONDS: Final = 3.0
MAX_ANSWER_BYTES: Final = 64 * 1024


class AddressServerFailed(Exception):
    """The address server did not give a list; the text says which one and why."""


@dataclass(frozen=True, slots=True)
class AddressServer:
    """One address server (properties rocketmq.namesrv.domain and rocketmq.namesrv.domain.subgroup)."""

    domain: str = DEFAULT_DOMAIN
    subgroup: str = DEFAULT_SUBGROUP

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> AddressServer:
        """That of a configuration's properties."""
        return cls(
            properties.get("rocketmq.namesrv.domain") or DEFAULT_DOMAIN,
            properties.get("rocketmq.namesrv.domain.subgroup") or DEFAULT_SUBGROUP,
        )

    @property
    def url(self) -> str:
        port = "" if ":" in self.domain else f":{DEFAULT_PORT}"
        return f"http://{self.domain}{port}/rocketmq/{self.subgroup}"

    async def fetch(self) -> str:
        """The text "host:port;host:port" it publishes now. Raises AddressServerFailed."""
        try:
            with trio.fail_after(FETCH_SECONDS):
                answer = await self._ask()
        except trio.TooSlowError:
            raise AddressServerFailed(f"{self.url}: no answer in {FETCH_SECONDS:g} s") from None
        except (OSError, ValueError, trio.BrokenResourceError) as error:
            raise AddressServerFailed(f"{self.url}: {error}") from None
        head, blank, body = answer.partition(b"\r\n\r\n")
        status_line = head.partition(b"\r\n")[0].decode("ascii", "replace")
        if not blank or status_line.split(" ")[1:2] != ["200"]:
            raise AddressServerFailed(f"{self.url}: answered {status_line[:100]!r}")
        return body.decode("utf-8", "replace").strip()

    async def _ask(self) -> bytes:
        host, _, port = self.domain.partition(":")
        stream = await trio.open_tcp_stream(host, int(port or DEFAULT_PORT))
        request = f"GET /rocketmq/{self.subgroup} HTTP/1.0\r\nHost: {self.domain}\r\nAccept: text/plain\r\n\r\n"
        async with stream:
            await stream.send_all(request.encode())
            answer = b""
            while len(answer) <= MAX_ANSWER_BYTES:
                data = await stream.receive_some(MAX_ANSWER_BYTES)
                if not data:
                    return answer
                answer += data
        raise ValueError(f"the answer is longer than {MAX_ANSWER_BYTES} bytes")
