"""A gRPC client, as the rest of the broker sees it: a connection of remoting.

What a method needs of the broker it asks with the requests of remoting (`request`), whose processors check permissions,
quotas and limits and do the work, as for clients of RocketMQ 4.9. Requests to the client go the other way: what its
telemetry stream has a command for is sent there (RocketMQ 5: GrpcClientChannel).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import trio

from triomq.broker.acl.signed_call import CallRequest, Fields
from triomq.broker.grpc.held import Held
from triomq.protocol.codes import LanguageCode, RequestCode
from triomq.protocol.command import RPC_RESPONSE, RemotingCommand
from triomq.protocol.response_template import ResponseTemplate, TemplatedResponse, Value
from triomq.remoting.connection import Connection
from triomq.remoting.connection_settings import ConnectionSettings
from triomq.remoting.errors import ConnectionClosed
from triomq.remoting.processor_table import ProcessorTable

_LANGUAGES: Final = {"GOLANG": LanguageCode.GO, "DOT_NET": LanguageCode.DOTNET, "NODE_JS": LanguageCode.HTTP}
_NAMES: Final = {language.name: language for language in LanguageCode}

Then = Callable[[RemotingCommand], None]


class Telemetry(Protocol):
    """The telemetry stream of a client, for what the broker asks of it (telemetry.TelemetryStream)."""

    def knows(self, command: RemotingCommand) -> bool:
        """Return whether a request of remoting has a command here."""

    def known_answer(self, command: RemotingCommand) -> RemotingCommand | None:
        """Return the response to a request if the client need not be asked."""

    def pass_on(self, command: RemotingCommand) -> None:
        """Send what a request of remoting says."""

    def end(self) -> None:
        """End the stream."""


class GrpcClient(Connection):
    """See the module's docstring. `client_id` is that of the header x-mq-client-id. `telemetry` is None while the
    client has no telemetry stream."""

    def __init__(
        self,
        connection: Connection,
        client_id: str,
        language: str,
        table: ProcessorTable,
        nursery: trio.Nursery,
        settings: ConnectionSettings,
        held: Held,
        *,
        on_close: Callable[[Connection], None],
    ) -> None:
        """`connection` is the one over which it makes calls; `held` is what it has received and not acknowledged."""
        remote, local = connection.remote, connection.local
        super().__init__(table, connection.turn, nursery, remote, local, settings, on_close=on_close)
        self.client_id = client_id
        self.language = int(_LANGUAGES.get(language.upper()) or _NAMES.get(language.upper(), LanguageCode.OTHER))
        self.peer_names = connection.peer_names
        self.telemetry: Telemetry | None = None
        self.settings: Any = None  # the last that it has sent (schema.Settings)
        self.held = held
        self._table = table
        self._asked: dict[int, Then] = {}
        self._last_opaque = 0

    def request(self, headers: Mapping[bytes, bytes], code: int, fields: Fields, body: bytes, then: Then) -> None:
        """Handle a request of remoting in the name of this client, which a call with these headers needs. `then` gets
        the response, at once or later, unless the client is closed before."""
        opaque = self._last_opaque = (self._last_opaque + 1) & 0x7FFFFFFF
        self._asked[opaque] = then
        self._table.handle(self, CallRequest(headers, code, fields, body, opaque, self.language))

    # What processors call.

    def answer_filled(
        self, request: RemotingCommand, template: ResponseTemplate, code: int, values: tuple[Value, ...], since: float
    ) -> None:
        self.answer(request, TemplatedResponse(template, request, code, values), since)

    def _send(self, command: RemotingCommand) -> None:
        """Pass a response on to the method that asked, or a request to the telemetry stream."""
        if command.flag & RPC_RESPONSE:
            then = self._asked.pop(command.opaque, None)
            if then is not None:
                then(command)
        elif self.telemetry is not None:
            self.telemetry.pass_on(command)

    async def invoke(self, command: RemotingCommand, timeout_seconds: float) -> RemotingCommand:
        telemetry = self.telemetry
        answer = telemetry.known_answer(command) if telemetry is not None else None
        if answer is not None:
            return answer
        if telemetry is None or not telemetry.knows(command):
            raise ConnectionClosed(f"the gRPC client {self.client_id} has no way to be asked for {command.code} now")
        return await super().invoke(command, timeout_seconds)

    def answered(self, response: RemotingCommand) -> None:
        """Note what the client has answered to a request that its telemetry stream passed on."""
        self._unanswered.resolve(response)

    def send_oneway(self, command: RemotingCommand) -> bool:
        if command.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
            return self.is_open  # it shares no queues, so it need not know
        if self.telemetry is None or not self.telemetry.knows(command):
            return False
        return super().send_oneway(command)

    def lose(self, telemetry: Telemetry) -> None:
        """Note that a telemetry stream is over: what was asked there gets no answer."""
        if self.telemetry is telemetry:
            self.telemetry = None
            self._unanswered.fail(ConnectionClosed(f"the telemetry stream of the gRPC client {self.client_id} ended"))

    def end_telemetry(self) -> None:
        if self.telemetry is not None:
            self.telemetry.end()

    def leave(self) -> None:
        """The broker stops."""
        self.end_telemetry()
        self.held.forget()

    def close(self, reason: str) -> None:
        if self.is_open:
            super().close(reason)
            self._asked.clear()
            self.held.give_back()
