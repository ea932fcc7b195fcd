"""What happens when messages that a query has to read are gone: it stops, or continues and logs that once.

The states of a queue at the moment at which a range is planned, by the position up to which the query has read it
(`begin`) and what its broker says:

    begin <= end                       the range to read
    begin < oldest message             deleted before they were read
    end < begin                        the queue is shorter now: a broker lost its tail, or the topic was made again
    not in the route, begin < end      it left the route (readQueueNums was lowered) with messages that were not read
    not in the route, end < begin      it is gone, or its topic is
    its broker is not registered       it is away, and comes back with its queues: nothing is lost, the position stays

Each but the first and the last stops the query with failOnDataLoss=true. With false it continues at the beginning or
the end of what there is now, as Spark's source for Kafka does.
"""

from __future__ import annotations

import logging

from triomq.protocol.message_queue import MessageQueue
from triomq.spark.errors import DataLost

log = logging.getLogger("triomq.spark")


class DataLoss:
    """Decides about messages that are gone. `fails`: failOnDataLoss."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails
        self._told: set[str] = set()

    def found(self, what: str) -> None:
        """Raise DataLost, or log it the first time. `what` is a sentence that names offsets and queue."""
        if self.fails:
            raise DataLost(what)
        if what not in self._told:
            self._told.add(what)
            log.warning("%s; the query continues without them (failOnDataLoss=false)", what)


def text_of(queue: MessageQueue) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"
