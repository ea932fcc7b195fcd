"""Asking the name servers: one at a time, the next one when it does not respond."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from triomq.client.core.errors import NameServersUnreachable
from triomq.client.core.log import get_logger
from triomq.client.core.name_server_list import NameServerList
from triomq.protocol.command import RemotingCommand
from triomq.remoting.errors import RemotingError

log = get_logger("triomq.client.name_servers")

Invoke = Callable[[str, RemotingCommand, float], Awaitable[RemotingCommand]]


class NameServers(NameServerList):
    """The name servers of one client, asked through its connections."""

    async def ask(
        self, invoke: Invoke, request: Callable[[], RemotingCommand], timeout_seconds: float
    ) -> tuple[str, RemotingCommand]:
        """Return (address, response) of the first that responds. `request` makes a new command for each attempt. Raises
        NameServersUnreachable."""
        failures: dict[str, str] = {}
        for address in self.in_turn():
            try:
                response = await invoke(address, request(), timeout_seconds)
            except RemotingError as error:
                failures[address] = f"{type(error).__name__}: {error}"
                log.warning("name server did not respond", address=address, error=str(error))
                continue
            self.responded(address)
            return address, response
        raise NameServersUnreachable(failures)
