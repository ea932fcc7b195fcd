"""AddressServer: where the list of NameServers is published (RocketMQ: TopAddressing).

GET http://<domain>:8080/rocketmq/<subgroup>        ":8080" is left out when the domain has a port
answer 200 with "host:port;host:port"
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from triomq.remoting.http_get import get_text

DEFAULT_DOMAIN: Final = "jmenv.tbsite.net"
DEFAULT_SUBGROUP: Final = "nsaddr"
DEFAULT_PORT: Final = 8080

FETCH_SECONDS: Final = 3.0


class AddressServer(Struct, frozen=True):
    """One address server (properties rocketmq.namesrv.domain and rocketmq.namesrv.domain.subgroup)."""

    domain: str = DEFAULT_DOMAIN
    subgroup: str = DEFAULT_SUBGROUP

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> AddressServer:
        """Return the address server that the properties name."""
        return cls(
            properties.get("rocketmq.namesrv.domain") or DEFAULT_DOMAIN,
            properties.get("rocketmq.namesrv.domain.subgroup") or DEFAULT_SUBGROUP,
        )

    @property
    def url(self) -> str:
        port = "" if ":" in self.domain else f":{DEFAULT_PORT}"
        return f"http://{self.domain}{port}/rocketmq/{self.subgroup}"

    async def fetch(self) -> str:
        """Return the published text "host:port;host:port". Raises HttpFailed."""
        return await get_text(self.url, FETCH_SECONDS)
