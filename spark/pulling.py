"""Reading a range of one queue: several pulls in flight, records in order.

A broker returns at most 32 messages or 256 KiB per pull, so sequential pulls would leave the connection idle most of
the time. Without a filter the next offsets are known in advance: the range is cut into steps, `depth` of them are in
flight, and a step that comes back short is requested again from where it ended. With a filter only the response says
where to continue, so there is one pull at a time.

While a range is read, retention may delete its beginning, a crashed broker may lose its end, and the broker may be away
for a while. The first two raise DataLost or are skipped, as the caller chooses; the third is waited out as long as
`Cluster` allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from triomq.client.core.requests import PULL_STATUS
from triomq.client.core.results import PullStatus
from triomq.protocol import sys_flag
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.subscription import SUB_ALL, TAG
from triomq.spark.cluster import CONNECTION_ERRORS, Cluster, refused
from triomq.spark.connection import CommandConnection
from triomq.spark.errors import DataLost

END_GRACE_SECONDS: Final = 10.0
"""How long a queue may be shorter than the range before the rest counts as lost. A restarting broker already serves
requests while it rebuilds its queues."""


@dataclass(frozen=True, slots=True)
class Pull:
    """How to pull. `count`: messages per pull; `depth`: pulls in flight; `max_rate`: offsets a second, 0 for no
    limit."""

    group: str
    expression: str = SUB_ALL
    expression_type: str = TAG
    count: int = 32
    depth: int = 8
    fail_on_data_loss: bool = True
    max_rate: int = 0

    @property
    def is_filtered(self) -> bool:
        return self.expression != SUB_ALL


class QueueRange:
    """The offsets [begin, end) of one queue. `next_offset`: where the records yielded so far end."""

    def __init__(self, cluster: Cluster, queue: MessageQueue, begin: int, end: int, pull: Pull) -> None:
        self._cluster = cluster
        self._queue = queue
        self._end = end
        self._pull = pull
        self._span = pull.count
        self._asked: deque[tuple[int, int, int]] = deque()  # request number, begin and end of each step in flight
        self._ask_from = begin
        self._redo: tuple[int, int] | None = None
        self._ended_early_at: float | None = None
        self.next_offset = begin

    def close(self) -> None:
        """Stop early: drop the connection with the responses that are still in flight."""
        if self._asked:
            self._cluster.drop(self._cluster.address(self._queue.topic, self._queue.broker_name))
            self._start_again()

    def bodies(self) -> Iterator[tuple[bytes, int, int]]:
        """Yield runs of encoded records in order, each with the offsets [begin, end) that belong to the range; a run
        may hold records outside of them. Raises DataLost, BrokerError."""
        what = f"reading {self._queue.topic}/{self._queue.broker_name}/{self._queue.queue_id}"
        first, started = self.next_offset, self._cluster.clock()
        while self.next_offset < self._end:
            response, begin, end = self._cluster.until_done(what, self._next_response)
            piece = self._judge(response, begin, end)
            if piece is not None:
                yield piece
            if self._pull.max_rate:
                self._cluster.pause(started + (self.next_offset - first) / self._pull.max_rate - self._cluster.clock())

    def _next_response(self) -> tuple[RemotingCommand, int, int]:
        """Return the response to the oldest step and keep later steps in flight."""
        address = self._cluster.address(self._queue.topic, self._queue.broker_name)
        try:
            connection = self._cluster.connection(address)
            self._ask(connection)
            number, begin, end = self._asked[0]
            response = connection.receive(number)
        except CONNECTION_ERRORS:
            self._start_again()
            self._cluster.drop(address)
            raise
        self._asked.popleft()
        if response.code not in PULL_STATUS:  # the responses in flight go with the connection
            self._start_again()
            self._cluster.drop(address)
            raise refused(response, address, f"pulling from {self._queue.topic} queue {self._queue.queue_id}")
        return response, begin, end

    def _start_again(self) -> None:
        """Forget the steps in flight; the caller drops the connection."""
        self._asked.clear()
        self._redo = None
        self._ask_from = self.next_offset

    def _ask(self, connection: CommandConnection) -> None:
        if self._redo is not None:
            begin, end = self._redo
            self._asked.appendleft((connection.send(self._request(begin, end))[0], begin, end))
            self._redo = None
        depth = 1 if self._pull.is_filtered else self._pull.depth
        if 2 * len(self._asked) > depth:
            return  # several requests in one write cost little more than one
        steps: list[tuple[int, int]] = []
        while len(self._asked) + len(steps) < depth and self._ask_from < self._end:
            step_end = self._end if self._pull.is_filtered else min(self._ask_from + self._span, self._end)
            steps.append((self._ask_from, step_end))
            self._ask_from = step_end
        numbers = connection.send(*[self._request(begin, end) for begin, end in steps]) if steps else []
        self._asked.extend((number, begin, end) for number, (begin, end) in zip(numbers, steps, strict=True))

    def _request(self, begin: int, end: int) -> RemotingCommand:
        header = PullMessageRequestHeader(
            consumer_group=self._pull.group,
            topic=self._queue.topic,
            queue_id=self._queue.queue_id,
            queue_offset=begin,
            max_msg_nums=min(end - begin, self._pull.count),
            sys_flag=sys_flag.PULL_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=self._pull.expression,
            sub_version=0,
            expression_type=self._pull.expression_type,
        )
        return new_request(RequestCode.PULL_MESSAGE, header)

    def _judge(self, response: RemotingCommand, begin: int, end: int) -> tuple[bytes, int, int] | None:
        """Return the run of records in a response, if any; advance `next_offset`, and note what a step still lacks."""
        status = PULL_STATUS[response.code]
        header = response.header(PullMessageResponseHeader)
        reached = header.next_begin_offset
        if status is PullStatus.FOUND:
            self._ended_early_at = None
            if not self._pull.is_filtered and reached < end:
                self._span = max(min(self._span, reached - begin), 1)
            self._go_on(reached, end)
            return response.body, begin, min(reached, end)
        if begin < header.min_offset:
            self._lost(begin, min(header.min_offset, self._end), "deleted before they were read")
            self._go_on(header.min_offset, end)
        elif status is PullStatus.NO_MATCHED_MSG and reached > begin:
            if not self._pull.is_filtered:
                self._lost(begin, min(reached, self._end), "not readable any more")
            self._go_on(reached, end)
        else:
            self._wait_for_the_end(begin, end, header.max_offset)
        return None

    def _go_on(self, reached: int, step_end: int) -> None:
        self.next_offset = max(self.next_offset, reached)
        if reached < step_end:
            self._redo = (reached, step_end)

    def _wait_for_the_end(self, begin: int, step_end: int, max_offset: int) -> None:
        """The queue is shorter than the range: give a restarting broker some time, then count the rest as lost."""
        now = self._cluster.clock()
        if self._ended_early_at is None:
            self._ended_early_at = now
        if now - self._ended_early_at > END_GRACE_SECONDS:
            self._lost(begin, self._end, f"gone: the queue ends at {max_offset}")
            self.next_offset = self._end
        else:
            self._redo = (begin, step_end)
            self._cluster.pause()

    def _lost(self, begin: int, end: int, why: str) -> None:
        if self._pull.fail_on_data_loss:
            queue = self._queue
            raise DataLost(f"offsets {begin} to {end} of {queue.topic}/{queue.broker_name}/{queue.queue_id} are {why}")
