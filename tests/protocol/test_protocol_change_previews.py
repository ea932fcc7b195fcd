"""What a change would do: the questions that a preview asks, and the steps that it shows."""

from __future__ import annotations

from typing import Any

import pytest

from triomq.protocol.change_previews import LATEST, Reply, offsets_by_time
from triomq.protocol.codes import RequestCode


def queue_key(number: int) -> str:
    return f'{{"topic":"T","brokerName":"b","queueId":{number}}}'


@pytest.mark.parametrize(
    ("moment", "is_forced", "after"),
    [(1000, False, [3, 7]), (1000, True, [7, 7]), (LATEST, False, [3, 20]), (LATEST, True, [20, 20])],
)
def test_an_offset_moves_to_a_time_but_forward_only_by_force(moment: int, is_forced: bool, after: list[int]) -> None:
    """The group has read queue 0 up to 3 and nothing of queue 1."""
    answers: dict[int, Reply] = {
        RequestCode.GET_CONSUME_STATS: Reply({}, {"offsetTable": {queue_key(0): {"consumerOffset": 3}}}),
        RequestCode.GET_TOPIC_STATS_INFO: Reply(
            {}, {"offsetTable": {queue_key(number): {"minOffset": 0, "maxOffset": 20} for number in (1, 0)}}
        ),
        RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Reply({"offset": "7"}, {}),
    }
    steps = offsets_by_time("a", {"topic": "T", "group": "G", "timestamp": moment, "isForce": is_forced}, None)
    found: list[dict[str, Any]] = []
    try:
        question = next(steps)
        while True:
            question = steps.send(answers[question.code])
    except StopIteration as end:
        found = end.value
    assert [(step["queueId"], step["before"], step["after"]) for step in found] == [
        (0, 3, after[0]),
        (1, None, after[1]),
    ]
