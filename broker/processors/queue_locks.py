"""Locks of orderly consumers: LOCK_BATCH_MQ, UNLOCK_BATCH_MQ (RocketMQ: AdminBrokerProcessor, RebalanceLockManager)."""

from __future__ import annotations

from collections.abc import Coroutine
from itertools import islice
from typing import Any, Final

import structlog
import trio

from triomq.broker.errors import NotReplicated
from triomq.broker.tables.logged import check_leads
from triomq.broker.tables.queue_locks import QueueLockTable
from triomq.protocol.bodies.fastjson_writer import dumps
from triomq.protocol.bodies.queue_lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RequestRefused
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.system_topics import check_group_length, check_topic_length
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Processor

log = structlog.get_logger("triomq.broker.queue_locks")

SAVE_SECONDS: Final = 0.5
"""A lock is granted after this time even if its file is not written yet: Java clients wait one second."""
MAX_QUEUES: Final = 4096
"""Queues in one request. A client names those that it holds of one group on one broker."""
QUEUES_IN_A_STEP: Final = 256
"""Queues that are locked, or written into the response, in half a millisecond. A response with more of them has them in
the order in which they were locked, not in that of a Java set."""
MAX_BODY_BYTES: Final = 1024 * 1024
"""Twice what that many queues take. Decoding more would hold all other clients up."""

_Queues = dict[MessageQueue, None]


class QueueLockProcessor:
    """Grants and releases queue locks."""

    def __init__(self, locks: QueueLockTable) -> None:
        self._locks = locks
        self._unlocked: dict[tuple[str, str], list[_Queues]] = {}
        """(group, client id) -> what requests in progress have not locked yet; bounded by the tasks of connections."""

    def processors(self) -> dict[int, Processor]:
        """Return request code -> processor."""
        return {RequestCode.LOCK_BATCH_MQ: self.lock, RequestCode.UNLOCK_BATCH_MQ: self.unlock}

    def lock(self, connection: Connection, request: RemotingCommand) -> Coroutine[Any, Any, RemotingCommand]:
        """Handle LOCK_BATCH_MQ: lock the free queues; the response lists those that the client now holds. They are
        locked now, not when the task that responds begins: an unlock that arrives meanwhile must find them locked."""
        _check_bytes(request)
        body = LockBatchRequestBody.decode_request(request.body)
        group, client_id = _holder(body)
        _check_count(len(body.mq_set))
        for queue in body.mq_set:
            check_topic_length(queue.topic)
        queues = dict.fromkeys(body.mq_set)
        held = self._locks.lock(group, _taken(queues), client_id)
        rest = queues or None
        if rest is not None:
            self._unlocked.setdefault((group, client_id), []).append(rest)
        return self._respond(connection, request, group, client_id, held, rest)

    async def _respond(
        self,
        connection: Connection,
        request: RemotingCommand,
        group: str,
        client_id: str,
        held: list[MessageQueue],
        rest: _Queues | None,
    ) -> RemotingCommand:
        """Lock the rest of the queues, and respond when the file has the locks, without those that the client has
        released meanwhile."""
        if rest is not None:
            await self._lock_rest(connection, group, client_id, held, rest)
        with trio.move_on_after(SAVE_SECONDS) as limit:
            try:
                await self._locks.wait_kept()
            except OSError as error:
                log.error("queue locks not written: a restart forgets them", error=str(error))
        if limit.cancelled_caught and self._locks.log is not None:  # the next master would give them to others
            raise NotReplicated(f"no quorum of the group had the locks within {SAVE_SECONDS} s")
        if len(held) <= QUEUES_IN_A_STEP:
            held = self._locks.still_held(group, held, client_id)
            return new_response(request, body=LockBatchResponseBody(lock_ok_mq_set=frozenset(held)).encode())
        texts: dict[MessageQueue, bytes] = {}
        for begin in range(0, len(held), QUEUES_IN_A_STEP):
            await connection.steps.next()
            texts.update((queue, dumps(queue)) for queue in held[begin : begin + QUEUES_IN_A_STEP])
        # Which of them it still holds is asked for all at once: the response must be true when it is sent.
        told = b",".join([texts[queue] for queue in self._locks.still_held(group, held, client_id)])
        return new_response(request, body=b'{"lockOKMQSet":[%b]}' % told)

    async def _lock_rest(
        self, connection: Connection, group: str, client_id: str, held: list[MessageQueue], queues: _Queues
    ) -> None:
        try:
            while queues:
                await connection.steps.next()
                check_leads(self._locks.log)  # another member of the group may lead by now
                held += self._locks.lock(group, _taken(queues), client_id)
        finally:
            in_progress = self._unlocked[group, client_id]
            in_progress[:] = [each for each in in_progress if each is not queues]
            if not in_progress:
                del self._unlocked[group, client_id]

    def unlock(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle UNLOCK_BATCH_MQ: release the client's locks; locks of other clients stay."""
        _check_bytes(request)
        body = UnlockBatchRequestBody.decode_request(request.body)
        group, client_id = _holder(body)
        _check_count(len(body.mq_set))
        self._locks.unlock(group, body.mq_set, client_id)
        for queues in self._unlocked.get((group, client_id), ()):
            for queue in body.mq_set:
                queues.pop(queue, None)
        return new_response(request)


def _taken(queues: _Queues) -> list[MessageQueue]:
    """Take the queues of the next step out of those that are to be locked."""
    some = list(islice(queues, QUEUES_IN_A_STEP))
    for queue in some:
        del queues[queue]
    return some


def _holder(body: LockBatchRequestBody | UnlockBatchRequestBody) -> tuple[str, str]:
    if not body.consumer_group or not body.client_id:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, "a queue lock needs consumerGroup and clientId")
    check_group_length(body.consumer_group)
    return body.consumer_group, body.client_id


def _check_bytes(request: RemotingCommand) -> None:
    if len(request.body) > MAX_BODY_BYTES:
        raise RequestRefused(
            ResponseCode.SYSTEM_BUSY,
            f"the request has {len(request.body)} bytes, the limit is {MAX_BODY_BYTES}; lock the queues in several "
            "requests",
        )


def _check_count(count: int) -> None:
    if count > MAX_QUEUES:
        raise RequestRefused(
            ResponseCode.SYSTEM_BUSY,
            f"the request names {count} queues, the limit is {MAX_QUEUES}; lock them in several requests",
        )
