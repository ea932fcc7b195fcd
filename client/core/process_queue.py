"""The window of messages of one queue that were pulled and not yet consumed (RocketMQ: ProcessQueue).

Holds each pulled message until it is consumed or sent back, and derives the offset to commit: everything before the
OLDEST message in the window is done, so a restarted consumer must begin with that one. Consumers may finish in any
order (`remove`), or take messages in order and settle them together (`take`, `settle`, `put_back`).

Owned by one consumer; one pull loop fills it, consuming tasks of the same trio thread empty it, so no call awaits and
none needs a lock. Bounded by the pull loop, which asks `is_full` before each pull. May not live here: waiting, clocks
(callers pass monotonic milliseconds), offsets that are already committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from triomq.protocol.message import MessageExt


class ProcessQueue:
    """Pulled messages of one queue. A dropped one (`drop`) no longer counts: its offsets must not be committed."""

    __slots__ = (
        "_messages",
        "_order",
        "_taken",
        "cached_bytes",
        "dropped",
        "last_consume_ms",
        "last_lock_ms",
        "last_pull_ms",
        "locked",
        "next_after_pulled",
        "started_ms",
    )

    def __init__(self, now_ms: int) -> None:
        self._messages: dict[int, MessageExt] = {}
        # Queue offsets in ascending order. Offsets removed out of order stay until they reach an end (lazy deletion).
        self._order: deque[int] = deque()
        self._taken: deque[int] = deque()
        self.cached_bytes = 0
        self.next_after_pulled = 0
        """Queue offset behind the last message that was ever put: the offset to commit when the window is empty."""
        self.dropped = False
        self.locked = False
        self.last_lock_ms = now_ms
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms
        self.started_ms: dict[int, int] = {}
        """Queue offset -> when its consuming began (ms), for the messages being consumed now."""

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, queue_offset: int) -> bool:
        return queue_offset in self._messages

    @property
    def oldest_offset(self) -> int | None:
        """Queue offset of the oldest message in the window."""
        for window in (self._taken, self._order):
            while window and window[0] not in self._messages:
                window.popleft()
            if window:
                return window[0]
        return None

    @property
    def newest_offset(self) -> int | None:
        """Queue offset of the newest message in the window."""
        for window in (self._order, self._taken):
            while window and window[-1] not in self._messages:
                window.pop()
            if window:
                return window[-1]
        return None

    @property
    def span(self) -> int:
        """Distance in queue offsets between the oldest and the newest message."""
        oldest, newest = self.oldest_offset, self.newest_offset
        return 0 if oldest is None or newest is None else newest - oldest

    @property
    def commit_offset(self) -> int | None:
        """The offset that may be committed now: that of the oldest message in the window, or the one behind the last;
        None before the first put."""
        oldest = self.oldest_offset
        if oldest is not None:
            return oldest
        return self.next_after_pulled or None

    def put(self, messages: Iterable[MessageExt]) -> list[MessageExt]:
        """Add the messages of one pull, in ascending queue offsets. Return those that are new, without repeated
        ones."""
        new: list[MessageExt] = []
        for message in messages:
            queue_offset = message.queue_offset
            if queue_offset < self.next_after_pulled:
                continue
            self.next_after_pulled = queue_offset + 1
            self._messages[queue_offset] = message
            self._order.append(queue_offset)
            self.cached_bytes += len(message.body)
            new.append(message)
        return new

    def remove(self, messages: Iterable[MessageExt]) -> int | None:
        """Remove messages that are consumed, in any order. Return the offset to commit (None before the first put)."""
        for message in messages:
            if self._messages.pop(message.queue_offset, None) is not None:
                self.cached_bytes -= len(message.body)
            self.started_ms.pop(message.queue_offset, None)
        return self.commit_offset

    def remove_one(self, message: MessageExt) -> int | None:
        """Remove one message that is consumed. Return the offset to commit, as `remove` does."""
        queue_offset = message.queue_offset
        if self._messages.pop(queue_offset, None) is not None:
            self.cached_bytes -= len(message.body)
        self.started_ms.pop(queue_offset, None)
        if self._messages and not self._taken:
            order = self._order
            while order[0] not in self._messages:
                order.popleft()
            return order[0]
        return self.commit_offset

    def put_again(self, messages: Sequence[MessageExt]) -> int | None:
        """Put removed messages back, which nobody has consumed. Return the offset to commit."""
        for message in messages:
            if message.queue_offset not in self._messages:
                self._messages[message.queue_offset] = message
                self.cached_bytes += len(message.body)
        self._order = deque(sorted(self._messages.keys() - set(self._taken)))
        return self.commit_offset

    def take(self, count: int) -> list[MessageExt]:
        """Return up to `count` of the oldest messages not taken yet, in order; they stay in the window until
        `settle`."""
        taken: list[MessageExt] = []
        while self._order and len(taken) < count:
            queue_offset = self._order.popleft()
            message = self._messages.get(queue_offset)
            if message is not None:
                self._taken.append(queue_offset)
                taken.append(message)
        return taken

    def settle(self) -> int | None:
        """Remove all taken messages, which are consumed. Return the offset to commit."""
        return self.remove([self._messages[at] for at in self._taken if at in self._messages])

    def put_back(self) -> None:
        """Return all taken messages to the window, to be taken again."""
        self._order.extendleft(reversed(self._taken))
        for queue_offset in self._taken:
            self.started_ms.pop(queue_offset, None)
        self._taken.clear()

    def clear(self) -> None:
        """Forget every message, without changing what was put."""
        self._messages.clear()
        self._order.clear()
        self._taken.clear()
        self.started_ms.clear()
        self.cached_bytes = 0

    def begin_anew(self) -> None:
        """Forget also what was put: other messages have the same queue offsets now."""
        self.clear()
        self.next_after_pulled = 0

    def drop(self) -> None:
        """Forget everything: the queue now belongs to another member, or its offset was reset. Nothing of it may be
        committed."""
        self.dropped = True
        self.clear()

    def is_full(self, max_count: int, max_bytes: int, max_span: int | None = None) -> str | None:
        """Return why no more may be pulled now: "count", "bytes" or "span"; None when there is room."""
        if len(self._messages) >= max_count:
            return "count"
        if self.cached_bytes >= max_bytes:
            return "bytes"
        if max_span is not None and self.span >= max_span:
            return "span"
        return None

    def overdue(self, now_ms: int, timeout_ms: int, at_most: int = 16) -> Sequence[MessageExt]:
        """Return the messages whose consuming began more than `timeout_ms` ago, oldest first."""
        late = [at for at, began in self.started_ms.items() if now_ms - began > timeout_ms and at in self._messages]
        return [self._messages[at] for at in sorted(late)[:at_most]]
