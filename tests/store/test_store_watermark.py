"""Watermarks: who is called, who is counted, and what remains of those that were cancelled."""

from __future__ import annotations

import pytest

from triomq.store.watermark import Waiter, Watermark


class Told:
    def __init__(self, mark: Watermark) -> None:
        self.mark = mark
        self.told: list[int] = []

    def wait(self, target: int) -> Waiter:
        waiter = self.mark.call_beyond(target, lambda error: self.told.append(target))
        assert waiter is not None
        return waiter


def test_waiters_that_are_spared_by_a_rejection_are_counted_without_the_cancelled_ones() -> None:
    told = Told(Watermark())
    told.wait(5)
    told.wait(7).cancel()
    told.wait(30)
    told.mark.reject(ValueError(), at_least=20)
    assert (told.told, told.mark.waiter_count) == ([30], 1)
    told.mark.advance(6)
    assert (told.told, told.mark.waiter_count) == ([30, 5], 0)


def test_a_rejection_ends_the_waits_from_its_bound_on() -> None:
    told = Told(Watermark())
    for target in (19, 20, 21):
        told.wait(target)
    told.mark.reject(ValueError(), at_least=20)
    assert (told.told, told.mark.waiter_count) == ([20, 21], 1)


def test_a_wait_ends_only_when_the_number_is_greater() -> None:
    told = Told(Watermark(3))
    told.wait(3)
    told.wait(7)
    told.wait(5)  # late: kept apart
    told.mark.advance(5)
    assert told.told == [3]
    told.mark.advance(6)
    assert told.told == [3, 5]
    told.mark.advance(8)
    assert (told.told, told.mark.waiter_count) == ([3, 5, 7], 0)


@pytest.mark.parametrize("late", [False, True])
def test_cancelled_waiters_go_when_they_are_half_of_all(late: bool) -> None:
    told = Told(Watermark())
    if late:
        told.wait(1000)
    waiters = [told.wait(500 - number if late else number) for number in range(20)]
    for number, waiter in enumerate(waiters[:19]):
        waiter.cancel()
        assert told.mark.waiter_count == 19 - number + late
        kept = len(told.mark._queue or ()) + len(told.mark._late or ())
        assert kept - told.mark.waiter_count <= max(8, told.mark.waiter_count)
    told.mark.advance(600)
    assert (told.told, told.mark.waiter_count) == ([481 if late else 19], late)


def test_a_cancelled_waiter_that_is_passed_is_no_longer_counted() -> None:
    told = Told(Watermark())
    told.wait(2)
    told.wait(9)
    told.wait(9)
    told.wait(9).cancel()
    told.wait(1).cancel()
    assert told.mark.waiter_count == 3
    told.mark.advance(5)
    assert (told.told, told.mark.waiter_count) == ([2], 2)
    told.mark.advance(10)
    assert (told.told, told.mark.waiter_count) == ([2, 9, 9], 0)
