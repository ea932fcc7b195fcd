"""Asking the name servers: one at a time, the next one when it does not respond."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from triomq.client.core.errors import NameServersUnreachable
from triomq.client.core.name_server_list import NameServerList
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.wrong_port import BROKER
from triomq.remoting.errors import RemotingError

Invoke = Callable[[str, RemotingCommand, float], Awaitable[RemotingCommand]]


Recognize = Callable[[str], Awaitable[str]]

PATIENCE_SECONDS = 1.0
"""How long a name server may take before the client looks at what listens there."""


class WrongPort(RemotingError):
    """Another kind of server listens there; the text says which."""


class NameServers(NameServerList):
    """The name servers of one client, asked through its connections."""

    async def ask(
        self,
        invoke: Invoke,
        request: Callable[[], RemotingCommand],
        timeout_seconds: float,
        not_reached: Callable[[str, RemotingError], None],
        recognize: Recognize,
    ) -> tuple[str, RemotingCommand]:
        """Return (address, response) of the first that responds. `request` makes a new command for each attempt,
        `not_reached` learns of each that failed, and `recognize` says what kind of server is silent. Raises
        NameServersUnreachable."""
        failures: dict[str, str] = {}
        wrong = 0
        for address in self.in_turn():
            try:
                response = await _invoke(invoke, address, request(), timeout_seconds, recognize)
            except WrongPort as error:
                failures[address] = str(error)
                not_reached(f"name server {address}", error)
                wrong += 1
                continue
            except RemotingError as error:
                failures[address] = f"{type(error).__name__}: {error}"
                not_reached(address, error)
                continue
            self.responded(address)
            return address, response
        raise NameServersUnreachable(failures, are_wrong=0 < wrong == len(failures))


async def _invoke(
    invoke: Invoke, address: str, request: RemotingCommand, timeout_seconds: float, recognize: Recognize
) -> RemotingCommand:
    """Return the response. Raises WrongPort, too, as soon as the server is seen to be of another kind."""
    outcome: RemotingCommand | Exception | None = None
    what = ""

    async def look() -> None:
        nonlocal what
        await trio.sleep(PATIENCE_SECONDS)
        what = await recognize(address)
        if what:
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(look)
        try:
            outcome = await invoke(address, request, timeout_seconds)
        except Exception as error:  # raised below: the nursery would wrap it
            outcome = error
        nursery.cancel_scope.cancel()
    if isinstance(outcome, Exception):
        raise outcome
    if outcome is None:
        raise WrongPort(what)
    if outcome.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise WrongPort(BROKER)
    return outcome
