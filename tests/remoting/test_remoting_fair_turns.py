"""Sends go before pulls: a consumer that catches up leaves producers the greater part of the loop, and loses little."""

from __future__ import annotations

from math import inf

import pytest
import trio
import trio.testing
from test_remoting_waiting import HERE, Link
from trio.testing import MockClock

from triomq.protocol.address import HostPort
from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.frame import encode_frame
from triomq.remoting.connection import Connection
from triomq.remoting.connection_settings import ConnectionSettings
from triomq.remoting.memory import MemoryBudget
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.scheduling.policy import (
    BULK,
    CONTENDED_SECONDS,
    INTERACTIVE,
    READ_AHEAD_BYTES,
    READ_AHEAD_REQUESTS,
)
from triomq.remoting.turn import Turn

SEND, PULL = 10, 11
SEND_SECONDS, PULL_SECONDS = 0.00002, 0.00005


class Bench:
    """A broker's loop on a virtual clock, on which each request takes its time."""

    def __init__(self, nursery: trio.Nursery, clock: MockClock) -> None:
        self.nursery = nursery
        self.clock = clock
        self.turn = Turn()
        self.table = ProcessorTable()
        self.table.register(SEND, self.process, work=INTERACTIVE)
        self.table.register(PULL, self.process, work=BULK)
        self.memory = MemoryBudget(1 << 30)
        self.pull_seconds = PULL_SECONDS
        self.response_bytes = 0
        self.handled: list[int] = []
        self.ages: list[float] = []
        nursery.start_soon(self.turn.run)

    def process(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        self.handled.append(request.code)
        self.ages.append(trio.current_time() - self.turn.arrived)
        self.clock.jump(SEND_SECONDS if request.code == SEND else self.pull_seconds)
        return new_response(request, body=bytes(self.response_bytes))

    def connect(self) -> Link:
        settings = ConnectionSettings(1 << 24, 3, memory=self.memory)
        connection = Connection(self.table, self.turn, self.nursery, HostPort("127.0.0.1", 1), HERE, settings)
        connection.transport = link = Link(connection)
        return link

    def read(self, *reads: tuple[Link, bytes]) -> None:
        """One turn of a driver."""
        self.turn.begin()
        for link, data in reads:
            link.connection.receive(data)
        self.turn.end()

    def slice(self) -> None:
        """The turn that Turn.run takes next."""
        self.turn.run_slice()
        self.turn.end()

    def count(self, code: int) -> int:
        return self.handled.count(code)


def requests(code: int, count: int) -> bytes:
    return encode_frame(new_request(code)) * count


@pytest.fixture
async def bench(nursery: trio.Nursery, mock_clock: MockClock) -> Bench:
    """Each test names the clock itself, too: that makes it the clock of its run."""
    made = Bench(nursery, mock_clock)
    await trio.testing.wait_all_tasks_blocked()
    return made


async def test_producers_keep_most_of_their_rate_while_a_consumer_catches_up(
    bench: Bench, mock_clock: MockClock
) -> None:
    """32 producers send again as soon as they have their responses; 1,000 pulls are in flight all the time."""
    producers, consumer = bench.connect(), bench.connect()
    bench.read((producers, requests(SEND, 32)), (consumer, requests(PULL, 1000)))
    began, sends, pulls = trio.current_time(), bench.count(SEND), bench.count(PULL)
    answered = pulls
    for _ in range(200):
        again = bench.count(PULL) - answered
        answered += again
        bench.read((consumer, requests(PULL, again)), (producers, requests(SEND, 32)))
        bench.slice()
    seconds = trio.current_time() - began
    rate = (bench.count(SEND) - sends) / seconds
    assert rate > 0.7 / SEND_SECONDS
    assert (bench.count(PULL) - pulls) * PULL_SECONDS > 0.15 * seconds, "and the consumer gets on"


async def test_a_send_behind_pulls_of_its_own_connection_overtakes_them(bench: Bench, mock_clock: MockClock) -> None:
    link = bench.connect()
    bench.read((link, requests(SEND, 1)))
    bench.read((link, requests(SEND, 1) + requests(PULL, 5) + requests(SEND, 2)))
    assert bench.handled == [SEND] * 4
    assert link.is_read
    await trio.testing.wait_all_tasks_blocked()
    assert bench.handled == [SEND] * 4 + [PULL] * 5


async def test_without_sends_pulls_are_handled_at_once_up_to_a_slice(bench: Bench, mock_clock: MockClock) -> None:
    link = bench.connect()
    fits = round(BULK.quota_seconds / PULL_SECONDS)
    bench.read((link, requests(PULL, 3 * fits)))
    assert fits <= len(bench.handled) <= fits + 2
    await trio.testing.wait_all_tasks_blocked()
    assert len(bench.handled) == 3 * fits


async def test_a_slice_is_a_part_of_the_time_that_sends_took(bench: Bench, mock_clock: MockClock) -> None:
    producers, consumer = bench.connect(), bench.connect()
    bench.read((producers, requests(SEND, 1)), (consumer, requests(PULL, 900)))
    for count, share in ((100, BULK.share * 100 * SEND_SECONDS), (1, BULK.least_seconds)):
        bench.slice()
        before = bench.count(PULL)
        bench.read((producers, requests(SEND, count)))
        bench.slice()
        handled = bench.count(PULL) - before
        assert share <= handled * PULL_SECONDS <= share + 2 * PULL_SECONDS


async def test_a_while_after_the_last_send_pulls_need_not_wait_any_more(bench: Bench, mock_clock: MockClock) -> None:
    link = bench.connect()
    bench.read((link, requests(SEND, 1)))
    bench.clock.jump(0.9 * CONTENDED_SECONDS)
    bench.read((link, requests(PULL, 2)))
    assert bench.count(PULL) == 1
    await trio.testing.wait_all_tasks_blocked()
    bench.clock.jump(0.2 * CONTENDED_SECONDS)
    bench.read((link, requests(PULL, 2)))
    assert bench.count(PULL) == 4


async def test_while_sends_arrive_the_first_pull_of_a_turn_need_not_wait(bench: Bench, mock_clock: MockClock) -> None:
    """A consumer that has got a message asks for the next one; a slice for that would cost another pass of the loop."""
    producer, consumers = bench.connect(), [bench.connect() for _ in range(2)]
    for number in range(1, 4):
        bench.read((producer, requests(SEND, 1)))
        bench.read((consumers[0], requests(PULL, 1)))
        assert bench.count(PULL) == number
    bench.read(*[(consumer, requests(PULL, 1)) for consumer in consumers])
    assert bench.count(PULL) == 4, "one in a turn"
    bench.read((consumers[0], requests(PULL, 1)))
    assert bench.count(PULL) == 4, "none overtakes those that wait"
    bench.slice()
    bench.read((producer, requests(SEND, 1)), (consumers[0], requests(PULL, 1)))
    assert bench.count(PULL) == 6, "none makes a send of its turn wait"


async def test_a_pull_that_need_not_wait_is_a_slice(bench: Bench, mock_clock: MockClock) -> None:
    """The time that sends took before it does not count for the next slice."""
    producers, consumer = bench.connect(), bench.connect()
    bench.read((producers, requests(SEND, 1000)))
    bench.read((consumer, requests(PULL, 900)))
    before = bench.count(PULL)
    bench.slice()
    assert BULK.least_seconds <= (bench.count(PULL) - before) * PULL_SECONDS <= BULK.least_seconds + 2 * PULL_SECONDS


async def test_a_socket_is_not_read_while_very_many_pulls_wait(bench: Bench, mock_clock: MockClock) -> None:
    link = bench.connect()
    bench.read((link, requests(SEND, 1)))
    bench.read((link, requests(SEND, 1) + requests(PULL, READ_AHEAD_REQUESTS - 1)))
    assert link.is_read
    bench.read((link, requests(PULL, 1)))
    assert not link.is_read
    read_at = 0
    while not read_at:
        bench.slice()
        if link.is_read:
            read_at = READ_AHEAD_REQUESTS - bench.count(PULL)
    assert 0.4 * READ_AHEAD_REQUESTS < read_at < 0.5 * READ_AHEAD_REQUESTS


@pytest.mark.parametrize("is_body", [True, False])
async def test_a_socket_is_not_read_while_long_pulls_wait(bench: Bench, mock_clock: MockClock, is_body: bool) -> None:
    """Their bodies count, and so do the fields of their headers."""
    length = READ_AHEAD_BYTES // 4
    long = new_request(PULL, body=bytes(length)) if is_body else new_request(PULL, ext_fields={"f": "x" * length})
    producer, link = bench.connect(), bench.connect()
    bench.read((producer, requests(SEND, 1)))
    for number in range(4):
        assert link.is_read
        assert bench.memory.held_bytes >= number * length
        bench.read((producer, requests(SEND, 1)), (link, encode_frame(long)))
    assert not link.is_read
    assert READ_AHEAD_BYTES <= bench.memory.held_bytes < 1.1 * READ_AHEAD_BYTES
    await trio.testing.wait_all_tasks_blocked()
    assert link.is_read
    assert (bench.count(PULL), bench.memory.held_bytes) == (4, 0)


async def test_a_slice_while_sends_arrive_has_few_bytes_of_responses(bench: Bench, mock_clock: MockClock) -> None:
    """To send them takes time after the slice, so a slice that is short by the clock may still be long."""
    bench.pull_seconds = 0
    bench.response_bytes = BULK.contended_bytes // 4
    producers, consumers = bench.connect(), [bench.connect() for _ in range(3)]
    bench.read((producers, requests(SEND, 1)), *[(consumer, requests(PULL, 100)) for consumer in consumers])
    written = sum(len(consumer.written) for consumer in consumers)
    for _ in range(3):
        bench.slice()
        now = sum(len(consumer.written) for consumer in consumers)
        assert BULK.contended_bytes // 2 < now - written <= BULK.contended_bytes
        written = now
    mock_clock.jump(2 * CONTENDED_SECONDS)
    bench.slice()
    now = sum(len(consumer.written) for consumer in consumers)
    assert BULK.quota_bytes - BULK.contended_bytes < now - written <= BULK.quota_bytes


@pytest.mark.parametrize("connections", [1, 3])
async def test_a_slice_while_sends_arrive_has_one_response_if_two_are_too_many_bytes(
    bench: Bench, mock_clock: MockClock, connections: int
) -> None:
    """A producer waits until one long response is read, joined and sent, not two; and each consumer has its turn."""
    bench.pull_seconds = 0
    bench.response_bytes = BULK.contended_bytes * 3 // 4
    producer, consumers = bench.connect(), [bench.connect() for _ in range(connections)]
    bench.read((producer, requests(SEND, 1)))
    bench.read((producer, requests(SEND, 1)), *[(consumer, requests(PULL, 100)) for consumer in consumers])
    for number in range(1, 3 * connections + 1):
        bench.slice()
        assert bench.count(PULL) == number
    assert {len(consumer.written) // bench.response_bytes for consumer in consumers} == {3}


async def test_a_response_that_is_too_long_for_a_slice_is_a_slice(bench: Bench, mock_clock: MockClock) -> None:
    bench.pull_seconds = 0
    bench.response_bytes = 2 * BULK.contended_bytes
    producer, consumer = bench.connect(), bench.connect()
    bench.read((producer, requests(SEND, 1)))
    bench.read((producer, requests(SEND, 1)), (consumer, requests(PULL, 4)))
    for number in range(1, 5):
        bench.slice()
        assert bench.count(PULL) == number


async def test_what_the_last_slice_responded_does_not_shorten_the_next(bench: Bench, mock_clock: MockClock) -> None:
    bench.pull_seconds = 0
    bench.response_bytes = BULK.contended_bytes * 3 // 4
    producer, consumer = bench.connect(), bench.connect()
    bench.read((producer, requests(SEND, 1)))
    bench.read((producer, requests(SEND, 1)), (consumer, requests(PULL, 9)))
    bench.slice()
    assert bench.count(PULL) == 1
    bench.response_bytes = BULK.contended_bytes // 16
    bench.slice()
    assert bench.count(PULL) == 9


async def test_pulls_do_not_age_while_they_wait_for_their_slices(bench: Bench, mock_clock: MockClock) -> None:
    link = bench.connect()
    bench.read((link, requests(SEND, 1)))
    bench.read((link, requests(PULL, 900)))
    await trio.testing.wait_all_tasks_blocked()
    assert bench.count(PULL) == 900
    assert max(bench.ages) < 2 * BULK.quota_seconds


async def test_a_turn_without_limit_has_no_slices(bench: Bench, mock_clock: MockClock) -> None:
    link = bench.connect()
    bench.turn.scheduler.turn_seconds = inf
    bench.read((link, requests(SEND, 1) + requests(PULL, 900)))
    assert bench.count(PULL) == 900
