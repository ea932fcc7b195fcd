"""Asking the name servers: one at a time, the next one when it does not respond."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from triomq.client.core.errors import NameServersUnreachable
from triomq.client.core.name_server_list import NameServerList
from triomq.protocol.command import RemotingCommand
from triomq.remoting.errors import RemotingError

Invoke = Callable[[str, RemotingCommand, float], Awaitable[RemotingCommand]]


class NameServers(NameServerList):
    """The name servers of one client, asked through its connections."""

    async def ask(
        self,
        invoke: Invoke,
        request: Callable[[], RemotingCommand],
        timeout_seconds: float,
        not_reached: Callable[[str, RemotingError], None],
    ) -> tuple[str, RemotingCommand]:
        """Return (address, response) of the first that responds. `request` makes a new command for each attempt, and
        `not_reached` learns of each that failed. Raises NameServersUnreachable."""
        failures: dict[str, str] = {}
        for address in self.in_turn():
            try:
                response = await invoke(address, request(), timeout_seconds)
            except RemotingError as error:
                failures[address] = f"{type(error).__name__}: {error}"
                not_reached(address, error)
                continue
            self.responded(address)
            return address, response
        raise NameServersUnreachable(failures)
