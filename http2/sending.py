"""What a server sends: frames within the windows that the peer grants, in turns among the streams.

Header blocks are sent at once. Data waits in its stream while the window of the stream or of the connection is used up,
and so do the trailers behind it. The owner bounds the bytes that wait (`Stream.pending_bytes`,
`Sender.pending_bytes`).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from triomq.http2.errors import ErrorCode
from triomq.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    MAX_WINDOW,
    RST_STREAM,
    WINDOW_UPDATE,
    encode_frame,
    frame_head,
)
from triomq.http2.hpack import TABLE_BYTES
from triomq.http2.patience import Patience

DEFAULT_WINDOW_BYTES: Final = 65535
WORKING_BYTES: Final = 512
"""Data of this length counts as work, so that its window updates cost the peer nothing."""
FORGIVEN_FRAMES: Final = 4
"""Idle frames that are forgiven for such data, and for a request that is answered to its end."""
_LEAST_FRAME_BYTES: Final = 2**14
_MOST_FRAME_BYTES: Final = 2**18
"""Longest frame that is made, however long the peer permits: streams take turns frame by frame."""
_EMPTY_TABLE: Final = b"\x20"
"""An encoder that never fills its table says so when the peer makes the table smaller (RFC 7541, section 4.2)."""
_DEBUG_BYTES: Final = 256


class Stream:
    """One request and its answer. `unconsumed` bytes were received and not given back to the window."""

    __slots__ = (
        "has_received_all",
        "has_responded",
        "pending",
        "pending_bytes",
        "receive_window",
        "send_window",
        "stream_id",
        "trailers",
        "unconsumed",
    )

    def __init__(self, stream_id: int, receive_window: int, send_window: int) -> None:
        self.stream_id = stream_id
        self.receive_window = receive_window
        self.unconsumed = 0
        self.has_received_all = False
        self.has_responded = False
        self.send_window = send_window
        self.pending: deque[memoryview] | None = None  # most streams never have any
        self.pending_bytes = 0
        self.trailers: bytes | None = None


class Sender:
    """The output of one connection. `take` returns what may be sent now."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._output: list[bytes | memoryview] = []
        self._blocked: dict[int, Stream] = {}  # streams with pending data, the next one first
        self._window = DEFAULT_WINDOW_BYTES
        self._frame_bytes = _LEAST_FRAME_BYTES
        self._must_empty_table = False
        self._has_emptied_table = False
        self.initial_window = DEFAULT_WINDOW_BYTES
        self.pending_bytes = 0
        """Data of all streams that waits for windows."""

    def take(self) -> bytes:
        """Return the bytes to send, and forget them."""
        if not self._output:
            return b""
        output, self._output = self._output, []
        return b"".join(output)

    def frame(self, kind: int, flags: int, stream_id: int, payload: bytes = b"") -> None:
        self._output.append(encode_frame(kind, flags, stream_id, payload))

    def headers(self, stream_id: int, block: bytes, *, ends: bool = False) -> None:
        """Send a header block, in several frames if it is longer than one."""
        if self._must_empty_table and not self._has_emptied_table:
            self._has_emptied_table = True
            block = _EMPTY_TABLE + block
        flags = END_STREAM if ends else 0
        kind, size = HEADERS, _LEAST_FRAME_BYTES
        while len(block) > size:
            self.frame(kind, flags, stream_id, block[:size])
            kind, flags, block = CONTINUATION, 0, block[size:]
        self.frame(kind, flags | END_HEADERS, stream_id, block)

    def data(self, stream: Stream, data: bytes) -> None:
        """Send data, as far as the windows reach now; the rest follows."""
        if not data:
            return
        rest = memoryview(data)
        # If others are blocked, then by their own windows or because the one of the connection is used up, too.
        while rest and not stream.pending and self._may_send(stream):
            rest = self._piece(stream, rest)
        if rest:
            if stream.pending is None:
                stream.pending = deque()
            stream.pending.append(rest)
            stream.pending_bytes += len(rest)
            self.pending_bytes += len(rest)
            self._blocked[stream.stream_id] = stream

    def pump(self) -> list[Stream]:
        """Send what new windows permit, frame by frame in turns. Return the streams that have sent everything."""
        finished: list[Stream] = []
        waiting = deque(self._blocked.values())
        while waiting and self._window > 0:
            stream = waiting.popleft()
            if not self._may_send(stream):
                continue
            self._pending_piece(stream)
            if stream.pending:
                waiting.append(stream)
                self._blocked[stream.stream_id] = self._blocked.pop(stream.stream_id)
            else:
                del self._blocked[stream.stream_id]
                finished.append(stream)
        return finished

    def _may_send(self, stream: Stream) -> bool:
        return self._window > 0 and stream.send_window > 0

    def _pending_piece(self, stream: Stream) -> None:
        """Send one frame of what waits in a stream."""
        assert stream.pending
        piece = stream.pending.popleft()
        rest = self._piece(stream, piece)
        if rest:
            stream.pending.appendleft(rest)
        size = len(piece) - len(rest)
        stream.pending_bytes -= size
        self.pending_bytes -= size

    def _piece(self, stream: Stream, data: memoryview) -> memoryview:
        """Send one frame of a stream's data. Return the rest."""
        size = min(len(data), self._window, stream.send_window, self._frame_bytes)
        self._window -= size
        stream.send_window -= size
        self._output.append(frame_head(size, DATA, 0, stream.stream_id))
        self._output.append(data[:size])
        if size >= WORKING_BYTES:
            self._patience.earn(FORGIVEN_FRAMES)
        return data[size:]

    def drop(self, stream: Stream) -> None:
        """Forget the data of a stream that is gone."""
        self._blocked.pop(stream.stream_id, None)
        self.pending_bytes -= stream.pending_bytes
        stream.pending_bytes = 0
        stream.pending = None

    def reset(self, stream_id: int, code: int) -> None:
        self.frame(RST_STREAM, 0, stream_id, code.to_bytes(4, "big"))

    def window_update(self, stream_id: int, increment: int) -> None:
        self.frame(WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big"))

    def go_away(self, last_stream_id: int, code: ErrorCode, reason: str) -> None:
        debug = reason.encode("utf-8", "replace")[:_DEBUG_BYTES]
        self.frame(GOAWAY, 0, 0, last_stream_id.to_bytes(4, "big") + int(code).to_bytes(4, "big") + debug)

    def widen(self, increment: int) -> bool:
        """Add to the window of the connection. Return False if that is more than a window may have."""
        self._window += increment
        return self._window <= MAX_WINDOW

    def set_table_bytes(self, size_bytes: int) -> None:
        self._must_empty_table = self._must_empty_table or size_bytes < TABLE_BYTES

    def set_frame_bytes(self, size_bytes: int) -> None:
        self._frame_bytes = min(size_bytes, _MOST_FRAME_BYTES)
