"""Receives that wait until one of their messages may be received (RocketMQ: PopLongPollingService).

They are held with the pulls (pulls/long_polling.py); here is what wakes them. The receives of a topic and a group stand
in one line. Its first one is woken when a message comes to a queue of the topic, or when one in flight is ready again,
and the next one if there is more:

    a queue grows (its watermark)          ┐                              ┌ found: it has its response
    the time of a message in flight comes  ├─> line is woken ─> `run`: ───┤ found nothing that its filter wants, or
    a receive leaves something behind      ┘        the first of the line └ waits for another queue: it waits on

Nothing is missed: after each wake `run` asks what is ready in all queues of the line, whatever has woken it, and then
the line waits for more than there is. Only the event loop touches any of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from math import inf
from typing import Final

import trio

from triomq.broker.pop.deliveries import Deliveries
from triomq.broker.pulls.long_polling import LongPolling, Parked
from triomq.protocol.clock import NowMs
from triomq.protocol.command import RemotingCommand
from triomq.protocol.headers.pop import NotificationRequestHeader, PopMessageRequestHeader
from triomq.remoting.connection import Connection
from triomq.store.reading.reading import Reading
from triomq.store.watermark import Waiter

IN_A_ROW: Final = 16
"""Receives that run again before other tasks do."""
STUCK_MS: Final = 1000
"""After this time `run` examines a line again of which nobody could take what seemed to be ready."""

LineKey = tuple[str, str]
"""Topic and group."""


class ParkedReceive(Parked):
    """A receive, or a notification, that waits. `queue_ids` are those of its topic that it wants."""

    __slots__ = ("header", "queue_ids")

    def __init__(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: PopMessageRequestHeader | NotificationRequestHeader,
        patience_end: float,
        queue_ids: Sequence[int],
        answer: Callable[[ParkedReceive], None],
    ) -> None:
        super().__init__(connection, request, patience_end, header.exp, answer)
        self.header = header
        self.queue_ids = queue_ids

    def again(self) -> ParkedReceive:
        """Return the same receive, to be held once more."""
        parts = self.connection, self.request, self.header, self.patience_end, self.queue_ids, self.answer
        receive = ParkedReceive(*parts)
        receive.waited_like(self)
        return receive


class _Line:
    """The receives of one topic and group, in the order in which they began to wait."""

    __slots__ = ("alarm_ms", "key", "receives", "watched")

    def __init__(self, key: LineKey) -> None:
        self.key = key
        self.receives: dict[ParkedReceive, None] = {}
        self.watched: dict[int, Waiter | None] = {}
        """Queue id, of those that receives of the line want -> what calls when the queue grows; None: it has grown."""
        self.alarm_ms: float = inf  # when to look at the line again (Unix ms), as far as it is known


class _Place:
    """The place of a receive in its line."""

    __slots__ = ("_line", "_receive", "_waiting")

    def __init__(self, waiting: Waiting, line: _Line, receive: ParkedReceive) -> None:
        self._waiting = waiting
        self._line = line
        self._receive = receive

    def cancel(self) -> None:
        self._waiting.left(self._line, self._receive)


class Waiting:
    """All lines."""

    def __init__(self, deliveries: Deliveries, reading: Reading, polling: LongPolling, now_ms: NowMs) -> None:
        self.deliveries = deliveries
        self.polling = polling
        self._reading = reading
        self._now_ms = now_ms
        self._lines: dict[LineKey, _Line] = {}
        self._woken: dict[LineKey, None] = {}
        self._alarms: list[tuple[float, LineKey]] = []
        self._to_run: list[ParkedReceive] = []
        self._sooner = trio.Event()

    def hold(self, receive: ParkedReceive) -> None:
        """Hold a receive until there may be something for it, or its client's patience ends."""
        key = receive.header.topic, receive.header.consumer_group
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(key)
        line.receives[receive] = None
        receive.waiter = _Place(self, line, receive)
        self._watch(line, receive.queue_ids)
        if self.deliveries.ready_count(*key, receive.queue_ids):
            self.wake(*key)  # it has looked at a part only of what there is
        self.polling.hold(receive, receive.patience_end)

    def left(self, line: _Line, receive: ParkedReceive) -> None:
        """Forget a receive that does not wait any more."""
        del line.receives[receive]
        if not line.receives:
            for waiter in line.watched.values():
                if waiter is not None:
                    waiter.cancel()
            del self._lines[line.key]

    def count(self, topic: str, group: str, queue_id: int) -> int:
        """Return how many receives of a topic and group wait that want this queue; -1: any."""
        line = self._lines.get((topic, group))
        if line is None:
            return 0
        return sum(queue_id < 0 or queue_id in receive.queue_ids for receive in line.receives)

    def wake(self, topic: str, group: str) -> None:
        """Look soon at a line: there may be something for it."""
        if (topic, group) in self._lines:
            self._woken[topic, group] = None
            self._sooner.set()

    def run_all(self) -> None:
        """Run all receives again soon, whether there is something for them or not."""
        self._to_run = [receive for line in self._lines.values() for receive in line.receives]
        self._sooner.set()

    def times_changed(self, topic: str, group: str) -> None:
        """Note that messages in flight are ready again at other times than before."""
        line = self._lines.get((topic, group))
        if line is not None:
            self._set_alarm(line, line.watched)

    def time_jumped(self, seconds: float) -> None:
        """Look at the clock once more: it jumped."""
        self._sooner.set()

    async def run(self) -> None:
        """Run woken receives again, until cancelled."""
        while True:
            self._sooner = trio.Event()
            await self._run_all()
            self._ring()
            while self._woken:
                key = next(iter(self._woken))
                del self._woken[key]
                await self._look_at(key)
            if not self._sooner.is_set():
                with trio.move_on_at(self._next_alarm()):
                    await self._sooner.wait()

    async def _run_all(self) -> None:
        receives, self._to_run = self._to_run, []
        for place, receive in enumerate(receives, 1):
            self.polling.run_again(receive)
            if place % IN_A_ROW == 0:
                await trio.lowlevel.checkpoint()

    async def _look_at(self, key: LineKey) -> None:
        """Run the receives of a line for which there is something, the first first, each at most once."""
        line = self._lines.get(key)
        if line is None:
            return
        ready = before = self._ready_of(line, list(line.watched))
        runs = 0
        for receive in list(line.receives):
            if not ready:
                break
            if receive in line.receives and not ready.keys().isdisjoint(receive.queue_ids):
                self.polling.run_again(receive)
                ready = self._ready_of(line, list(ready))
                runs += 1
                if runs % IN_A_ROW == 0:
                    await trio.lowlevel.checkpoint()
        line = self._lines.get(key)
        if line is None:
            return
        self._unwatch(line)
        for queue_id in line.watched:
            self._watch_queue(line, queue_id)
        ready = self._ready_of(line, line.watched)
        if any(before.get(queue_id) != next_offset for queue_id, next_offset in ready.items()):
            self.wake(*key)  # they took something, or passed over it, and there is more
        elif ready:  # nobody could take it, for now
            self._set_alarm_at(line, float(self._now_ms() + STUCK_MS))
        self._set_alarm(line, line.watched.keys() - ready.keys())

    def _ready_of(self, line: _Line, queue_ids: Iterable[int]) -> dict[int, int]:
        """Return those of the queues that have something ready, with the offset of the next new message."""
        topic, group = line.key
        found: dict[int, int] = {}
        for queue_id in queue_ids:
            if self.deliveries.ready_count(topic, group, (queue_id,)):
                found[queue_id] = self.deliveries.next_offset(topic, group, queue_id)
        return found

    # -- what wakes ----------------------------------------------------------------------------------------------------

    def _watch(self, line: _Line, queue_ids: Iterable[int]) -> None:
        """Have the line woken when these queues grow, and when a message in flight is ready again."""
        for queue_id in queue_ids:
            self._watch_queue(line, queue_id)
        self._set_alarm(line, line.watched)

    def _unwatch(self, line: _Line) -> None:
        """Watch no queues that only receives wanted that have left: what is ready there would wake the line for
        nothing."""
        wanted = {queue_id for queue_ids in {each.queue_ids for each in line.receives} for queue_id in queue_ids}
        for queue_id in line.watched.keys() - wanted:
            waiter = line.watched.pop(queue_id)
            if waiter is not None:
                waiter.cancel()

    def _watch_queue(self, line: _Line, queue_id: int) -> None:
        if line.watched.get(queue_id) is not None:
            return
        topic, group = line.key

        def grown(error: Exception | None) -> None:
            line.watched[queue_id] = None
            self.wake(topic, group)

        line.watched[queue_id] = None
        end = self._reading.queue_end(topic, queue_id)
        if end.error is None:  # otherwise the store has failed
            line.watched[queue_id] = end.call_beyond(end.value, grown)

    def _set_alarm(self, line: _Line, queue_ids: Iterable[int]) -> None:
        upcoming = self.deliveries.next_visible_ms(*line.key, queue_ids)
        if upcoming is not None:
            self._set_alarm_at(line, float(upcoming))

    def _set_alarm_at(self, line: _Line, at_ms: float) -> None:
        if at_ms < line.alarm_ms:
            line.alarm_ms = at_ms
            heappush(self._alarms, (at_ms, line.key))
            self._sooner.set()

    def _ring(self) -> None:
        """Wake the lines whose alarms have come."""
        now_ms = self._now_ms()
        while self._alarms and self._alarms[0][0] <= now_ms:
            alarm_ms, key = heappop(self._alarms)
            line = self._lines.get(key)
            if line is not None and line.alarm_ms <= alarm_ms:
                line.alarm_ms = inf
                self._woken[key] = None

    def _next_alarm(self) -> float:
        """Return when the next alarm rings (trio's time)."""
        if not self._alarms:
            return inf
        return trio.current_time() + max(self._alarms[0][0] - self._now_ms(), 1) / 1000
