"""Positions: JSON, admission control, splitting into parts."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triomq.protocol.message_queue import MessageQueue
from triomq.spark import positions
from triomq.spark.errors import OptionError

queues = st.builds(MessageQueue, st.sampled_from(["A", "B"]), st.sampled_from(["b-0", "b-1"]), st.integers(0, 3))
offsets = st.dictionaries(queues, st.integers(0, 10_000), max_size=8)


@given(offsets)
def test_json_there_and_back(given_offsets: positions.Positions) -> None:
    tree = json.loads(json.dumps(positions.to_tree(given_offsets)))
    assert positions.from_tree(tree) == given_offsets


@pytest.mark.parametrize("tree", [[], {"T": 1}, {"T": {"b": 1}}, {"T": {"b": {"x": 1}}}, {"T": {"b": {"0": "1"}}}])
def test_a_tree_of_another_shape_is_named(tree: object) -> None:
    with pytest.raises(OptionError, match="option startingOffsets"):
        positions.from_tree(tree, "option startingOffsets")


@given(offsets, offsets, st.integers(1, 5000))
def test_limited_reads_that_many_and_never_goes_back(
    start: positions.Positions, more: positions.Positions, limit: int
) -> None:
    latest = {queue: start.get(queue, 0) + more.get(queue, 0) for queue in {*start, *more}}
    backlog = sum(latest[queue] - start.get(queue, 0) for queue in latest)
    end = positions.limited(start, latest, limit)
    assert end.keys() == latest.keys()
    assert all(start.get(queue, 0) <= end[queue] <= latest[queue] for queue in latest)
    assert sum(end[queue] - start.get(queue, 0) for queue in end) == min(backlog, limit)


@given(st.dictionaries(queues, st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=6), st.integers(1, 20))
def test_split_covers_every_offset_once(ranges: dict[MessageQueue, tuple[int, int]], parts: int) -> None:
    wanted = [(queue, begin, begin + count) for queue, (begin, count) in ranges.items()]
    split = positions.split(wanted, parts)
    covered = sorted((queue, at) for queue, begin, end in split for at in range(begin, end))
    assert covered == sorted((queue, at) for queue, begin, end in wanted for at in range(begin, end))
    assert all(end > begin for _, begin, end in split)
    assert len(split) >= min(parts, len(covered))


@given(
    st.dictionaries(queues, st.tuples(st.integers(0, 100), st.integers(0, 100)), max_size=6),
    st.integers(1, 20),
    st.integers(1, 50),
)
def test_no_part_has_more_than_the_most_records(
    ranges: dict[MessageQueue, tuple[int, int]], parts: int, most: int
) -> None:
    wanted = [(queue, begin, begin + count) for queue, (begin, count) in ranges.items()]
    split = positions.split(wanted, parts, most)
    covered = sorted((queue, at) for queue, begin, end in split for at in range(begin, end))
    assert covered == sorted((queue, at) for queue, begin, end in wanted for at in range(begin, end))
    assert all(0 < end - begin <= most for _, begin, end in split)
    assert len(split) >= min(parts, len(covered))
    assert positions.split(wanted, 1, most) == [part for item in wanted for part in positions.split([item], 1, most)], (
        "each queue is cut alone"
    )


def test_earliest_and_latest_inside_json() -> None:
    a, b = MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)
    bounds = {positions.EARLIEST: 3, positions.LATEST: 9}

    def bound(queue: MessageQueue, which: int) -> int:
        return bounds[which] + queue.queue_id

    found = positions.resolve({a: -1, b: -2}, [a, b], positions.EARLIEST, "startingOffsets", bound)
    assert found == {a: 9, b: 4}
    assert positions.resolve(None, [a, b], positions.LATEST, "startingOffsets", bound) == {a: 9, b: 10}
    with pytest.raises(OptionError, match="T/b/7 is not a queue"):
        positions.resolve({MessageQueue("T", "b", 7): 1}, [a], -2, "startingOffsets", lambda queue, which: 0)


def test_offsets_as_json_name_every_queue_that_is_read() -> None:
    queues = [MessageQueue("T", "b", queue_id) for queue_id in range(12)]
    with pytest.raises(OptionError) as error:
        positions.resolve({queues[0]: 5}, queues, positions.LATEST, "endingOffsets", lambda queue, which: 0)
    assert str(error.value).startswith("option endingOffsets: it leaves out T/b/1, T/b/2, T/b/3,")
    assert "T/b/8 and 3 more; name each queue" in str(error.value)
    with pytest.raises(OptionError, match="T/b/0"):
        positions.resolve({}, queues[:1], positions.LATEST, "endingOffsets", lambda queue, which: 0)
