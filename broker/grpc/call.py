"""One call of a gRPC client, and what a method is.

A method is a function of a call and the message of its request. It answers at once or later, with `reply`; what it
raises becomes the answer: Refused a status of RocketMQ in the answer's own field `status`, anything else an internal
error. gRPC's own status is OK then; other ones are for what is no call at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from triomq.broker.grpc.client import GrpcClient
from triomq.broker.grpc.results import INTERNAL_SERVER_ERROR, OK, Refused, set_status
from triomq.grpc_front.call import Call as Head
from triomq.grpc_front.messages import MessageReader, encode_message
from triomq.grpc_front.schema import DecodeError
from triomq.grpc_front.status import ANSWER_HEADERS, OK_TRAILERS, CallFailed, GrpcStatus
from triomq.protocol.address import HostPort
from triomq.remoting.log import get_logger

log = get_logger("triomq.broker.grpc")


class Method(NamedTuple):
    """`request` and `response` are protobuf classes. `is_urgent`: its calls are handled before the others of their
    connection. `is_stream`: each message of a request is handled as it comes, and the client ends the call."""

    name: str
    request: Any
    response: Any
    function: Callable[[Call, Any], None]
    is_urgent: bool = False
    is_stream: bool = False


def encoded(response: Any) -> bytes:
    """Return an answer (a protobuf message) as it is sent."""
    return encode_message(response.SerializeToString())


class Answers(Protocol):
    """The connection of a call, to which it gives its answers (connection.GrpcConnection)."""

    remote: HostPort

    def respond(self, stream_id: int, block: bytes) -> bool:
        """Begin the answer of a stream with a header block."""

    def send_data(self, stream_id: int, data: bytes) -> bool:
        """Send a part of the answer. Return False if nobody waits for it."""

    def end(self, call: Call, block: bytes) -> None:
        """End the answer to a call with a header block."""

    def sent(self) -> None:
        """Send what there is at the end of this turn."""

    @property
    def is_full(self) -> bool:
        """Whether the peer must take answers before it gets more."""


class Call:
    """See the module's docstring. `message` is that of a request whose end has not come."""

    __slots__ = ("_has_begun", "_on_given_up", "client", "connection", "head", "is_over", "message", "method", "reader",
                 "stream_id")  # fmt: skip

    client: GrpcClient

    def __init__(self, connection: Answers, stream_id: int, head: Head, method: Method, reader: MessageReader) -> None:
        self.connection = connection
        self.stream_id = stream_id
        self.head = head
        self.method = method
        self.reader = reader
        self.message: bytes | None = None
        self.is_over = False
        self._on_given_up: Callable[[], None] | None = None
        self._has_begun = False

    @property
    def authority(self) -> str:
        """Return the host and port that the client has connected to, as it names them."""
        return self.head.fields.get(b":authority", b"").decode("latin-1")

    def handle(self, message: bytes) -> None:
        """Handle a message of the request. Never raises."""
        if self.is_over:
            return
        try:
            request = self.method.request.FromString(message)
        except DecodeError as error:
            text = f"the message of {self.method.name} cannot be read: {error}"
            self.fail(CallFailed(GrpcStatus.INVALID_ARGUMENT, text))
            return
        self.attempt(lambda: self.method.function(self, request))

    def attempt(self, function: Callable[[], None]) -> None:
        """Run a part of the method; what it raises is the answer."""
        try:
            function()
        except Refused as refusal:
            self.refuse(refusal)
        except Exception as error:
            log.exception("gRPC method failed", method=self.method.name, remote=self.connection.remote.text)
            self.refuse(Refused(INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}"))

    def reply(self, response: Any) -> None:
        """Send the only answer, with the status OK unless it has another one."""
        if not response.HasField("status"):
            set_status(response.status, OK, None)
        if self.send(response):
            self.finish()

    def refuse(self, refusal: Refused) -> None:
        """End the call with a status of RocketMQ."""
        response = self.method.response()
        set_status(response.status, refusal.code, refusal.text)
        self.reply(response)

    def send(self, response: Any) -> bool:
        """Send an answer, which more may follow. Return False if the call is over."""
        return self.send_encoded(encoded(response))

    def send_encoded(self, data: bytes) -> bool:
        """Send answers, which more may follow. Return False if the call is over."""
        if self.is_over:
            return False
        self._begin()
        self.connection.send_data(self.stream_id, data)
        self.connection.sent()
        return True

    def finish(self) -> None:
        """End the call: everything is sent."""
        if not self.is_over:
            self.is_over = True
            self._begin()
            self.connection.end(self, OK_TRAILERS)

    def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            self.connection.respond(self.stream_id, ANSWER_HEADERS)

    def fail(self, failure: CallFailed) -> None:
        """End the call with a status of gRPC."""
        if not self.is_over:
            self.is_over = True
            self.connection.end(self, failure.trailers(is_whole_answer=not self._has_begun))

    def given_up(self) -> None:
        """The client waits for nothing more."""
        self.is_over = True
        if self._on_given_up is not None:
            self._on_given_up()

    def given_up_calls(self, function: Callable[[], None]) -> None:
        """Call a function when the client gives the call up."""
        self._on_given_up = function
