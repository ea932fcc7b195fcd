"""One round of pulls: some messages of each of several queues.

A queue that returns full pulls is asked for more in the next round, up to MAX_DEPTH pulls at a time; an empty one is
asked for one pull.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from triomq.client.core.requests import PULL_STATUS
from triomq.client.core.results import PullStatus
from triomq.pipeline.copying.records import Record, read_records
from triomq.pipeline.copying.requests_at import ask_all, refusal
from triomq.pipeline.copying.state import QueueCopy
from triomq.protocol import sys_flag
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.errors import RecordError
from triomq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.subscription import SUB_ALL, TAG
from triomq.protocol.system_topics import TOOLS_CONSUMER_GROUP
from triomq.spark.cluster import Cluster
from triomq.spark.errors import BrokerError

MAX_DEPTH: Final = 8
PULLS_AT_ONCE: Final = 128
"""Bounds the memory of a round: a response has up to 256 KiB of messages, or one message."""
PULL_GROUP: Final = TOOLS_CONSUMER_GROUP
"""A group that every broker has."""


def slices(copies: Sequence[QueueCopy]) -> Iterator[list[QueueCopy]]:
    """Yield runs of queues that are read in one round."""
    run: list[QueueCopy] = []
    pulls = 0
    for copy in copies:
        if run and pulls + copy.depth > PULLS_AT_ONCE:
            yield run
            run, pulls = [], 0
        run.append(copy)
        pulls += copy.depth
    if run:
        yield run


@dataclass(frozen=True, slots=True)
class Piece:
    """The messages of one queue between its position and the offset `end`."""

    records: list[Record]
    end: int


def read_round(
    cluster: Cluster, copies: Sequence[QueueCopy], most: int, failures: list[BrokerError]
) -> dict[QueueCopy, Piece]:
    """Return the next messages of each queue, at most `most` of one; appends to `failures` why others have none. Passes
    over a beginning that was deleted, and counts it."""
    asked: dict[tuple[QueueCopy, int], tuple[MessageQueue, Callable[[], RemotingCommand]]] = {}
    steps: dict[tuple[QueueCopy, int], int] = {}
    for copy in copies:
        at = copy.next_offset or 0
        left = most
        for number in range(copy.depth):
            count = min(copy.span, left)
            if count <= 0:
                break
            asked[copy, number] = copy.source, partial(_request, copy.source, at, count)
            steps[copy, number] = count
            at += count
            left -= count
    responses = ask_all(cluster, asked)
    return {copy: _taken(copy, steps, responses, failures) for copy in copies}


def _request(queue: MessageQueue, begin: int, count: int) -> RemotingCommand:
    header = PullMessageRequestHeader(
        consumer_group=PULL_GROUP,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=begin,
        max_msg_nums=count,
        sys_flag=sys_flag.PULL_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription=SUB_ALL,
        sub_version=0,
        expression_type=TAG,
    )
    return new_request(RequestCode.PULL_MESSAGE, header)


def _taken(
    copy: QueueCopy,
    steps: Mapping[tuple[QueueCopy, int], int],
    responses: Mapping[tuple[QueueCopy, int], RemotingCommand | BrokerError],
    failures: list[BrokerError],
) -> Piece:
    """Return what the responses of one queue have, as far as they join; set its `end`, `depth`, `span` and `counts`."""
    found: list[Record] = []
    begin = at = copy.next_offset or 0
    is_full = True
    copy.is_drained = False
    for number in range(copy.depth):
        if (copy, number) not in steps:
            break
        response, count = responses[copy, number], steps[copy, number]
        if not isinstance(response, BrokerError) and response.code not in PULL_STATUS:
            response = refusal(response, f"pulling from {copy.source.topic}/{copy.source.broker_name}")
        if isinstance(response, BrokerError):
            failures.append(response)
            is_full = False
            break
        header = response.header(PullMessageResponseHeader)
        copy.end = header.max_offset
        if PULL_STATUS[response.code] is not PullStatus.FOUND:
            is_full = False
            if at == begin:
                _pass_over(copy, header, PULL_STATUS[response.code], failures)
            break
        try:
            found += read_records(response.body, at, header.next_begin_offset)
        except RecordError as error:
            failures.append(BrokerError(f"{copy.source}: {error}"))
            break
        reached = header.next_begin_offset
        if reached < at + count:  # shorter than asked for: the next response does not join
            is_full = reached < copy.end
            copy.span = max(reached - at, 1) if is_full else 32
            at = reached
            break
        at = reached
    copy.depth = min(copy.depth * 2, MAX_DEPTH) if is_full else 1
    return Piece(found, max(at, copy.next_offset or 0))


def _pass_over(
    copy: QueueCopy, header: PullMessageResponseHeader, status: PullStatus, failures: list[BrokerError]
) -> None:
    """Nothing was found at the position: continue behind a gap, or say that the queue became shorter."""
    at = copy.next_offset or 0
    copy.is_drained = at == header.max_offset
    behind = header.min_offset
    if at >= behind and status is PullStatus.NO_MATCHED_MSG:
        behind = header.next_begin_offset  # without a filter: they are in the queue, but their file is gone
    if at < behind:
        copy.counts.lost += behind - at
        copy.next_offset = behind
    elif at > header.max_offset:
        where = f"{copy.source.topic}/{copy.source.broker_name}/{copy.source.queue_id}"
        failures.append(
            BrokerError(
                f"--from: queue {where} ends at {header.max_offset}, {at} were copied: was the topic deleted? To copy "
                "the new one give another --state and another --source-name"
            )
        )
