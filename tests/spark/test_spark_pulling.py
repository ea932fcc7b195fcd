"""Pulling a range: pipelined, with short responses, deleted beginnings, lost ends and broken connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_records import encoded

from triomq.protocol import record
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.errors import DataLost
from triomq.spark.pulling import Pull, QueueRange
from triomq.spark.time_search import first_at_or_after

QUEUE = MessageQueue("T", "b", 0)


class FakeConnection:
    """A broker with one queue [first, end). `answer_sizes`: the number of messages for each pull (later ones get all
    that they request); `breaks_at`: numbers of requests that get no response.
    """

    def __init__(self, first: int, end: int, answer_sizes: list[int], breaks_at: set[int]) -> None:
        self.first = first
        self.end = end
        self.answer_sizes = answer_sizes
        self.breaks_at = breaks_at
        self.requests: dict[int, RemotingCommand] = {}
        self.asked = 0
        self.writes = 0
        self.most_under_way = 0

    def send(self, *requests: RemotingCommand) -> list[int]:
        numbers = []
        self.writes += 1
        for request in requests:
            self.asked += 1
            self.requests[self.asked] = request
            numbers.append(self.asked)
        self.most_under_way = max(self.most_under_way, len(self.requests))
        return numbers

    def receive(self, number: int) -> RemotingCommand:
        request = self.requests.pop(number)
        if number in self.breaks_at:
            raise ConnectionError("broken")
        header = request.header(PullMessageRequestHeader)
        begin = header.queue_offset
        code, reached, body = int(ResponseCode.SUCCESS), begin, b""
        if begin < self.first:
            code, reached = int(ResponseCode.PULL_OFFSET_MOVED), self.first
        elif begin >= self.end:
            code = int(ResponseCode.PULL_NOT_FOUND if begin == self.end else ResponseCode.PULL_OFFSET_MOVED)
            reached = self.end
        else:
            limit = self.answer_sizes.pop(0) if self.answer_sizes else header.max_msg_nums
            reached = min(begin + min(limit, header.max_msg_nums), self.end)
            body = b"".join(stored(offset) for offset in range(begin, reached))
        answer = PullMessageResponseHeader(
            suggest_which_broker_id=0, next_begin_offset=reached, min_offset=self.first, max_offset=self.end
        )
        return new_response(request, code, header=answer, body=body)


class FakeCluster:
    def __init__(self, connection: FakeConnection) -> None:
        self.only = connection
        self.dropped = 0
        self.paused = 0
        self.pauses: list[float] = []
        self.clock: Callable[[], float] = lambda: 5.0

    def address(self, topic: str, broker_name: str) -> str:
        return "b:1"

    def connection(self, address: str) -> FakeConnection:
        return self.only

    def drop(self, address: str) -> None:
        self.dropped += 1
        self.only.requests.clear()

    def pause(self, seconds: float = 0) -> None:
        self.paused += 1
        self.pauses.append(seconds)

    def until_done(self, action: str, attempt: Callable[[], Any]) -> Any:
        while True:
            try:
                return attempt()
            except ConnectionError:
                pass


def stored(queue_offset: int) -> bytes:
    tail = encoded(b"T", b"x", queue_offset=queue_offset, store_timestamp=1000 + queue_offset)
    return bytes(tail)


def read(cluster: FakeCluster, begin: int, end: int, **options: Any) -> list[int]:
    found = []
    for body, low, high in QueueRange(cluster, QUEUE, begin, end, Pull("g", **options)).bodies():  # type: ignore[arg-type]
        at = 0
        while at < len(body):
            fields = record.read_fields(body, at, len(body))
            at += fields.size_bytes
            if low <= fields.queue_offset < high:
                found.append(fields.queue_offset)
    return found


@given(
    st.integers(0, 200),
    st.integers(0, 200),
    st.lists(st.integers(1, 40), max_size=30),
    st.integers(1, 10),
    st.sets(st.integers(1, 40), max_size=6),
)
def test_every_offset_once_and_in_order(begin: int, count: int, sizes: list[int], depth: int, breaks: set[int]) -> None:
    cluster = FakeCluster(FakeConnection(0, 1000, sizes, breaks))
    assert read(cluster, begin, begin + count, depth=depth) == list(range(begin, begin + count))


def test_several_pulls_are_under_way_at_a_time() -> None:
    connection = FakeConnection(0, 1000, [], set())
    read(FakeCluster(connection), 0, 640, depth=8)
    assert connection.most_under_way == 8
    assert connection.asked == 20
    assert connection.writes == 1 + 3  # eight, then four when half of them have arrived


def test_a_rate_limit_pauses_behind_each_answer() -> None:
    cluster = FakeCluster(FakeConnection(0, 1000, [], set()))
    assert read(cluster, 100, 196, max_rate=320) == list(range(100, 196))
    assert cluster.pauses == pytest.approx([0.1, 0.2, 0.3])


def test_a_deleted_beginning_is_data_loss_or_skipped() -> None:
    with pytest.raises(DataLost, match=r"offsets 5 to 40 of T/b/0 are deleted before they were read.*failOnDataLoss"):
        read(FakeCluster(FakeConnection(40, 100, [], set())), 5, 90)
    cluster = FakeCluster(FakeConnection(40, 100, [], set()))
    assert read(cluster, 5, 90, fail_on_data_loss=False) == list(range(40, 90))


def test_a_lost_end_is_waited_for_then_data_loss() -> None:
    def running(cluster: FakeCluster) -> FakeCluster:
        times = iter(range(0, 100, 4))
        cluster.clock = lambda: next(times)
        return cluster

    cluster = running(FakeCluster(FakeConnection(0, 50, [], set())))
    with pytest.raises(DataLost, match="gone: the queue ends at 50"):
        read(cluster, 0, 80)
    assert cluster.paused > 1
    cluster = running(FakeCluster(FakeConnection(0, 50, [], set())))
    assert read(cluster, 0, 80, fail_on_data_loss=False) == list(range(50))


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(-5, 60), st.integers(0, 60))
def test_time_search_finds_the_first_at_or_after(times: list[int], wanted: int, hint: int) -> None:
    times.sort()
    looked_at = []

    def store_time_at(offset: int) -> int:
        looked_at.append(offset)
        return times[offset]

    expected = next((at for at, time in enumerate(times) if time >= wanted), len(times))
    assert first_at_or_after(wanted, 0, len(times), hint, store_time_at) == expected
    assert len(looked_at) <= 14
