"""Positions at which the source has nothing: deleted messages, the end of a queue, a queue that was made again."""

from __future__ import annotations

import pytest

from triomq.pipeline.copying.offset_map import OffsetMap
from triomq.pipeline.copying.reading import read_round
from triomq.pipeline.copying.state import QueueCopy
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.cluster import Cluster
from triomq.spark.errors import BrokerError
from triomq.spark.options import OptionTable, connection_options

BEGIN, END = 100, 110
QUEUE = MessageQueue("T", "a", 0)


class Answering(Cluster):
    """A cluster of which each queue has no message to return in [BEGIN, END). `code`: of each response to a pull."""

    def __init__(self, code: ResponseCode, reached: int) -> None:
        super().__init__(connection_options(OptionTable({"nameServer": "127.0.0.1:9"}, ())))
        fields = {"suggestWhichBrokerId": "0", "nextBeginOffset": str(reached)}
        fields |= {"minOffset": str(BEGIN), "maxOffset": str(END)}
        self.response = RemotingCommand(code, ext_fields=fields)

    def address(self, topic: str, broker_name: str) -> str:
        return broker_name

    def connection(self, address: str) -> Answering:  # type: ignore[override]
        return self

    def send(self, *requests: RemotingCommand) -> list[int]:
        return list(range(len(requests)))

    def receive(self, opaque: int) -> RemotingCommand:
        return self.response


def asked(at: int, code: ResponseCode, reached: int) -> tuple[QueueCopy, list[BrokerError]]:
    copy = QueueCopy(QUEUE, QUEUE, at, OffsetMap())
    failures: list[BrokerError] = []
    found = read_round(Answering(code, reached), [copy], 32, failures)
    assert found[copy].records == []
    assert found[copy].end == copy.next_offset
    return copy, failures


@pytest.mark.parametrize(
    ("at", "code", "reached", "position", "lost", "is_drained"),
    [
        (7, ResponseCode.PULL_OFFSET_MOVED, BEGIN, BEGIN, BEGIN - 7, False),
        (103, ResponseCode.PULL_RETRY_IMMEDIATELY, 106, 106, 3, False),
        (END, ResponseCode.PULL_NOT_FOUND, END, END, 0, True),
    ],
    ids=["deleted", "file_deleted", "end"],
)
def test_a_copy_continues_behind_what_was_deleted_and_counts_it(
    at: int, code: ResponseCode, reached: int, position: int, lost: int, is_drained: bool
) -> None:
    copy, failures = asked(at, code, reached)
    assert failures == []
    assert (copy.next_offset, copy.counts.lost, copy.is_drained) == (position, lost, is_drained)


def test_a_queue_that_is_shorter_than_what_was_copied_is_not_begun_again() -> None:
    copy, failures = asked(END + 5, ResponseCode.PULL_OFFSET_MOVED, END)
    assert copy.next_offset == END + 5
    (failure,) = failures
    assert str(failure) == (
        "--from: queue T/a/0 ends at 110, 115 were copied: was the topic deleted? "
        "To copy the new one give another --state and another --source-name"
    )
