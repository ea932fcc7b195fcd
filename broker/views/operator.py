"""Operator: what administrators change through the dashboard, as requests to the broker's own processors.

A request of the dashboard takes the way of one of mqadmin, from the checks before every processor to the response: it
is signed with the secret of the account and passes through access control, quotas, hooks and pools. So validation,
persistence, registration and audit are those of the request code, and there is no second way to change a thing. Only
the socket is missing: the connection has none, and ends with the response.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog
import trio

from triomq.broker.acl.access_table import AccessTable
from triomq.broker.audit import ACCOUNT, VIA, State, members
from triomq.daemon.audit import audit_line
from triomq.dashboard.actions import ActionRefused, Actor
from triomq.protocol import change_previews, signature
from triomq.protocol.address import HostPort
from triomq.protocol.bodies import fastjson_reader
from triomq.protocol.change_previews import Reply
from triomq.protocol.clock import NowMs
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.frame import MAX_FRAME_BYTES
from triomq.remoting.connection import Connection
from triomq.remoting.connection_settings import ConnectionSettings
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.turn import Turn

audit = structlog.get_logger("triomq.broker.audit")

DASHBOARD: Final = "dashboard"
TOKEN_ACCOUNT: Final = "(token of the dashboard)"
if TYPE_CHECKING:
    from triomq.protocol.change_previews import Question, Step

_SETTINGS: Final = ConnectionSettings(max_frame_bytes=MAX_FRAME_BYTES, max_unanswered=1)
_NONCE_BYTES: Final = 16


def succeeded(response: RemotingCommand) -> RemotingCommand:
    """Return a response of SUCCESS. Raises ActionRefused for any other."""
    if response.code != ResponseCode.SUCCESS:
        raise ActionRefused(response.remark or f"the broker refused this with code {response.code}")
    return response


class Requests(ABC):
    """Requests to one broker in the name of who acts. `place` is its address, which previews name."""

    __slots__ = ()

    @property
    @abstractmethod
    def place(self) -> str: ...

    @abstractmethod
    async def request(
        self, actor: Actor, code: int, fields: dict[str, Any] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Return the response to a request, whatever its code. Fields that are None are left out."""

    @staticmethod
    def texts_of(fields: dict[str, Any] | None) -> dict[str, str]:
        """Return the fields of a request as it has them, without those that are None."""
        return {name: _text(value) for name, value in (fields or {}).items() if value is not None}

    async def change(
        self, actor: Actor, code: int, fields: dict[str, Any] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Return the response of SUCCESS to a request. Raises ActionRefused for any other."""
        return succeeded(await self.request(actor, code, fields, body))

    async def step(self, actor: Actor, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> Step:
        """Return what a request would change that changes one thing."""
        (step,) = await self.preview(actor, code, fields, body)
        return step

    async def change_step(
        self, actor: Actor, code: int, fields: dict[str, Any] | None = None, body: bytes = b""
    ) -> Step:
        """Send a request that changes one thing, and return what that was. Raises ActionRefused."""
        step = await self.step(actor, code, fields, body)
        await self.change(actor, code, fields, body)
        return step

    async def preview(
        self, actor: Actor, code: int, fields: dict[str, Any] | None = None, body: bytes = b""
    ) -> list[Step]:
        """Return what a request would change, as `mqadmin --dry-run` tells it."""
        content = fastjson_reader.loads(body) if body else None
        steps = change_previews.PREVIEWS[code](self.place, fields or {}, content)
        return await self.asked(actor, steps)

    async def asked(self, actor: Actor, steps: Generator[Question, Reply | None, list[Step]]) -> list[Step]:
        """Return what a preview returns, when each of its questions has its reply."""
        reply: Reply | None = None
        while True:
            try:
                question = steps.send(reply)
            except StopIteration as end:
                found: list[Step] = end.value
                return found
            response = await self.request(actor, question.code, question.fields)
            reply = None
            if response.code == ResponseCode.SUCCESS:
                content = fastjson_reader.loads(response.body) if response.body else {}
                reply = Reply(response.ext_fields or {}, content)


@dataclass(frozen=True, slots=True)
class Operator(Requests):
    """Sends requests to this broker. `address` is its own."""

    table: ProcessorTable
    turn: Turn
    access: AccessTable | None
    address: HostPort
    now_ms: NowMs

    @property
    def place(self) -> str:
        return self.address.text

    async def request(
        self, actor: Actor, code: int, fields: dict[str, Any] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Return the response to a request, whatever its code. Fields that are None are left out."""
        texts = self.texts_of(fields)
        request = new_request(code, ext_fields=self.signed(actor, code, texts, body), body=body)
        answered = trio.Event()
        responses: list[RemotingCommand] = []

        def heard(_: Connection, __: RemotingCommand, response: RemotingCommand) -> None:
            responses.append(response)
            answered.set()

        async with trio.open_nursery() as nursery:
            remote = HostPort(actor.address, 0)
            connection = Connection(self.table, self.turn, nursery, remote, self.address, _SETTINGS)
            connection.notes.update({ACCOUNT: _account(actor), VIA: DASHBOARD})
            connection.on_answer = heard
            self.turn.arrived = self.turn.read_clock()  # no driver's turn read it, so it is not as old as the last one
            self.table.handle(connection, request)
            try:
                await answered.wait()
            finally:
                connection.close("the request has its response")
        return responses[0]

    def note(
        self, actor: Actor, act: str, code: int, *, before: State = None, after: State = None, **subject: object
    ) -> None:
        """Write the audit line of a change whose request brokers do not note, since clients send it all the time."""
        remote = HostPort(actor.address, 0).text
        line = audit_line(members(before), members(after))
        audit.info(act, account=_account(actor), remote=remote, code=code, via=DASHBOARD, **subject, **line)

    def signed(self, actor: Actor, code: int, fields: dict[str, str], body: bytes) -> dict[str, str]:
        """Return the fields with the signature of the account; without access control nobody signs. Raises
        ActionRefused if the account is gone."""
        if self.access is None:
            return fields
        account = self.access.account(actor.account)
        if account is None:  # it went while its page was open
            raise ActionRefused("the account is gone")
        signed_at = signature.stamp(self.now_ms(), secrets.token_bytes(_NONCE_BYTES))
        return signature.sign_bound(code, fields, body, account.access_key, account.secret_key, signed_at=signed_at)


def _account(actor: Actor) -> str:
    return actor.account or TOKEN_ACCOUNT


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
