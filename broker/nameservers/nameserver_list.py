"""NameServerList: where this broker's NameServers are: namesrvAddr, or else the latest list of the address server.

Registrations go to them, and the HA port asks them for the slaves of this broker.
"""

from __future__ import annotations

from typing import Final

import structlog

from triomq.broker.configuration import Configuration
from triomq.broker.nameservers.address_server import AddressServer
from triomq.remoting.http_get import HttpFailed

log = structlog.get_logger("triomq.broker.nameservers.registration")

MAX_NAMESERVERS: Final = 64


class NameServerList:
    """See the module's docstring."""

    def __init__(self, configuration: Configuration, address_server: AddressServer) -> None:
        self._configuration = configuration
        self._address_server = address_server
        self._fetched: list[str] = []

    def addresses(self) -> list[str]:
        """Return the addresses "host:port" of all NameServers currently known."""
        configured = self._configuration.broker.namesrv_addr
        return split_addresses(configured) if configured else self._fetched

    async def fetch(self) -> None:
        """Query the address server, if namesrvAddr is unset and fetchNamesrvAddrByAddressServer is set."""
        broker = self._configuration.broker
        if broker.namesrv_addr or not broker.fetch_namesrv_addr_by_address_server:
            return
        try:
            fetched = split_addresses(await self._address_server.fetch())
        except HttpFailed as error:
            log.warning("list of NameServers not returned by the address server", error=str(error), known=self._fetched)
            return
        if fetched and fetched != self._fetched:
            log.info("list of NameServers fetched", nameservers=";".join(fetched))
            self._fetched = fetched


def split_addresses(text: str) -> list[str]:
    """Return the distinct addresses of "host:port;host:port"."""
    addresses = dict.fromkeys(address.strip() for address in text.replace("\n", ";").split(";"))
    return [address for address in addresses if address][:MAX_NAMESERVERS]
