"""Asking the name servers: one at a time, the next one when it does not answer.

Name servers know nothing of each other and each holds everything, so any answer will do. Holds which one answered last;
a client starts at a random one, so that many clients spread.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence

from triomq.client.core.errors import NameServersUnreachable
from triomq.client.core.log import get_logger
from triomq.protocol.command import RemotingCommand
from triomq.remoting.errors import RemotingError

log = get_logger("triomq.client.name_servers")

Invoke = Callable[[str, RemotingCommand, float], Awaitable[RemotingCommand]]


class NameServers:
    """The addresses given by the application (or by an address server), and the one that is asked first."""

    def __init__(self, addresses: Sequence[str], *, start: int | None = None) -> None:
        self.addresses = tuple(addresses)
        self._chosen = random.randrange(max(1, len(self.addresses))) if start is None else start % len(self.addresses)

    @property
    def chosen(self) -> str:
        """The one that answered last."""
        return self.addresses[self._chosen]

    def replace(self, addresses: Sequence[str]) -> None:
        """Another list is published; the one that answered last is asked first as long as it is on it."""
        last = self.chosen if self.addresses else ""
        self.addresses = tuple(addresses)
        if last in self.addresses:
            self._chosen = self.addresses.index(last)
        else:
            self._chosen = random.randrange(len(self.addresses))

    async def ask(
        self, invoke: Invoke, request: Callable[[], RemotingCommand], timeout_seconds: float
    ) -> tuple[str, RemotingCommand]:
        """Who answered, and what. `request` makes a new command for each attempt. Raises NameServersUnreachable."""
        failures: dict[str, str] = {}
        for step in range(len(self.addresses)):
            number = (self._chosen + step) % len(self.addresses)
            address = self.addresses[number]
            try:
                answer = await invoke(address, request(), timeout_seconds)
            except RemotingError as error:
                failures[address] = f"{type(error).__name__}: {error}"
                log.warning("name server did not answer", address=address, error=str(error))
                continue
            self._chosen = number
            return address, answer
        raise NameServersUnreachable(failures)
