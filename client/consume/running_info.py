"""The internal state of a consumer as administrators see it (RocketMQ: ConsumerRunningInfo)."""

from __future__ import annotations

import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

import trio

from triomq.client.consume.assigned import AssignedQueue
from triomq.client.consume.blocking_point import tell_when_blocked
from triomq.client.core.consumer_stats import ConsumerStats
from triomq.client.core.offsets import OffsetTable
from triomq.client.core.results import ConsumeFromWhere, MessageModel
from triomq.client.instance.client import Client
from triomq.protocol.bodies import running_info as body
from triomq.protocol.codes import V4_9_7, version_name
from triomq.protocol.subscription import SubscriptionData


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumerFacts:
    """What does not change while a consumer is open, but for the subscriptions. `group`: the application's name."""

    group: str
    model: MessageModel
    consume_from: ConsumeFromWhere
    consume_type: str
    ordered: bool
    concurrency: int
    started_ms: int
    subscriptions: list[SubscriptionData]


def describe(
    client: Client,
    facts: ConsumerFacts,
    assigned: Iterable[AssignedQueue],
    offsets: OffsetTable,
    stats: ConsumerStats,
    *,
    with_stacks: bool,
) -> body.ConsumerRunningInfo:
    """Return the response body of GET_CONSUMER_RUNNING_INFO."""
    wall_ms = client.config.now_ms()
    monotonic_ms = int(trio.current_time() * 1000)
    return body.ConsumerRunningInfo(
        properties={
            "consumerGroup": facts.group,
            "messageModel": facts.model.value,
            "consumeFromWhere": facts.consume_from.value,
            body.PROP_NAMESERVER_ADDR: ";".join(client.name_servers.addresses),
            body.PROP_CONSUME_TYPE: facts.consume_type,
            body.PROP_CONSUME_ORDERLY: "true" if facts.ordered else "false",
            body.PROP_THREADPOOL_CORE_SIZE: str(facts.concurrency),
            body.PROP_CLIENT_VERSION: version_name(V4_9_7),
            body.PROP_CONSUMER_START_TIMESTAMP: str(facts.started_ms),
        },
        mq_table={one.queue: _queue_info(one, offsets, wall_ms - monotonic_ms) for one in assigned},
        status_table={one.topic: stats.of_topic(one.topic) for one in facts.subscriptions},
        subscription_set=facts.subscriptions,
        jstack=all_stacks() if with_stacks else None,
    )


def _queue_info(assigned: AssignedQueue, offsets: OffsetTable, to_wall_ms: int) -> body.ProcessQueueInfo:
    window = assigned.window
    return body.ProcessQueueInfo(
        cached_msg_count=len(window),
        cached_msg_max_offset=window.newest_offset or 0,
        cached_msg_min_offset=window.oldest_offset or 0,
        cached_msg_size_in_mib=window.cached_bytes // (1024 * 1024),
        commit_offset=offsets.get(assigned.queue) or 0,
        droped=window.dropped,
        locked=window.locked,
        last_consume_timestamp=window.last_consume_ms + to_wall_ms,
        last_lock_timestamp=window.last_lock_ms + to_wall_ms,
        last_pull_timestamp=window.last_pull_ms + to_wall_ms,
    )


def all_stacks() -> str:
    """Return the stacks of all threads of this process and of all trio tasks of this thread, as text."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts: list[str] = []
    for ident, frame in sys._current_frames().items():
        parts.append(f"{names.get(ident, '?')}  TID: {ident}\n{''.join(traceback.format_stack(frame))}")
    parts.extend(_task_stacks())
    return "\n".join(parts)


def _task_stacks() -> Iterator[str]:
    """Yield where the tasks of trio wait, equal ones once: the stack of their thread has no listener that waits."""
    found: Counter[str] = Counter()
    unseen = [trio.lowlevel.current_root_task()]
    while unseen:
        task = unseen.pop()
        if task is not None:
            unseen.extend(child for nursery in task.child_nurseries for child in nursery.child_tasks)
            stack = traceback.StackSummary.extract(_awaited_frames(task.coro))
            found[f"Task {task.name}\n{''.join(stack.format())}"] += 1
    for text, count in found.items():
        yield text if count == 1 else f"{count} times: {text}"


def _awaited_frames(awaited: Any) -> Iterator[tuple[FrameType, int]]:
    """Yield the frames of a coroutine and of what it waits for, the outermost first, through `tell_when_blocked`, which
    hides from trio's own `Task.iter_await_frames` what it drives.
    """
    while awaited is not None:
        frame = getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None)
        if frame is None:
            return
        yield frame, frame.f_lineno
        if frame.f_code is tell_when_blocked.__code__:
            awaited = frame.f_locals["coroutine"]
        else:
            awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
