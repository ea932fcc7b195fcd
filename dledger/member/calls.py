"""A member's calls to the others: one connection to each, many calls at once, three seconds for each of them.

A call is a task, but what is sent is in the order of `send`: the tasks of one peer take the next call of its line, in
whatever order they begin.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import structlog
import trio

from triomq.dledger.member.asking import CALL_SECONDS, NoAnswer, ask
from triomq.dledger.member.sense import far_term
from triomq.dledger.rules.actions import Send
from triomq.dledger.rules.core import Setup
from triomq.dledger.wire import codes
from triomq.dledger.wire.bodies import MetadataRequest, MetadataResponse, Request, Response
from triomq.protocol.outage import Outage
from triomq.remoting import network
from triomq.remoting.client import RemotingClient

log = structlog.get_logger("triomq.dledger.calls")


class Calls:
    """`answered(call, response)` is called once for each call that was sent, with None if there is no answer. An
    answer with a term beyond `furthest_term()` is none."""

    def __init__(
        self,
        client: RemotingClient,
        setup: Setup,
        answered: Callable[[int, Response | None], None],
        furthest_term: Callable[[], int],
    ) -> None:
        self._client = client
        self._group = setup.group
        self._self_id = setup.self_id
        self._members = members = setup.members
        self._answered = answered
        self._furthest_term = furthest_term
        self._lines: dict[str, deque[Send]] = {member: deque() for member in members}
        self._outages = {member: Outage() for member in members}

    def send(self, action: Send, nursery: trio.Nursery) -> None:
        self._lines[action.to].append(action)
        nursery.start_soon(self._call, action.to)

    async def _call(self, peer: str) -> None:
        action = self._lines[peer].popleft()
        response = await self._ask(peer, action.request)
        self._answered(action.call, response)

    async def _ask(self, peer: str, request: Request) -> Response | None:
        """Return the answer, or None if there is none that can be read."""
        try:
            response = await ask(self._client, self._members[peer], request)
            furthest = self._furthest_term()
            if response.term > furthest:
                raise NoAnswer(far_term(response.term, furthest))
        except NoAnswer as error:
            if self._outages[peer].failed(trio.current_time()):
                log.warning("member not reached", member=peer, address=self._members[peer], error=str(error))
            return None
        if self._outages[peer].is_on and self._outages[peer].worked(trio.current_time()):
            log.info("member reached again", member=peer, address=self._members[peer])
        return response

    async def has_ended(self, peer: str) -> bool:
        """Return whether the process of a leader is known to have ended: its port refuses connections, or its successor
        there says that it does not lead."""
        host, _, port = self._members[peer].rpartition(":")
        try:
            with trio.fail_after(CALL_SECONDS):
                stream = await network.connect(host.removeprefix("[").removesuffix("]"), int(port))
        except (OSError, trio.TooSlowError) as error:
            return _is_refusal(error)
        await trio.aclose_forcefully(stream)
        request = MetadataRequest(group=self._group, local_id=self._self_id, remote_id=peer)
        answer = await self._ask(peer, request)
        return isinstance(answer, MetadataResponse) and answer.code == codes.SUCCESS and answer.leader_id != peer


def _is_refusal(error: Exception) -> bool:
    """Return whether every address of a host refused. trio tries them all, and has a group of errors as the cause."""
    if isinstance(error.__cause__, ExceptionGroup):
        return all(isinstance(each, ConnectionRefusedError) for each in error.__cause__.exceptions)
    return isinstance(error, ConnectionRefusedError)
