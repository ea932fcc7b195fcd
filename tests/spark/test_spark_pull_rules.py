"""Reading a range of a queue, response by response: the effect of each code, and the requests in flight meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from triomq.client.core.retry import NOT_READY
from triomq.protocol import sys_flag
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.errors import BrokerError, DataLost
from triomq.spark.pulling import END_GRACE_SECONDS, Pull, QueueRange

QUEUE = MessageQueue("T", "b", 3)
FOUND, NOTHING, NO_MATCH, MOVED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


@dataclass
class Reply:
    """`reached`: where to continue; `first` and `end`: the bounds of the queue."""

    code: int
    reached: int = 0
    first: int = 0
    end: int = 1000


@dataclass
class Script:
    """A cluster of one broker that returns these replies in the order of the pulls. Time passes in pauses."""

    replies: list[Reply]
    requests: list[PullMessageRequestHeader] = field(default_factory=list)
    in_flight: dict[int, RemotingCommand] = field(default_factory=dict)
    most_in_flight: int = 0
    drops: int = 0
    seconds: float = 0.0

    def clock(self) -> float:
        return self.seconds

    def pause(self, seconds: float = 0.5) -> None:
        self.seconds += max(seconds, 0.0)

    def address(self, topic: str, broker_name: str) -> str:
        return "b:1"

    def connection(self, address: str) -> Script:
        return self

    def drop(self, address: str) -> None:
        self.drops += 1
        self.in_flight.clear()

    def until_done(self, action: str, attempt: Callable[[], Any]) -> Any:
        while True:
            try:
                return attempt()
            except BrokerError as error:
                if error.code not in NOT_READY:
                    raise
                self.pause()

    def send(self, *requests: RemotingCommand) -> list[int]:
        numbers = []
        for request in requests:
            self.requests.append(request.header(PullMessageRequestHeader))
            numbers.append(len(self.requests))
            self.in_flight[numbers[-1]] = request
        self.most_in_flight = max(self.most_in_flight, len(self.in_flight))
        return numbers

    def receive(self, number: int) -> RemotingCommand:
        request = self.in_flight.pop(number)
        reply = self.replies.pop(0)
        if reply.code not in (FOUND, NOTHING, NO_MATCH, MOVED):
            return new_response(request, reply.code, "no")
        header = PullMessageResponseHeader(
            suggest_which_broker_id=0, next_begin_offset=reply.reached, min_offset=reply.first, max_offset=reply.end
        )
        return new_response(request, reply.code, header=header, body=b"x" if reply.code == FOUND else b"")

    def asked(self) -> list[tuple[int, int]]:
        """Return first offset and number of messages of each pull."""
        return [(header.queue_offset, header.max_msg_nums) for header in self.requests]


def pieces(script: Script, begin: int, end: int, **options: Any) -> list[tuple[int, int]]:
    """Return the offsets of each run of records that a read of [begin, end) yields."""
    found = QueueRange(script, QUEUE, begin, end, Pull("g", **options)).bodies()  # type: ignore[arg-type]
    return [(low, high) for _, low, high in found]


def test_a_pull_asks_for_what_is_there_and_is_never_held() -> None:
    script = Script([Reply(FOUND, 7)])
    assert pieces(script, 5, 7, expression="a || b") == [(5, 7)]
    [header] = script.requests
    assert (header.consumer_group, header.topic, header.queue_id) == ("g", "T", 3)
    assert (header.sys_flag, header.suspend_timeout_millis) == (sys_flag.PULL_SUBSCRIPTION, 0)
    assert (header.subscription, header.expression_type) == ("a || b", "TAG")


def test_with_a_filter_one_pull_is_in_flight_and_a_gap_is_no_loss() -> None:
    script = Script([Reply(NO_MATCH, 40), Reply(FOUND, 90), Reply(NO_MATCH, 100)])
    assert pieces(script, 0, 100, expression="a", depth=8) == [(40, 90)]
    assert script.asked() == [(0, 32), (40, 32), (90, 10)]
    assert script.most_in_flight == 1


def test_without_a_filter_a_gap_is_data_loss_or_skipped() -> None:
    with pytest.raises(DataLost, match="offsets 0 to 40 of T/b/3 are not readable any more"):
        pieces(Script([Reply(NO_MATCH, 40)]), 0, 64, depth=1, count=64)
    script = Script([Reply(NO_MATCH, 40), Reply(FOUND, 64)])
    assert pieces(script, 0, 64, depth=1, count=64, fail_on_data_loss=False) == [(40, 64)]


def test_a_response_that_leads_nowhere_is_waited_out() -> None:
    """The broker has no record yet where its queue has an entry."""
    script = Script([Reply(NO_MATCH, 0), Reply(NO_MATCH, 0), Reply(FOUND, 10)])
    assert pieces(script, 0, 10, depth=1) == [(0, 10)]
    assert script.seconds == 1.0


def test_a_queue_that_is_too_short_may_catch_up_for_ten_seconds() -> None:
    patience = int(END_GRACE_SECONDS / 0.5)
    script = Script([Reply(NOTHING, 4, end=4)] * patience + [Reply(FOUND, 10)])
    assert pieces(script, 4, 10, depth=1) == [(4, 10)]
    script = Script([Reply(NOTHING, 4, end=4)] * (patience + 9))
    with pytest.raises(DataLost, match="offsets 4 to 10 of T/b/3 are gone: the queue ends at 4"):
        pieces(script, 4, 10, depth=1)
    assert script.seconds == pytest.approx(END_GRACE_SECONDS, abs=1)


def test_the_patience_begins_anew_with_each_record() -> None:
    waits = [Reply(NOTHING, 0, end=0)] * 15
    script = Script([*waits, Reply(FOUND, 5), *waits, Reply(FOUND, 10)])
    assert pieces(script, 0, 10, depth=1) == [(0, 5), (5, 10)]
    assert script.seconds == 15.0


@pytest.mark.parametrize("code", sorted(NOT_READY))
def test_a_busy_broker_is_asked_again_on_a_new_connection(code: int) -> None:
    script = Script([Reply(code), Reply(FOUND, 32), Reply(FOUND, 64)])
    assert pieces(script, 0, 64, depth=2) == [(0, 32), (32, 64)]
    assert script.drops == 1, "the responses in flight are not read"
    assert script.asked() == [(0, 32), (32, 32), (0, 32), (32, 32)]


@pytest.mark.parametrize("code", [ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR, ResponseCode.TOPIC_NOT_EXIST])
def test_any_other_refusal_ends_the_read(code: ResponseCode) -> None:
    with pytest.raises(BrokerError, match=f"pulling from T queue 3 at b:1 was refused: {code.name}") as caught:
        pieces(Script([Reply(code)]), 0, 64)
    assert caught.value.code == code


def test_a_short_response_is_completed_first_and_makes_later_steps_shorter() -> None:
    """A broker that returns 10 messages because they are large will do so again."""
    script = Script([Reply(FOUND, reached) for reached in (10, 20, 30, 40)])
    assert pieces(script, 0, 40, depth=1, count=20) == [(0, 10), (10, 20), (20, 30), (30, 40)]
    assert script.asked() == [(0, 20), (10, 10), (20, 10), (30, 10)]


def test_records_beyond_the_range_do_not_count() -> None:
    assert pieces(Script([Reply(FOUND, 32)]), 0, 10) == [(0, 10)]


def test_stopping_early_drops_the_connection_when_something_is_in_flight() -> None:
    script = Script([Reply(FOUND, 32)])
    reading = QueueRange(script, QUEUE, 0, 96, Pull("g", depth=3))  # type: ignore[arg-type]
    next(reading.bodies())
    reading.close()
    assert script.drops == 1
    reading.close()
    assert script.drops == 1
