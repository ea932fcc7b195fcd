"""The window of pulled messages: in whatever order messages finish, no unconsumed one is committed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from triomq.client.core.process_queue import ProcessQueue
from triomq.protocol.message import MessageExt


def message(queue_offset: int, body: bytes = b"x") -> MessageExt:
    one = MessageExt("T", body)
    one.queue_offset = queue_offset
    return one


def messages(*offsets: int) -> list[MessageExt]:
    return [message(at) for at in offsets]


def test_commits_the_oldest_that_is_left() -> None:
    window = ProcessQueue(0)
    assert window.commit_offset is None
    put = window.put(messages(10, 11, 12, 15))
    assert window.commit_offset == 10
    assert window.remove([put[1]]) == 10
    assert window.remove([put[0]]) == 12
    assert window.remove([put[2], put[3]]) == 16
    assert len(window) == 0


def test_repeated_messages_are_left_out() -> None:
    window = ProcessQueue(0)
    window.put(messages(3, 4))
    assert [one.queue_offset for one in window.put(messages(3, 4, 5))] == [5]
    assert len(window) == 3


def test_sizes_and_limits() -> None:
    window = ProcessQueue(0)
    put = window.put([message(1, b"12345"), message(2, b"123")])
    assert window.cached_bytes == 8
    assert window.is_full(3, 100) is None
    assert window.is_full(2, 100) == "count"
    assert window.is_full(3, 8) == "bytes"
    window.put(messages(1000))
    assert window.is_full(10, 100, max_span=999) == "span"
    window.remove(put)
    assert (window.cached_bytes, window.span) == (1, 0)


def test_taken_messages_stay_until_they_are_settled() -> None:
    window = ProcessQueue(0)
    window.put(messages(1, 2, 3))
    assert [one.queue_offset for one in window.take(2)] == [1, 2]
    assert window.commit_offset == 1
    window.put_back()
    assert [one.queue_offset for one in window.take(5)] == [1, 2, 3]
    assert window.settle() == 4
    assert window.take(1) == []


def test_a_dropped_window_is_empty() -> None:
    window = ProcessQueue(0)
    window.put(messages(1, 2))
    window.drop()
    assert window.dropped
    assert (len(window), window.cached_bytes, window.oldest_offset) == (0, 0, None)


def test_overdue_messages_oldest_first() -> None:
    window = ProcessQueue(0)
    window.put(messages(5, 6, 7))
    window.started_ms.update({6: 100, 5: 100, 7: 900})
    assert [one.queue_offset for one in window.overdue(1000, 500)] == [5, 6]


@given(st.permutations(range(20)), st.integers(1, 7))
def test_any_order_of_finishing(order: list[int], step: int) -> None:
    window = ProcessQueue(0)
    put = {at * step: message(at * step) for at in range(20)}
    window.put(put.values())
    left = set(put)
    for number in order:
        left.discard(number * step)
        expected = min(left) if left else 19 * step + 1
        assert window.remove_one(put[number * step]) == expected
        assert window.cached_bytes == len(left)


class Window(RuleBasedStateMachine):
    """Ordered use, compared with a model made of lists."""

    def __init__(self) -> None:
        super().__init__()
        self.window = ProcessQueue(0)
        self.waiting: list[int] = []
        self.taken: list[int] = []
        self.next = 0

    @rule(gaps=st.lists(st.integers(0, 3), max_size=5))
    def put(self, gaps: list[int]) -> None:
        new = []
        for gap in gaps:
            self.next += gap
            new.append(self.next)
            self.next += 1
        self.window.put(messages(*new))
        self.waiting += new

    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        got = [one.queue_offset for one in self.window.take(count)]
        assert got == self.waiting[:count]
        self.taken += got
        del self.waiting[:count]

    @precondition(lambda self: self.taken)
    @rule()
    def settle(self) -> None:
        self.window.settle()
        self.taken.clear()

    @rule()
    def put_back(self) -> None:
        self.window.put_back()
        self.waiting = self.taken + self.waiting
        self.taken = []

    @precondition(lambda self: self.taken or self.waiting)
    @rule(data=st.data())
    def remove_one(self, data: st.DataObject) -> None:
        at = data.draw(st.sampled_from(self.taken + self.waiting))
        if data.draw(st.booleans()):
            found = self.window.remove_one(message(at))
        else:
            found = self.window.remove(messages(at))
        assert found == self.window.commit_offset
        for one in (self.taken, self.waiting):
            if at in one:
                one.remove(at)

    @invariant()
    def bounds(self) -> None:
        left = self.taken + self.waiting
        assert len(self.window) == len(left)
        assert self.window.oldest_offset == (min(left) if left else None)
        assert self.window.newest_offset == (max(left) if left else None)
        assert self.window.commit_offset == (min(left) if left else self.window.next_after_pulled or None)


TestWindow = Window.TestCase
