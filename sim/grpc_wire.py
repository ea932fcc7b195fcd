"""A gRPC client of RocketMQ 5, made of the h2 library and the project's table of fields: for simulations and tests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import trio
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
)
from h2.settings import SettingCodes

from triomq.grpc_front import schema
from triomq.grpc_front.messages import encode_message

LIMIT_SECONDS = 20.0
TOPIC = "T"


class Answer:
    """What came of one call: its messages, and the header fields behind them."""

    def __init__(self, method: str) -> None:
        kind = method if method == "Telemetry" else f"{method}Response"
        self._class = schema.TelemetryCommand if method == "Telemetry" else getattr(schema, kind)
        self._data = b""
        self.fields: dict[bytes, bytes] = {}
        self.messages: list[Any] = []
        self.is_over = False
        self.reset: int | None = None

    @property
    def grpc_status(self) -> int:
        return int(self.fields[b"grpc-status"])

    @property
    def status(self) -> int:
        return int(self.messages[0].status.code)

    def take(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 5 and len(self._data) >= 5 + int.from_bytes(self._data[1:5], "big"):
            end = 5 + int.from_bytes(self._data[1:5], "big")
            self.messages.append(self._class.FromString(self._data[5:end]))
            self._data = self._data[end:]


class Client:
    """A connection of one gRPC client."""

    def __init__(self, stream: trio.abc.Stream, headers: Mapping[str, str]) -> None:
        self.stream = stream
        self._headers = headers
        self._h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        self._received = b""
        self._answers: dict[int, Answer] = {}
        self.order: list[int] = []
        """Streams in the order in which their answers ended."""
        self.terminated: bytes | None = None
        self.is_closed = False
        self._changed = trio.Event()
        self._sending = trio.Lock()
        self._bodies: dict[int, tuple[bytes, bool]] = {}
        """What waits for windows: stream -> body, and whether it ends the request."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read until the connection is closed."""
        self._h2.initiate_connection()
        await self.flush()
        task_status.started()
        try:
            while data := await self.stream.receive_some(65536):
                for frame in self._frames(bytes(data)):
                    if self.terminated is None:
                        for event in self._h2.receive_data(frame):
                            self._happened(event)
                await self.flush()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self.is_closed = True
        self._changed.set()

    def _frames(self, data: bytes) -> Iterator[bytes]:
        """Yield each whole frame. One behind a GOAWAY is allowed, but h2 takes a connection with one for closed, and
        raises for all that follows."""
        self._received += data
        while len(self._received) >= 9:
            end = 9 + int.from_bytes(self._received[:3], "big")
            if len(self._received) < end:
                return
            frame, self._received = self._received[:end], self._received[end:]
            yield frame

    def _happened(self, event: Event) -> None:
        if isinstance(event, ConnectionTerminated):
            self.terminated = event.additional_data or b""
        elif isinstance(event, ResponseReceived | TrailersReceived):
            self._answers[event.stream_id].fields |= dict(event.headers)  # type: ignore[arg-type]
        elif isinstance(event, DataReceived):
            self._answers[event.stream_id].take(event.data)
            self._h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, StreamEnded | StreamReset):
            self._answers[event.stream_id].is_over = True
            if isinstance(event, StreamReset):
                self._answers[event.stream_id].reset = int(event.error_code)
            self.order.append(event.stream_id)
        self._changed.set()
        self._changed = trio.Event()

    async def flush(self) -> None:
        """Send what there is, as far as the windows reach."""
        async with self._sending:
            while True:
                self._fill()
                data = self._h2.data_to_send()
                if not data:
                    return
                await self.stream.send_all(data)

    def _fill(self) -> None:
        if self.terminated is not None:
            self._bodies.clear()
        for stream_id, (body, ends) in list(self._bodies.items()):
            if self._answers[stream_id].is_over:  # the server wants no more of it
                del self._bodies[stream_id]
                continue
            size = min(self._h2.local_flow_control_window(stream_id), self._h2.max_outbound_frame_size, len(body))
            is_last = size == len(body)
            if size or is_last:
                self._h2.send_data(stream_id, body[:size], end_stream=is_last and ends)
                self._bodies[stream_id] = body[size:], ends
            if is_last:
                del self._bodies[stream_id]

    def begin(self, method: str, request: Any = None, *, path: str = "", ends: bool = True, **headers: str) -> int:
        """Begin a call; `flush` sends it. Return its stream. Raises trio.BrokenResourceError after a GOAWAY."""
        if self.terminated is not None:
            raise trio.BrokenResourceError("the server takes no more calls")
        stream_id = self._h2.get_next_available_stream_id()
        self._answers[stream_id] = Answer(method)
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": path or f"/{schema.PACKAGE}.MessagingService/{method}",
            ":authority": "broker.example:18081",
            "te": "trailers",
            "content-type": "application/grpc",
            **self._headers,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        self._h2.send_headers(stream_id, [(name, value) for name, value in fields.items() if value])
        if request is not None:
            data = request if isinstance(request, bytes) else encode_message(request.SerializeToString())
            self._bodies[stream_id] = data, ends
        elif ends:
            self._h2.end_stream(stream_id)
        return stream_id

    async def send(self, stream_id: int, request: Any) -> None:
        """Send a message of a call that has begun."""
        self._bodies[stream_id] = encode_message(request.SerializeToString()), False
        await self.flush()

    async def set_window(self, size_bytes: int) -> None:
        """Grant each answer a window of this size from now on."""
        self._h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: size_bytes})
        await self.flush()

    async def give_up(self, stream_id: int) -> None:
        if self.terminated is None:
            self._h2.reset_stream(stream_id, 8)
        await self.flush()

    async def answer(self, stream_id: int, messages: int = 0, *, seconds: float = LIMIT_SECONDS) -> Answer:
        """Return an answer when it is over, or has this number of messages. Raises trio.TooSlowError, and
        trio.BrokenResourceError if the connection is closed before."""
        answer = self._answers[stream_id]
        with trio.fail_after(seconds):
            while not answer.is_over and not (messages and len(answer.messages) >= messages):
                if self.is_closed:
                    raise trio.BrokenResourceError("the connection was closed")
                await self._changed.wait()
        return answer

    async def call(self, method: str, request: Any, **options: Any) -> Answer:
        """Make a call. Return its answer."""
        stream_id = self.begin(method, request, **options)
        await self.flush()
        return await self.answer(stream_id)

    async def wait_closed(self, seconds: float = LIMIT_SECONDS) -> None:
        with trio.fail_after(seconds):
            while not self.is_closed:
                await self._changed.wait()

    # What tests ask for.

    async def publishing(self, *topics: str) -> int:
        """Open a telemetry stream as a producer of these topics. Return its stream, with the settings answered."""
        command = schema.TelemetryCommand()
        command.settings.client_type = schema.ClientType.PRODUCER
        for topic in topics or (TOPIC,):
            command.settings.publishing.topics.add(name=topic)
        return await self.tell(command)

    async def subscribed(self, group: str, *, push: bool = False, topic: str = TOPIC) -> int:
        """Open a telemetry stream as a consumer. Return its stream, with the settings answered."""
        command = schema.TelemetryCommand()
        kinds = schema.ClientType
        command.settings.client_type = kinds.PUSH_CONSUMER if push else kinds.SIMPLE_CONSUMER
        command.settings.subscription.group.name = group
        command.settings.subscription.subscriptions.add().topic.name = topic
        return await self.tell(command)

    async def tell(self, command: Any) -> int:
        stream_id = self.begin("Telemetry", command, ends=False)
        await self.flush()
        await self.answer(stream_id, 1)
        return stream_id

    async def send_message(self, body: bytes = b"body", **system: Any) -> Answer:
        return await self.call("SendMessage", message(body, **system))

    async def receive(self, group: str, *, count: int = 32, seconds: int = 60, **options: Any) -> list[Any]:
        """Return what a receive that does not wait for long gets."""
        answer = await self.call("ReceiveMessage", receiving(group, count=count, seconds=seconds), **options)
        assert answer.grpc_status == 0
        return [each.message for each in answer.messages if each.WhichOneof("content") == "message"]


def message(
    body: bytes = b"body", *, topic: str = TOPIC, properties: Mapping[str, str] | None = None, **system: Any
) -> Any:
    """Return the request that sends one message."""
    request = schema.SendMessageRequest()
    one = request.messages.add(body=body)
    one.topic.name = topic
    one.user_properties.update(properties or {})
    one.system_properties.message_id = system.pop("message_id", f"id-{body[:20].decode('latin-1')}")
    one.system_properties.keys.extend(system.pop("keys", ()))
    for name, value in system.items():
        if name in ("delivery_timestamp", "orphaned_transaction_recovery_duration"):
            getattr(one.system_properties, name).seconds = value
        else:
            setattr(one.system_properties, name, value)
    return request


def receiving(group: str, *, count: int = 32, seconds: int = 60, topic: str = TOPIC, expression: str = "*") -> Any:
    """Return a ReceiveMessage request; seconds 0: that of a push consumer."""
    request = schema.ReceiveMessageRequest(batch_size=count, auto_renew=not seconds)
    request.group.name = group
    request.message_queue.topic.name = topic
    request.message_queue.id = -1
    request.filter_expression.type = schema.FilterType.TAG
    request.filter_expression.expression = expression
    if seconds:
        request.invisible_duration.seconds = seconds
    return request


def acknowledging(group: str, *messages: Any, topic: str = TOPIC) -> Any:
    request = schema.AckMessageRequest()
    request.group.name, request.topic.name = group, topic
    for one in messages:
        system = one.system_properties
        request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
    return request
