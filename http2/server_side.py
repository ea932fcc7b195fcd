"""The server's side of one HTTP/2 connection (RFC 9113), without I/O: bytes in, events out; answers in, bytes out.

`receive` returns what the client did. `respond`, `send_data` and `send_end` answer; they return False if the stream is
gone by then. `take_output` returns what is to be sent; ask for it after every other call. The owner calls `replenish`
each second.

What a peer can make this object hold: one frame, one header block, `max_streams` streams, and received data of one
connection window, which is given back as the owner reports it `consumed`. What the owner wants to send is the owner's
to bound. A closed stream leaves nothing: frames for it are answered with RST_STREAM (data, headers) or ignored.

Frames that achieve nothing use up the peer's patience (patience.py). A fault in one stream resets it, any other ends
the connection with a GOAWAY that names the reason. Priorities are ignored, as RFC 9113 permits; the length that a
content-length announces is not compared with the body.
"""

from __future__ import annotations

from typing import Final

from triomq.http2 import frames
from triomq.http2.control import check_other, check_ping, read_increment, read_number
from triomq.http2.errors import ConnectionFault, ErrorCode, HeaderFault, StreamFault
from triomq.http2.events import ConnectionFailed, DataArrived, Event, RequestStarted, StreamReset, TrailersArrived
from triomq.http2.frames import ACK, END_HEADERS, END_STREAM, MAX_WINDOW, Frame, FrameReader, unpadded
from triomq.http2.header_block import HeaderBlock
from triomq.http2.hpack import MAX_FIELD_LIST_BYTES, HeaderDecoder
from triomq.http2.patience import Patience
from triomq.http2.requests import request_fault, trailer_fault
from triomq.http2.sending import DEFAULT_WINDOW_BYTES, FORGIVEN_FRAMES, WORKING_BYTES, Sender, Stream
from triomq.http2.settings import Setting, encode_settings, read_settings

SETTINGS_COST: Final = 8
"""A SETTINGS frame may change the windows of all streams, so it counts as several frames."""


class Bounds:
    """What one connection may have. The window of a connection cannot be made smaller than the protocol's default."""

    def __init__(
        self,
        *,
        max_streams: int = 1000,
        stream_window_bytes: int = 256 * 1024,
        connection_window_bytes: int = 1024 * 1024,
    ) -> None:
        if connection_window_bytes <= DEFAULT_WINDOW_BYTES:
            least = DEFAULT_WINDOW_BYTES + 1
            raise ValueError(f"a window of {connection_window_bytes} bytes; the least is {least}")
        self.max_streams = max_streams
        self.stream_window_bytes = stream_window_bytes
        self.connection_window_bytes = connection_window_bytes


class ServerSide:
    """See the module's docstring. `last_stream_id` is the newest stream of the client."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._bounds = bounds or Bounds()
        self._reader = FrameReader()
        self._decoder = HeaderDecoder()
        self._patience = Patience()
        self._sender = Sender(self._patience)
        self._streams: dict[int, Stream] = {}
        self._block: HeaderBlock | None = None
        self._receive_window = self._bounds.connection_window_bytes
        self._owed = 0
        self._has_settings = False
        self._is_leaving = False
        self.is_closed = False
        self.last_stream_id = 0
        self._last_taken_id = 0  # of the last stream before `go_away`, which every GOAWAY names
        values: dict[int, int] = {
            Setting.MAX_CONCURRENT_STREAMS: self._bounds.max_streams,
            Setting.INITIAL_WINDOW_SIZE: self._bounds.stream_window_bytes,
            Setting.MAX_HEADER_LIST_SIZE: MAX_FIELD_LIST_BYTES,
        }
        self._sender.frame(frames.SETTINGS, 0, 0, encode_settings(values))
        self._sender.window_update(0, self._bounds.connection_window_bytes - DEFAULT_WINDOW_BYTES)

    def __len__(self) -> int:
        """Return the number of open streams."""
        return len(self._streams)

    @property
    def held_bytes(self) -> int:
        """The number of bytes held of an incomplete frame or header block."""
        return self._reader.held_bytes + (self._block.size_bytes if self._block is not None else 0)

    @property
    def pending_bytes(self) -> int:
        """The number of bytes that wait for the peer's windows."""
        return self._sender.pending_bytes

    def receive(self, data: bytes) -> list[Event]:
        """Return what these bytes mean. Never raises for what a peer sends."""
        events: list[Event] = []
        if self.is_closed:
            return events
        found, fault = self._reader.feed(data)
        try:
            for frame in found:
                try:
                    event = self._handle(frame)
                except StreamFault as stream_fault:
                    event = self._stream_failed(stream_fault)
                if event is not None:
                    events.append(event)
            if fault is not None:
                raise fault
        except ConnectionFault as connection_fault:
            events.append(self._failed(connection_fault.code, connection_fault.reason))
        except HeaderFault as header_fault:
            events.append(self._failed(header_fault.code, header_fault.reason))
        if self._sender.pending_bytes:
            self._pump()
        return events

    def _handle(self, frame: Frame) -> Event | None:
        kind, flags, stream_id, payload = frame
        if self._block is not None and (kind != frames.CONTINUATION or stream_id != self._block.stream_id):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "another frame in the middle of a header block")
        if not self._has_settings and (kind != frames.SETTINGS or flags & ACK):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "the first frame is not SETTINGS")
        if kind == frames.HEADERS:
            return self._headers(flags, HeaderBlock(flags, stream_id, payload))
        if kind == frames.DATA:
            return self._data(flags, stream_id, payload)
        if kind == frames.CONTINUATION:
            return self._continuation(flags, payload)
        if kind == frames.RST_STREAM:
            return self._reset_by_peer(stream_id, payload)
        if kind == frames.WINDOW_UPDATE:
            self._window_update(stream_id, payload)
        elif kind == frames.SETTINGS:
            self._settings(flags, stream_id, payload)
        elif kind == frames.PING:
            self._patience.spend(1, "PING")
            check_ping(stream_id, payload)
            if not flags & ACK:
                self._sender.frame(frames.PING, ACK, 0, payload)
        elif kind == frames.PUSH_PROMISE:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "a client must not push")
        else:
            self._patience.spend(1, f"a frame of type {kind}")
            check_other(kind, stream_id, payload)
        return None

    def _headers(self, flags: int, block: HeaderBlock) -> Event | None:
        stream_id = block.stream_id
        if stream_id % 2 == 0:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"a client cannot open stream {stream_id}")
        if stream_id <= self.last_stream_id and stream_id not in self._streams:
            raise ConnectionFault(ErrorCode.STREAM_CLOSED, f"a request in stream {stream_id}, which is closed")
        if flags & END_HEADERS:
            return self._complete(block)
        self._block = block
        return None

    def _continuation(self, flags: int, fragment: bytes) -> Event | None:
        block = self._block
        if block is None:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION without a header block")
        block.add(fragment)
        if not flags & END_HEADERS:
            return None
        self._block = None
        return self._complete(block)

    def _complete(self, block: HeaderBlock) -> Event | None:
        """Handle a whole header block: a request, or the trailers of one."""
        fields = self._decoder.decode(block.whole())
        stream_id = block.stream_id
        stream = self._streams.get(stream_id)
        if stream is not None:
            return self._trailers(stream, block, trailer_fault(fields), TrailersArrived(stream_id, fields))
        self.last_stream_id = stream_id
        if not self._is_leaving:
            self._last_taken_id = stream_id
        if self._is_leaving or len(self._streams) >= self._bounds.max_streams:
            self._patience.spend(1, "HEADERS above the number of streams")
            self._sender.reset(stream_id, ErrorCode.REFUSED_STREAM)
            return None
        fault = request_fault(fields)
        if fault is not None:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, fault)
        stream = Stream(stream_id, self._bounds.stream_window_bytes, self._sender.initial_window)
        stream.has_received_all = block.ends_stream
        self._streams[stream_id] = stream
        return RequestStarted(stream_id, fields, block.ends_stream)

    def _trailers(self, stream: Stream, block: HeaderBlock, fault: str | None, event: TrailersArrived) -> Event:
        if stream.has_received_all:
            raise StreamFault(stream.stream_id, ErrorCode.STREAM_CLOSED, "HEADERS after the end of the request")
        if fault is None and not block.ends_stream:
            fault = "trailers that do not end the request"
        if fault is not None:
            raise StreamFault(stream.stream_id, ErrorCode.PROTOCOL_ERROR, fault)
        stream.has_received_all = True
        return event

    def _data(self, flags: int, stream_id: int, payload: bytes) -> Event | None:
        self._check_begun(stream_id, "DATA")
        size = len(payload)
        self._receive_window -= size
        if self._receive_window < 0:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "more data than the window of the connection")
        data = unpadded(flags, payload)
        stream = self._streams.get(stream_id)
        if stream is None or stream.has_received_all:
            self._give_back(size)
            raise StreamFault(stream_id, ErrorCode.STREAM_CLOSED, "DATA after the end of the request")
        stream.receive_window -= size
        stream.unconsumed += size
        if stream.receive_window < 0:
            raise StreamFault(stream_id, ErrorCode.FLOW_CONTROL_ERROR, "more data than the window of the stream")
        has_ended = bool(flags & END_STREAM)
        if size >= WORKING_BYTES:
            self._patience.earn(FORGIVEN_FRAMES)
        elif not has_ended:
            self._patience.spend(1, "DATA of a few bytes")
        if has_ended:
            stream.has_received_all = True
        if size > len(data):
            self.consumed(stream_id, size - len(data))
        return DataArrived(stream_id, data, has_ended) if data or has_ended else None

    def _reset_by_peer(self, stream_id: int, payload: bytes) -> Event | None:
        self._check_begun(stream_id, "RST_STREAM")
        code = read_number(payload, "RST_STREAM")
        self._patience.spend(1, "RST_STREAM")
        stream = self._streams.get(stream_id)
        if stream is None:
            return None
        self._forget(stream)
        return StreamReset(stream_id, code, "given up by the client", is_fault=False)

    def _window_update(self, stream_id: int, payload: bytes) -> None:
        self._patience.spend(1, "WINDOW_UPDATE")
        increment = read_increment(payload)
        if stream_id == 0:
            if increment == 0:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
            if not self._sender.widen(increment):
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "the window of the connection is too large")
            return
        self._check_begun(stream_id, "WINDOW_UPDATE")
        stream = self._streams.get(stream_id)
        if stream is None:
            return
        if increment == 0:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE by 0")
        stream.send_window += increment
        if stream.send_window > MAX_WINDOW:
            raise StreamFault(stream_id, ErrorCode.FLOW_CONTROL_ERROR, "the window of the stream is too large")

    def _settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._patience.spend(SETTINGS_COST, "SETTINGS")
        if stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "SETTINGS in a stream")
        if flags & ACK:
            if payload:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "an acknowledgement of SETTINGS is not empty")
            return
        self._has_settings = True
        window = self._sender.initial_window
        for number, value in read_settings(payload):
            if number == Setting.INITIAL_WINDOW_SIZE:
                window = value
            elif number == Setting.MAX_FRAME_SIZE:
                self._sender.set_frame_bytes(value)
            elif number == Setting.HEADER_TABLE_SIZE:
                self._sender.set_table_bytes(value)
        change = window - self._sender.initial_window
        if change:
            self._sender.initial_window = window
            for stream in self._streams.values():
                stream.send_window += change
                if stream.send_window > MAX_WINDOW:
                    raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "SETTINGS make a window too large")
        self._sender.frame(frames.SETTINGS, ACK, 0)

    def _check_begun(self, stream_id: int, what: str) -> None:
        if stream_id == 0 or stream_id % 2 == 0 or stream_id > self.last_stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"{what} in stream {stream_id}, which was never opened")

    def _stream_failed(self, fault: StreamFault) -> Event | None:
        self._patience.spend(1, fault.reason)
        self._sender.reset(fault.stream_id, fault.code)
        stream = self._streams.get(fault.stream_id)
        if stream is None:
            return None
        self._forget(stream)
        return StreamReset(fault.stream_id, fault.code, fault.reason, is_fault=True)

    def _failed(self, code: ErrorCode, reason: str) -> ConnectionFailed:
        self.close(code, reason)
        return ConnectionFailed(code, reason)

    def _forget(self, stream: Stream) -> None:
        del self._streams[stream.stream_id]
        self._sender.drop(stream)
        if stream.unconsumed:
            self._give_back(stream.unconsumed)

    def _give_back(self, count: int) -> None:
        """Return bytes to the window of the connection, in few frames."""
        self._owed += count
        if self._owed >= self._bounds.connection_window_bytes // 2:
            self._sender.window_update(0, self._owed)
            self._receive_window += self._owed
            self._owed = 0

    def consumed(self, stream_id: int, count: int) -> None:
        """Grant the peer the window of `count` bytes that need no memory any more."""
        stream = self._streams.get(stream_id)
        if stream is None or self.is_closed:
            return  # what it held was given back when it was closed
        count = min(count, stream.unconsumed)
        stream.unconsumed -= count
        self._give_back(count)
        window = self._bounds.stream_window_bytes
        owed = window - stream.receive_window - stream.unconsumed
        if owed >= window // 2 and not stream.has_received_all:
            stream.receive_window += owed
            self._sender.window_update(stream_id, owed)

    def respond(self, stream_id: int, block: bytes) -> bool:
        """Begin the answer with a header block (hpack.encode_fields)."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.has_responded:
            return False
        stream.has_responded = True
        self._sender.headers(stream_id, block)
        return True

    def send_data(self, stream_id: int, data: bytes) -> bool:
        stream = self._streams.get(stream_id)
        if stream is None or not stream.has_responded or stream.trailers is not None:
            return False
        self._sender.data(stream, data)
        return True

    def send_end(self, stream_id: int, block: bytes) -> bool:
        """End the answer with a header block: behind the data, or as the whole answer if it has not begun."""
        stream = self._streams.get(stream_id)
        if stream is None or stream.trailers is not None:
            return False
        stream.has_responded = True
        stream.trailers = block
        if not stream.pending:
            self._end(stream)
        return True

    def _end(self, stream: Stream) -> None:
        assert stream.trailers is not None
        self._sender.headers(stream.stream_id, stream.trailers, ends=True)
        if not stream.has_received_all:
            self._sender.reset(stream.stream_id, ErrorCode.NO_ERROR)  # the rest of the request is not needed
        self._forget(stream)
        # However short the answer: gRPC clients answer its data with WINDOW_UPDATE and PING to measure the connection.
        self._patience.earn(FORGIVEN_FRAMES)

    def _pump(self) -> None:
        for stream in self._sender.pump():
            if stream.trailers is not None:
                self._end(stream)

    def reset(self, stream_id: int, code: ErrorCode) -> None:
        """Give up a stream."""
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._sender.reset(stream_id, code)
            self._forget(stream)

    def go_away(self, reason: str) -> None:
        """Take no new stream. Those that are open continue; the client may repeat any later one elsewhere."""
        if not self._is_leaving and not self.is_closed:
            self._is_leaving = True
            self._sender.go_away(self._last_taken_id, ErrorCode.NO_ERROR, reason)

    def close(self, code: ErrorCode, reason: str) -> None:
        """End the connection: after the output that there is, nothing is sent or received."""
        if not self.is_closed:
            self.is_closed = True
            self._sender.go_away(self._last_taken_id, code, reason)
            for stream in list(self._streams.values()):
                self._sender.drop(stream)
            self._streams.clear()
            self._block = None

    def replenish(self) -> None:
        """Note that a second has passed."""
        self._patience.replenish()

    def take_output(self) -> bytes:
        """Return the bytes to send, and forget them."""
        return self._sender.take()
