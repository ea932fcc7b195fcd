"""One connection in both directions: requests of the peer and our responses, our requests and the peer's responses.

It holds the decoder, the output that waits for the end of the turn, the unanswered requests to the peer, and the tasks
that the peer's requests started. It has no socket: a driver (poller, stream_transport) passes in the bytes it reads and
sends the output. Only the event loop's thread may touch it.

Requests of one read may be too many for one turn, and their responses too many for a peer that does not take them. Then
the rest waits in `_waiting`, nothing more is read, and later turns continue (`work`). So a connection holds at most the
requests of one read, and output of the high water mark and one response.

A connection closes once, for a reason: its tasks are cancelled, its unanswered requests fail, its owner is notified.
Nothing that one peer sends affects another connection: a malformed frame closes only the connection it arrived on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from math import inf
from typing import Any, Final

import trio

from triomq.protocol.address import HostPort
from triomq.protocol.command import RPC_ONEWAY, RPC_RESPONSE, RemotingCommand
from triomq.protocol.errors import FrameError
from triomq.protocol.frame import FrameDecoder, encode_with
from triomq.protocol.response_template import ResponseTemplate, TemplatedResponse, Value
from triomq.protocol.wrong_port import answer_to_foreign
from triomq.remoting.backpressure import Backpressure
from triomq.remoting.compiling import mypyc_attr
from triomq.remoting.connection_settings import ConnectionSettings, RequestHandler, Transport
from triomq.remoting.connection_tasks import Tasks
from triomq.remoting.errors import ConnectionClosed, RemotingTimeout, TooManyRequests
from triomq.remoting.handshake import frame_fault
from triomq.remoting.log import get_logger
from triomq.remoting.scheduling.step_line import Steps
from triomq.remoting.turn import Turn
from triomq.remoting.unanswered import Unanswered
from triomq.remoting.waiting_requests import Later, WaitingRequests

log = get_logger("triomq.remoting.connection")

# Why a connection is not read.
_UNSENT = 1  # the peer does not take its responses
_WAITING = 2  # requests of earlier reads wait
_NO_MEMORY = 4  # the rest of a long frame waits for a grant of the memory budget
_TASKS = 8  # requests wait until tasks have ended, and no task waits for a response from here

APART_BYTES: Final = 16 * 1024
"""A body this long is not copied behind its header; the transport sends both from where they are."""

AnswerObserver = Callable[["Connection", RemotingCommand, RemotingCommand], None]


@mypyc_attr(allow_interpreted_subclasses=True)  # for tests
class Connection:
    """See the module's docstring. `remote` and `local` are the two ends. `has_spoken`: a whole frame has arrived.
    `notes` is what others note about this connection, each under itself as the key; it is freed with the connection."""

    def __init__(
        self,
        handler: RequestHandler[Connection],
        turn: Turn,
        nursery: trio.Nursery,
        remote: HostPort,
        local: HostPort,
        settings: ConnectionSettings,
        *,
        on_close: Callable[[Connection], None] | None = None,
    ) -> None:
        self.remote = remote
        self.local = local
        self.is_open = True
        self.close_reason: str | None = None
        self.last_active = trio.current_time()
        self.has_spoken = False
        self.transport: Transport | None = None
        self.notes: dict[object, str] = {}
        self.peer_names: frozenset[str] = frozenset()  # of its certificate, if one was verified
        self._not_read = 0
        self._handler = handler
        self.turn = turn
        self._decoder = FrameDecoder(settings.max_frame_bytes, settings.max_header_bytes)
        self._waiting = WaitingRequests()
        self._will_work = False
        self._spent_seconds = 0.0
        self._output: list[bytes] = []
        self._output_bytes = 0
        self._marked = False
        self.backpressure = Backpressure(settings, self)
        self._pending_close_reason: str | None = None
        self._has_frame = False
        self._is_in_order = False
        self._unanswered = Unanswered(nursery)
        self._max_unanswered = settings.max_unanswered
        self._next_opaque = 0
        self.serialize_type = settings.serialize_type
        self._language = settings.language
        self.steps = Steps(settings.step_line)  # of its tasks
        self._tasks = Tasks(nursery, remote.text, lambda: self._resume_reading(_TASKS), self.steps)
        self._on_close = on_close
        self.on_answer: AnswerObserver | None = None

    # What the driver calls.

    def receive(self, data: bytes) -> int:
        """Handle the bytes of one read. The driver has begun a turn and will end it. Return the number of commands that
        they completed."""
        try:
            commands = self._decoder.feed(data)
        except Exception as error:  # also from a bug in the decoder, which must not affect other connections
            decoded = error.decoded if isinstance(error, FrameError) else []
            commands = [command for command in decoded if isinstance(command, RemotingCommand)]
            fault = frame_fault(error, data)
            log.warning("connection closed for a malformed frame", remote=self.remote.text, error=fault)
            if answer := answer_to_foreign(data):
                self.put(answer)
            self.close_soon(f"malformed frame: {fault}")
        if self._decoder.held_bytes or self._has_frame:
            self.note_frame(self._decoder.held_bytes, self._decoder.needed_bytes, is_new=bool(commands))
        if len(commands) == 1:
            command = commands[0]
            self.has_spoken = True
            if command.flag & RPC_RESPONSE:
                self._unanswered.resolve(command)
            else:
                self._handler.handle(self, command)
        elif commands:
            self.has_spoken = True
            self._receive_many(commands)
        return len(commands)

    def _receive_many(self, commands: list[RemotingCommand]) -> None:
        """Handle the requests of one read until the turn is over or the peer's output is full; the rest waits."""
        backpressure = self.backpressure
        backpressure.look_at_memory()
        handler = self._handler
        turn = self.turn
        is_over = False
        for command in commands:
            if command.flag & RPC_RESPONSE:  # it need not wait
                self._unanswered.resolve(command)
            elif is_over:
                self._waiting.append(command)
            else:
                handler.handle(self, command)
                if self._output_bytes > backpressure.room_bytes or turn.is_over():
                    is_over = True
                    if not self._waiting:
                        self._spent_seconds = turn.read_clock() - turn.arrived
        if is_over:
            self._is_in_order = True  # what arrives later must not overtake those that wait
            self._wait_for_turn()

    def note_frame(self, held_bytes: int, needed_bytes: int, *, is_new: bool) -> None:
        """Note what is held of an incomplete frame after a read, and how long it will be (`is_new`: one was completed).
        The rest is read when the memory budget grants it."""
        self._has_frame = held_bytes > 0
        if not self.backpressure.share.read_frame(held_bytes, needed_bytes, is_new=is_new):
            self._stop_reading(_NO_MEMORY)

    def put(self, data: bytes) -> None:
        """Add bytes to this turn's output."""
        self._output.append(data)
        self._output_bytes += len(data)
        self._mark()

    def _wait_for_turn(self) -> None:
        if self._waiting and self.is_open:
            self.backpressure.share.set_waiting(self._waiting.held_bytes)
            if self._is_in_order or self._waiting.is_full():
                self._stop_reading(_WAITING)
            self._mark()  # `flush` knows whether the peer takes what there is

    def must_wait(self) -> bool:
        """Return whether a response must wait for a later turn (`postpone`): the peer does not take what there is, or
        the turn has lasted long enough."""
        return self._output_bytes > self.backpressure.room_bytes or self.turn.is_over()

    def postpone(self, later: RemotingCommand | Callable[[], None], size_bytes: int = 0) -> None:
        """Handle a request, or call a function, in a later turn, unless the connection is closed by then. Requests that
        arrive meanwhile may be handled before. `size_bytes` is what the function holds."""
        if not self._waiting:
            self._spent_seconds = 0.0
            self._is_in_order = False
        self._waiting.append(later if isinstance(later, RemotingCommand) else Later(later, size_bytes))
        self._wait_for_turn()

    def work(self) -> bool:
        """Handle requests that wait (called by Turn.run). Return whether there are more for the next turn."""
        waiting = self._waiting
        backpressure = self.backpressure
        turn = self.turn
        scheduler = turn.scheduler
        began = turn.read_clock()
        turn.arrived = began - self._spent_seconds
        try:
            while waiting and self._output_bytes <= backpressure.room_bytes:
                before_bytes = self._output_bytes
                each = waiting.popleft()
                if isinstance(each, RemotingCommand):
                    self._handler.handle(self, each)
                else:
                    each.function()
                scheduler.handled(self._output_bytes - before_bytes)
                if not scheduler.slice_may_continue(turn.read_clock()):
                    break
        except Exception:
            log.exception("connection failed", remote=self.remote.text)
            self.close("internal error; see the log")
        if self._is_in_order:
            self._spent_seconds += turn.read_clock() - began
        if self.is_open and (not waiting or (not self._is_in_order and waiting.has_room())):
            self.backpressure.share.set_waiting(self._waiting.held_bytes)
            self._resume_reading(_WAITING)
        if waiting and self._output_bytes <= backpressure.room_bytes:
            return True
        self._will_work = False
        if self.is_open:
            self._mark()  # `flush` continues, or closes after a malformed frame
        return False

    def flush(self) -> None:
        """Pass the turn's output to the transport (called by Turn.end)."""
        self._marked = False
        output = self._output
        if output and self.transport is not None:
            size = self._output_bytes
            self._output = []
            self._output_bytes = 0
            if len(output) == 1:
                self.transport.write(output[0])
            elif size >= APART_BYTES // 2 * len(output):
                self.transport.write_pieces(output)
            else:
                self.transport.write(b"".join(output))
        if self._waiting.queue:
            self._work_soon()
        elif self._pending_close_reason is not None:
            self.close(self._pending_close_reason)

    def wrote(self, backlog_bytes: int) -> None:
        """Stop or continue to read after the transport's backlog (bytes accepted but not sent) has changed."""
        backpressure = self.backpressure
        backpressure.set_backlog(backlog_bytes)
        if backpressure.room_bytes < 0:
            self._stop_reading(_UNSENT)
        elif backpressure.is_drained:
            self._resume_reading(_UNSENT)
            if self._waiting:
                self._spent_seconds = 0.0  # that the peer took nothing does not make its requests old
                self._work_soon()

    def hold(self, count: int) -> bool:
        """Count these bytes (a negative number: no longer) as held for the peer. Return whether memory is tight."""
        return self.backpressure.hold(count)

    def task_began(self, size_bytes: int) -> None:
        """Count a request of this size as held until the task that handles it has ended (`task_ended`)."""
        self.backpressure.hold(size_bytes)
        self.backpressure.memory.task_began(self.remote.ip, size_bytes)

    def task_ended(self, size_bytes: int) -> None:
        self.backpressure.hold(-size_bytes)
        self.backpressure.memory.task_ended(self.remote.ip, size_bytes)

    def close_soon(self, reason: str) -> None:
        """Close when the requests that have arrived are handled and this turn's output is sent."""
        self._pending_close_reason = reason
        self._mark()

    def may_read(self) -> None:
        """Continue to read (called by the share of the memory budget)."""
        self._resume_reading(_NO_MEMORY)

    def _work_soon(self) -> None:
        """Continue with the requests that wait, once the peer has taken enough."""
        has_room = self.backpressure.is_drained and self.backpressure.room_bytes >= 0
        if has_room and not self._will_work and self.is_open:
            self._will_work = True
            self.turn.postpone(self)

    @property
    def paused(self) -> bool:
        """Whether the transport does not read."""
        return self._not_read != 0

    def _stop_reading(self, reason: int) -> None:
        if self.transport is not None:
            if not self._not_read:
                self.transport.pause_reading()
            self._not_read |= reason

    def _resume_reading(self, reason: int) -> None:
        if self._not_read & reason and self.transport is not None:
            self._not_read &= ~reason
            if not self._not_read:
                self.transport.resume_reading()

    # What processors call.

    def answer(self, request: RemotingCommand, response: RemotingCommand, since: float = inf) -> None:
        """Add `response` to this turn's output, unless `request` is one-way or the connection is closed. `since`: the
        time (trio's) at which the request entered its pool.

        `on_answer` receives every response first, even one that is not sent; it must not raise."""
        if self.on_answer is not None:
            self.on_answer(self, request, response)
        if request.flag & RPC_ONEWAY or not self.is_open:
            return
        if self.turn.answers is not None:
            self.turn.note_answer(request.code, response.code, since)
        self._send(response)

    def answer_filled(
        self, request: RemotingCommand, template: ResponseTemplate, code: int, values: tuple[Value, ...], since: float
    ) -> None:
        """Send a response that has neither remark nor body, as `answer` sends others. It becomes a command only if
        somebody looks at it, or its codec has no template."""
        if self.on_answer is None:
            if request.flag & RPC_ONEWAY or not self.is_open:
                return
            frame = template.answer(request, code, values)
            if frame is not None:
                if self.turn.answers is not None:
                    self.turn.note_answer(request.code, code, since)
                self._output.append(frame)
                self._output_bytes += len(frame)
                if not self._marked:
                    self._mark()
                return
        self.answer(request, TemplatedResponse(template, request, code, values), since)

    def start_soon(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Run an async function that closing the connection cancels, now or when fewer run. It must not raise."""
        if self._tasks.start(function, args) and not len(self._unanswered):
            self._stop_reading(_TASKS)

    async def invoke(self, command: RemotingCommand, timeout_seconds: float) -> RemotingCommand:
        """Send a request and return the response. Raises RemotingTimeout, ConnectionClosed, TooManyRequests."""
        self._check_usable()
        deadline = trio.current_time() + timeout_seconds
        if self.backpressure.is_over:
            with trio.move_on_at(deadline) as limit:
                await self.backpressure.wait_drained()
            if limit.cancelled_caught:
                raise RemotingTimeout(f"{self.remote.text} reads nothing; request {command.code} was not sent")
            self._check_usable()  # other tasks that waited may have sent requests meanwhile
        opaque = self._assign_opaque(command)
        self._send(command)
        self._resume_reading(_TASKS)
        response = await self._unanswered.answer(opaque, deadline)
        if response is None:
            waited = f"in {timeout_seconds:g} s"
            raise RemotingTimeout(f"no response from {self.remote.text} to request {command.code} {waited}")
        return response

    def _check_usable(self) -> None:
        if not self.is_open:
            raise ConnectionClosed(f"connection to {self.remote.text} is closed: {self.close_reason}")
        if len(self._unanswered) >= self._max_unanswered:
            raise TooManyRequests(f"{self._max_unanswered} requests to {self.remote.text} are unanswered")

    def send_oneway(self, command: RemotingCommand) -> bool:
        """Send a request without a response. Return False if the connection is closed or its backlog is full."""
        if not self.is_open or self.backpressure.is_over:
            return False
        command.flag |= RPC_ONEWAY
        self._assign_opaque(command)
        self._send(command)
        return True

    def close(self, reason: str) -> None:
        """Close for `reason`; further calls do nothing."""
        if not self.is_open:
            return
        self.is_open = False
        self.close_reason = reason
        self._output.clear()
        self._output_bytes = 0
        self._waiting.clear()
        self.backpressure.end()
        self._tasks.cancel()
        self._unanswered.fail(ConnectionClosed(f"connection to {self.remote.text} was closed: {reason}"))
        if self.transport is not None:
            self.transport.close()
            # Break the reference cycle, so that both are freed now and not at the next (rare) garbage collection.
            self.transport = None
        self.backpressure.share.leave()
        if self._on_close is not None:
            self._on_close(self)

    def _assign_opaque(self, command: RemotingCommand) -> int:
        opaque = self._next_opaque = (self._next_opaque + 1) & 0x7FFFFFFF
        command.opaque = opaque
        command.serialize_type = self.serialize_type
        if self._language is not None:
            command.language = self._language
        return opaque

    def _send(self, command: RemotingCommand) -> None:
        body = command.body
        if len(body) < APART_BYTES:
            frame = encode_with(command, body)
        else:
            frame = encode_with(command, len(body))
            self._output.append(frame)
            self._output_bytes += len(frame)
            frame = body
        self._output.append(frame)
        self._output_bytes += len(frame)
        if not self._marked:
            self._mark()

    def _mark(self) -> None:
        if not self._marked:
            self._marked = True
            self.turn.mark(self)

    def leave(self) -> None:
        """Let the peer know that the server stops, if the protocol has a way to say so."""

    def __repr__(self) -> str:
        state = "open" if self.is_open else f"closed: {self.close_reason}"
        return f"<Connection {self.remote.text} {state}>"
