"""One round of sends: the messages of several queues, one request of each queue at a time, so that the order stays."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial

from triomq.client.core.send_requests import SEND_STATUS, SendRequests
from triomq.pipeline.copying.records import Record, Unit, units
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

    def __init__(self, cluster: Cluster, name: str, *, born_within_ms: int, marks: bool) -> None:
        """`name`: of the source, in the property that says where a message is from; without `marks` there is none."""
        self._cluster = cluster
        self._name = name
        self._born_within_ms = born_within_ms
        self._marks = marks
        self._requests = SendRequests(PRODUCER_GROUP, template_topic=AUTO_CREATE_TOPIC)

    def position(self, queue: MessageQueue) -> str:
        """Return what the positions of a source queue begin with."""
        return f"{self._name}/{queue.topic}/{queue.broker_name}/{queue.queue_id}/"

    def send_round(self, found: Mapping[QueueCopy, list[Record]], failures: list[BrokerError]) -> int:
        """Send the records of each queue and advance the queues; return how many were stored. A queue stops at its
        first failure, which is appended to `failures`; what its last request did is not known then."""
        waiting = {copy: deque(self._units(copy, records)) for copy, records in found.items() if records}
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
                _confirm(copy, unit, response.header(SendMessageResponseHeader).queue_offset)
                stored += len(unit.offsets)
                if not waiting[copy]:
                    del waiting[copy]
        return stored

    def _units(self, copy: QueueCopy, records: list[Record]) -> list[Unit]:
        position = self.position(copy.source) if self._marks else ""
        return list(units(records, copy.target.topic, position, self._born_within_ms))


def _confirm(copy: QueueCopy, unit: Unit, target_offset: int) -> None:
    for place, offset in enumerate(unit.offsets):
        copy.offsets.add(offset, target_offset + place, 1)
    copy.next_offset = unit.offsets[-1] + 1
