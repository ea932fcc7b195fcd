"""A dedicated thread: values, errors, one call after the other, its end."""

from __future__ import annotations

import threading

import pytest
import trio

from triomq.store.disk.worker_thread import WorkerThread


async def test_calls_run_in_one_other_thread_and_answer() -> None:
    thread = WorkerThread("mine")
    seen: list[threading.Thread] = []

    def add(one: int, other: int) -> int:
        seen.append(threading.current_thread())
        return one + other

    assert [await thread(add, number, 1) for number in range(3)] == [1, 2, 3]
    assert len(set(seen)) == 1
    assert seen[0] is not threading.current_thread()
    assert seen[0].name == "mine"
    thread.end()
    assert not seen[0].is_alive()


async def test_errors_come_back_and_the_thread_goes_on() -> None:
    thread = WorkerThread("mine")

    def fail() -> None:
        raise OSError(5, "as asked")

    with pytest.raises(OSError, match="as asked"):
        await thread(fail)
    assert await thread(int, "7") == 7
    thread.end()


async def test_calls_of_several_tasks_are_made_in_the_order_in_which_they_came() -> None:
    thread = WorkerThread("mine")
    made: list[str] = []
    may_begin = threading.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(thread, may_begin.wait)
        await trio.testing.wait_all_tasks_blocked()
        for name in "abc":
            nursery.start_soon(thread, made.append, name)
            await trio.testing.wait_all_tasks_blocked()
        assert made == []
        may_begin.set()
    assert made == ["a", "b", "c"]
    thread.end()


async def test_a_cancelled_task_waits_for_what_it_began() -> None:
    thread = WorkerThread("mine")
    may_end = threading.Event()
    ended = []

    def work() -> None:
        may_end.wait()
        ended.append(True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(thread, work)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        await trio.lowlevel.cancel_shielded_checkpoint()
        assert ended == []
        may_end.set()
    assert ended == [True]
    thread.end()


async def test_ending_twice_or_never_begun_is_nothing_and_a_later_call_begins_anew() -> None:
    thread = WorkerThread("mine")
    thread.end()
    assert await thread(int, "1") == 1
    thread.end()
    thread.end()
    assert await thread(int, "2") == 2
    thread.end()
