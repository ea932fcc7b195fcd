"""Agenda: the time until the next event in a broker that a client may be waiting for.

A virtual clock (virtual_clock.py) must not jump past such an event. Housekeeping is left out (sampling, persisting
tables, sweeps, registration), because it may as well happen later.
"""

from __future__ import annotations

from math import inf

from triomq.broker.assembly.serving import Serving
from triomq.protocol.system_topics import TRANS_HALF_TOPIC


def seconds_to_next(serving: Serving) -> float:
    """Return the seconds to the next delayed message, transaction check, or file deletion of a retention in progress;
    inf if nothing is pending."""
    soonest = serving.store.upkeep.seconds_to_next_deletion()
    if not serving.tables.configuration.role.is_slave:
        soonest = min(soonest, serving.transactions.checks.seconds_to_next() if _has_unchecked(serving) else inf)
        due_ms = serving.delivery.next_due_ms()
        if due_ms is not None:
            soonest = min(soonest, (due_ms - serving.tables.now_ms()) / 1000)
    return soonest


def _has_unchecked(serving: Serving) -> bool:
    """Return whether there are half messages that the next check will examine."""
    topic = serving.tables.metadata.topics.get(TRANS_HALF_TOPIC)  # the first check creates it
    queue_ids = range(topic.read_queue_nums if topic is not None else 1)
    half_offset = serving.transactions.log.half_offset
    return any(half_offset(each) < serving.store.reading.max_offset(TRANS_HALF_TOPIC, each) for each in queue_ids)
