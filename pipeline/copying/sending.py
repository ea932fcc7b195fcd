"""One round of sends: the messages of several queues, one request of each queue at a time, so that the order stays."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from triomq.client.core.send_requests import SEND_STATUS, SendRequests
from triomq.pipeline.copying.reading import Piece
from triomq.pipeline.copying.records import Marks, Unit, units
from triomq.pipeline.copying.requests_at import ask_all, refusal
from triomq.pipeline.copying.state import QueueCopy
from triomq.protocol.command import RemotingCommand
from triomq.protocol.headers.send import SendMessageResponseHeader
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.system_topics import AUTO_CREATE_TOPIC
from triomq.spark.cluster import Cluster
from triomq.spark.errors import BrokerError

PRODUCER_GROUP = "MQPIPELINE_COPY"


class QueueSender:
    """Sends to the target. One owner, one thread."""

    def __init__(self, cluster: Cluster, marks: Marks, born_within_ms: int) -> None:
        self._cluster = cluster
        self._marks = marks
        self._born_within_ms = born_within_ms
        self._requests = SendRequests(PRODUCER_GROUP, template_topic=AUTO_CREATE_TOPIC)

    def send_round(self, found: Mapping[QueueCopy, Piece], failures: list[BrokerError]) -> int:
        """Send the messages of each queue and advance the queues; return how many were stored. A queue stops at its
        first failure, which is appended to `failures`; what its last request did is not known then.

        Raises SameNames before anything is sent."""
        back = {
            copy: [record.offset for record in piece.records if self._marks.is_returning(record)]
            for copy, piece in found.items()
        }
        waiting = {copy: deque(self._units(copy, piece, back[copy])) for copy, piece in found.items()}
        for copy in [copy for copy, line in waiting.items() if not line]:
            del waiting[copy]
            advance(copy, found[copy].end, 0, back[copy])
        stored = 0
        while waiting:
            asked: dict[QueueCopy, tuple[MessageQueue, Callable[[], RemotingCommand]]] = {
                copy: (copy.target, partial(self._requests.request, line[0].outgoing, copy.target, line[0].born_ms))
                for copy, line in waiting.items()
            }
            for copy, response in ask_all(self._cluster, asked).items():
                if not isinstance(response, BrokerError) and response.code not in SEND_STATUS:
                    response = refusal(response, f"sending to {copy.target.topic}/{copy.target.broker_name}")
                if isinstance(response, BrokerError):
                    failures.append(response)
                    copy.is_unsure = True
                    del waiting[copy]
                    continue
                unit = waiting[copy].popleft()
                first = response.header(SendMessageResponseHeader).queue_offset
                for place, offset in enumerate(unit.offsets):
                    copy.offsets.add(offset, first + place, 1)
                advance(copy, unit.offsets[-1] + 1, len(unit.offsets), back[copy])
                stored += len(unit.offsets)
                if not waiting[copy]:
                    del waiting[copy]
                    advance(copy, found[copy].end, 0, back[copy])
        return stored

    def _units(self, copy: QueueCopy, piece: Piece, returning: list[int]) -> list[Unit]:
        left_out = set(returning)
        records = [record for record in piece.records if record.offset not in left_out]
        return list(units(records, copy.source, copy.target.topic, self._marks, self._born_within_ms))


def advance(copy: QueueCopy, end: int, copied: int, returning: list[int]) -> None:
    """Move the position of a queue to `end`. What was neither `copied` nor came from the target is lost: its file was
    deleted. `returning`: source offsets of messages that came from the target, sorted."""
    begin = copy.next_offset or 0
    back = bisect_left(returning, end) - bisect_left(returning, begin)
    copy.counts.copied += copied
    copy.counts.returned += back
    copy.counts.lost += max(end - begin - copied - back, 0)
    copy.next_offset = end
