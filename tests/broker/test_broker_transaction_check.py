"""The check run as a state machine: it reads from lists, and the test records the actions that it returns."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triomq.broker.transactions import check as transaction_check
from triomq.broker.transactions.check import (
    CheckRules,
    CheckRun,
    HalfMessage,
    HalfRead,
    Kind,
    OpMessage,
    OpPull,
)
from triomq.broker.transactions.ends import DISCARDED, ENDED
from triomq.protocol import stored_properties

TIMEOUT_MS, CHECK_MAX, RESERVED_MS = 6_000, 3, 72 * 3_600_000
NOW_MS = 1_700_000_000_000
RULES = CheckRules(TIMEOUT_MS, CHECK_MAX, RESERVED_MS)


def half(queue_offset: int, age_ms: int = 60_000, stored_age_ms: int | None = None, **properties: str) -> HalfMessage:
    return HalfMessage(
        queue_id=0,
        queue_offset=queue_offset,
        physical_offset=queue_offset * 100,
        store_timestamp=NOW_MS - (age_ms if stored_age_ms is None else stored_age_ms),
        born_timestamp=NOW_MS - age_ms,
        born_host=b"",
        store_host=b"",
        flag=0,
        sys_flag=0,
        reconsume_times=0,
        body=b"",
        properties=stored_properties.of({"PGROUP": "P", **properties}),
    )


@dataclass
class Queues:
    """Half and op messages, and the actions that a run requested."""

    halves: dict[int, HalfMessage | HalfRead] = field(default_factory=dict)
    ops: list[tuple[int | None, int]] = field(default_factory=list)  # half offset -> age in ms
    copies: dict[int, int] = field(default_factory=dict)  # op offset -> offset of the copy that it names
    done: list[tuple[Kind, int]] = field(default_factory=list)
    unreadable: frozenset[int] = frozenset()  # op offsets
    fails: bool = False
    pulls: list[int] = field(default_factory=list)

    def pull_ops(self, queue_id: int, queue_offset: int) -> OpPull:
        self.pulls.append(queue_offset)
        if queue_offset > len(self.ops):
            return OpPull([], len(self.ops), is_moved=True)
        messages = [
            OpMessage(offset, half_offset, NOW_MS - age_ms, self.copies.get(offset, ENDED))
            for offset, (half_offset, age_ms) in enumerate(self.ops)
            if queue_offset <= offset < queue_offset + 32 and offset not in self.unreadable
        ]
        next_offset = min(queue_offset + 32, len(self.ops))
        return OpPull(messages, next_offset, is_moved=not messages and next_offset > queue_offset)

    def read_half(self, queue_id: int, queue_offset: int) -> HalfRead:
        found = self.halves.get(queue_offset)
        if found is None:
            return HalfRead(None, is_end=True)
        return found if isinstance(found, HalfRead) else HalfRead(found)

    def run(self, half_offset: int = 0, op_offset: int = 0, now_ms: int = NOW_MS) -> CheckRun:
        run = CheckRun(0, half_offset, op_offset, NOW_MS, RULES)
        for _ in range(100_000):
            action = run.step(self, now_ms)
            if action.kind is Kind.END:
                return run
            if action.half is not None:
                self.done.append((action.kind, action.half.queue_offset))
                run.carried_out(not self.fails)
        raise AssertionError("the run does not end")


def test_nothing_to_do() -> None:
    run = Queues().run()
    assert (run.half_offset, run.op_offset) == (0, 0)


def test_ended_ones_are_passed_over_and_the_rest_is_checked() -> None:
    queues = Queues({n: half(n) for n in range(4)}, ops=[(0, 50_000), (2, 50_000)])
    run = queues.run()
    assert queues.done == [(Kind.CHECK, 1), (Kind.CHECK, 3)]
    assert (run.half_offset, run.op_offset) == (4, 2)


def test_op_messages_that_cannot_be_read_do_not_keep_op_offset_back() -> None:
    ops: list[tuple[int | None, int]] = [(0, 50_000), (1, 50_000), (2, 50_000), (3, 50_000)]
    queues = Queues({n: half(n) for n in range(4)}, ops, unreadable=frozenset({0, 2}))
    run = queues.run()
    assert queues.done == [(Kind.CHECK, 0), (Kind.CHECK, 2)]
    assert (run.half_offset, run.op_offset) == (4, 4)


def test_a_whole_pull_of_op_messages_that_cannot_be_read_is_passed() -> None:
    ops: list[tuple[int | None, int]] = [*((None, 50_000) for _ in range(40)), (0, 50_000)]
    queues = Queues({0: half(0), 1: half(1)}, ops, unreadable=frozenset(range(40)))
    run = queues.run()
    assert queues.done == [(Kind.CHECK, 1)], "the op message behind them still ends a half message"
    assert run.op_offset == 41


def test_op_offset_stops_at_the_first_op_still_needed() -> None:
    young = half(1, age_ms=100)
    queues = Queues({0: half(0), 1: young, 2: half(2)}, ops=[(2, 50), (0, 50)])
    run = queues.run()
    assert (run.half_offset, run.op_offset) == (1, 0), "the op of 2 lies in front of the op of 0, and is still needed"


@pytest.mark.parametrize(
    ("age_ms", "is_checked"),
    [(0, False), (TIMEOUT_MS - 1, False), (TIMEOUT_MS, True), (TIMEOUT_MS + 1, True), (-1, True)],
)
def test_a_young_one_ends_the_run(age_ms: int, is_checked: bool) -> None:
    queues = Queues({0: half(0, age_ms, stored_age_ms=60_000), 1: half(1)})
    run = queues.run()
    assert queues.done == ([(Kind.CHECK, 0), (Kind.CHECK, 1)] if is_checked else [])
    assert run.half_offset == (2 if is_checked else 0)


def test_a_clock_that_went_back_means_a_check() -> None:
    queues = Queues({0: half(0, age_ms=-5000, stored_age_ms=1)})
    queues.run()
    assert queues.done == [(Kind.CHECK, 0)]


def test_a_store_time_in_the_future_stops_nothing() -> None:
    """The clock was ahead when it was stored, and was set back since."""
    queues = Queues({0: half(0, stored_age_ms=-3_600_000), 1: half(1)})
    queues.run()
    assert queues.done == [(Kind.CHECK, 0), (Kind.CHECK, 1)]


def test_a_clock_that_is_set_back_during_a_run_ends_it() -> None:
    queues = Queues({0: half(0), 1: half(1)})
    assert queues.run(now_ms=NOW_MS - 1).half_offset == 0
    assert queues.done == []


def test_stored_after_the_start_ends_the_run() -> None:
    queues = Queues({0: half(0, stored_age_ms=0)})
    assert queues.run().half_offset == 0
    assert queues.done == []


@pytest.mark.parametrize(("times", "wanted"), [("2", Kind.CHECK), ("3", Kind.DISCARD), ("99", Kind.DISCARD)])
def test_checked_too_often(times: str, wanted: Kind) -> None:
    message = half(0, TRANSACTION_CHECK_TIMES=times)
    queues = Queues({0: message})
    queues.run()
    assert queues.done == [(wanted, 0)]
    assert message.properties.get("TRANSACTION_CHECK_TIMES") == ("3" if wanted is Kind.CHECK else times)


def test_too_old_for_the_log_is_given_up() -> None:
    queues = Queues({0: half(0, RESERVED_MS + 1, TRANSACTION_CHECK_TIMES="1"), 1: half(1, RESERVED_MS)})
    queues.run()
    assert queues.done == [(Kind.DISCARD, 0), (Kind.CHECK, 1)]


@pytest.mark.parametrize("immunity", [None, "5", str(2 * RESERVED_MS // 1000)])
def test_nobody_is_given_up_unasked(immunity: str | None) -> None:
    """Also behind a broker that was down for days, and with an immunity that is longer than messages are kept."""
    properties = {"CHECK_IMMUNITY_TIME_IN_SECONDS": immunity} if immunity is not None else {}
    queues = Queues({0: half(0, RESERVED_MS + 1, 60_000, **properties)})
    queues.run()
    assert queues.done == [(Kind.CHECK, 0)]


def test_rounds_in_which_it_is_immune_are_no_checks() -> None:
    message = half(0, 1_000, CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    for _ in range(CHECK_MAX + 2):
        queues = Queues({0: message})
        queues.run()
        assert queues.done == [(Kind.PUT_BACK, 0)]
    assert message.check_times == 0


def test_the_first_check_is_counted_once_however_many_ops_are_read() -> None:
    message = half(0)
    queues = Queues({0: message}, ops=[(n + 100, 10_000) for n in range(100)])
    queues.run()
    assert queues.done == [(Kind.CHECK, 0)]
    assert message.properties.get("TRANSACTION_CHECK_TIMES") == "1"
    assert queues.pulls == [0, 32, 64, 96, 100], "all op messages are looked at before anybody is asked"


def test_an_op_far_behind_still_ends_it() -> None:
    queues = Queues({0: half(0)}, ops=[*((n + 100, 10_000) for n in range(99)), (0, 9_000)])
    run = queues.run()
    assert queues.done == []
    assert run.half_offset == 1


def test_ops_much_younger_than_the_start_need_not_all_be_read() -> None:
    queues = Queues({0: half(0)}, ops=[(n + 100, -TIMEOUT_MS - 1) for n in range(100)])
    queues.run()
    assert queues.done == [(Kind.CHECK, 0)]
    assert queues.pulls == [0]


def test_immune_ones_are_put_back_and_nobody_is_asked() -> None:
    message = half(5, 10_000, CHECK_IMMUNITY_TIME_IN_SECONDS="11")
    queues = Queues({5: message})
    run = queues.run(half_offset=5)
    assert queues.done == [(Kind.PUT_BACK, 5)]
    assert message.properties.get("TRAN_PREPARED_QUEUE_OFFSET") == "5"
    assert run.half_offset == 6


def test_a_copy_keeps_the_offset_of_the_first_one() -> None:
    message = half(9, 1_000, CHECK_IMMUNITY_TIME_IN_SECONDS="60", TRAN_PREPARED_QUEUE_OFFSET="5")
    queues = Queues({9: message})
    queues.run(half_offset=9)
    assert queues.done == [(Kind.PUT_BACK, 9)]
    assert message.properties.get("TRAN_PREPARED_QUEUE_OFFSET") == "5"


@pytest.mark.parametrize("begin", [6, 9])
def test_a_copy_is_ended_by_the_op_of_the_first_one(begin: int) -> None:
    copy = half(9, 1_000, CHECK_IMMUNITY_TIME_IN_SECONDS="60", TRAN_PREPARED_QUEUE_OFFSET="5")
    halves: dict[int, HalfMessage | HalfRead] = {n: half(n) for n in range(6, 9)}
    queues = Queues({9: copy, **halves}, ops=[(n, 100) for n in range(5, 9)])
    run = queues.run(half_offset=begin)
    assert queues.done == []
    assert (run.half_offset, run.op_offset) == (10, 4)


@pytest.mark.parametrize("state", [3, DISCARDED])
@pytest.mark.parametrize("at", [0, 35])
def test_an_op_of_one_that_was_put_back_ends_that_one_and_no_copy_of_it(at: int, state: int) -> None:
    """Also when it is read after the run passed that one, and when the run begins behind it."""
    copy = half(3, 10_000, CHECK_IMMUNITY_TIME_IN_SECONDS="60", TRAN_PREPARED_QUEUE_OFFSET="1")
    halves = {1: half(1, 10_000, CHECK_IMMUNITY_TIME_IN_SECONDS="60"), 2: half(2), 3: copy}
    ops: list[tuple[int | None, int]] = [(None, 10_000)] * 40
    ops[at] = (1, 10_000)
    queues = Queues({**halves}, ops=ops, copies={at: state})
    run = queues.run(half_offset=1)
    assert queues.done == ([] if at == 0 else [(Kind.PUT_BACK, 1)]) + [(Kind.CHECK, 2), (Kind.PUT_BACK, 3)]
    assert run.op_offset == 40
    again = Queues({3: copy}, ops=ops, copies={at: state})
    again.run(half_offset=3)
    assert again.done == [(Kind.PUT_BACK, 3)]


@pytest.mark.parametrize(("immunity", "wanted"), [("5", Kind.CHECK), ("x", Kind.CHECK), ("", Kind.CHECK)])
def test_after_the_immunity_it_is_checked(immunity: str, wanted: Kind) -> None:
    queues = Queues({0: half(0, TIMEOUT_MS, CHECK_IMMUNITY_TIME_IN_SECONDS=immunity)})
    queues.run()
    assert queues.done == [(wanted, 0)]


def test_every_gap_is_stepped_over() -> None:
    queues = Queues({0: HalfRead(None, next_offset=7), 7: half(7), 8: HalfRead(None, next_offset=9), 9: half(9)})
    run = queues.run()
    assert queues.done == [(Kind.CHECK, 7), (Kind.CHECK, 9)]
    assert run.half_offset == 10


def test_a_gap_without_an_end_ends_the_run() -> None:
    queues = Queues({0: HalfRead(None, next_offset=0), 1: half(1)})
    run = queues.run()
    assert queues.done == []
    assert run.half_offset == 0


def test_what_was_not_carried_out_ends_the_run() -> None:
    queues = Queues({0: half(0), 1: half(1)}, fails=True)
    run = queues.run()
    assert queues.done == [(Kind.CHECK, 0)]
    assert run.half_offset == 0


@pytest.mark.parametrize(("run_ms", "done"), [(60_000, [(Kind.CHECK, 0)]), (60_001, [])])
def test_a_run_ends_after_a_minute(run_ms: int, done: list[tuple[Kind, int]]) -> None:
    queues = Queues({0: half(0)})
    queues.run(now_ms=NOW_MS + run_ms)
    assert queues.done == done


def test_the_op_offset_of_another_life_is_corrected() -> None:
    queues = Queues({0: half(0)}, ops=[(0, 10), (0, 10)])
    assert queues.run(op_offset=50).op_offset == 2


def test_strange_ops_do_not_hold_the_offset() -> None:
    queues = Queues({3: half(3)}, ops=[(None, 10), (1, 10), (3, 10), (3, 5)])
    run = queues.run(half_offset=3)
    assert queues.done == []
    assert (run.half_offset, run.op_offset) == (4, 4)


def test_steps_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_check, "STEPS_BEFORE_PAUSE", 10)
    queues = Queues({n: half(n) for n in range(25)}, ops=[(n, 10) for n in range(25)])
    run = CheckRun(0, 0, 0, NOW_MS, RULES)
    kinds = [run.step(queues, NOW_MS).kind for _ in range(4)]
    assert kinds == [Kind.PAUSE, Kind.PAUSE, Kind.END, Kind.END]


ages = st.integers(-10_000, RESERVED_MS + 10_000)


@given(
    st.lists(st.tuples(ages, st.sampled_from([{}, {"CHECK_IMMUNITY_TIME_IN_SECONDS": "30"}])), max_size=40),
    st.data(),
)
def test_any_queue_is_walked_without_losing_anything(
    messages: list[tuple[int, dict[str, str]]], data: st.DataObject
) -> None:
    ended = data.draw(st.permutations(range(len(messages)))) if messages else []
    ended = ended[: data.draw(st.integers(0, len(messages)))]
    queues = Queues(
        {n: half(n, age_ms, 60_000, **properties) for n, (age_ms, properties) in enumerate(messages)},
        ops=[(n, data.draw(st.integers(-20_000, 1000))) for n in ended],
    )
    run = queues.run()
    walked = range(run.half_offset)
    handled = [offset for _, offset in queues.done]
    assert handled == sorted(set(handled))
    assert set(walked) - set(ended) <= set(handled), "an open one in front of half_offset was put somewhere"
    assert set(handled) <= set(walked)
    for op_offset in range(run.op_offset):
        assert queues.ops[op_offset][0] in walked, "an op is dropped only with its half message"


@pytest.mark.parametrize(("first_offset", "is_ended"), [(1, True), (3, False)])
def test_ops_of_half_messages_before_the_start_are_held_up_to_a_bound(
    monkeypatch: pytest.MonkeyPatch, first_offset: int, is_ended: bool
) -> None:
    """If the first copy was ended before the start, the later copy counts as ended too, up to the bound."""
    monkeypatch.setattr(transaction_check, "MAX_OPS_HELD", 2)
    queues = Queues(
        {10: half(10, TRAN_PREPARED_QUEUE_OFFSET=str(first_offset), CHECK_IMMUNITY_TIME_IN_SECONDS="1")},
        ops=[(offset, 10) for offset in (0, 1, 2, 3)],
    )
    run = queues.run(half_offset=10)
    assert queues.done == ([] if is_ended else [(Kind.CHECK, 10)])
    assert run.op_offset == 4


@pytest.mark.parametrize(
    ("times", "wanted"), [("9" * 18, Kind.DISCARD), ("9" * 19, Kind.CHECK), ("x", Kind.CHECK), ("-9", Kind.CHECK)]
)
def test_a_count_of_checks_that_is_no_number_of_at_most_18_digits_counts_as_none(times: str, wanted: Kind) -> None:
    queues = Queues({0: half(0, TRANSACTION_CHECK_TIMES=times)})
    queues.run()
    assert queues.done == [(wanted, 0)]
