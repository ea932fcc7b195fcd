"""Delayed delivery: moves messages of SCHEDULE_TOPIC_XXXX to their real topics when they fall due (RocketMQ:
ScheduleMessageService).

Each delay level is one queue, and its messages fall due in the order in which they were stored. So one task per level
waits for one thing: the due time of the next message, or the queue's watermark if there is none. Pending messages cost
nothing, and nothing is polled while nothing is pending. Queues above the last level of messageDelayLevel are served,
too: messages wait there if the table had more levels, and their due times are in their entries.

    delayOffset.json   level -> queue offset of the next message to deliver; written every few seconds and at stop,
                       after what it passes is on disk
    everything else    is in the log: after a restart delivery continues at the stored offsets, and delivers again
                       whatever they did not cover

Messages that are due together are a batch: blocks of queue entries are read, and the messages are appended and
committed together. The store copies as many of a block as it can in one call (store/writing/delivering.py); only the
others become a MessageToStore each. The offset moves past those that the store accepted. A batch is bounded by messages
and bytes, and other tasks run between two of them. It ends sooner for an interactive client that has sent something
meanwhile, and the client is served before the next one.
A message that the store can never accept becomes a dead letter (undeliverable.py), so that the level continues. While
it accepts nothing at present (a full disk), the level waits and tries again.
Deliveries never wait for a flush or for a slave; in a group (DLedger) a batch waits until a quorum has the one before.
Due times are wall-clock times, and the clock may be set, so a level with a pending message looks at the clock every
second.

Only the level's task moves its offset, on the event loop. Nothing here sends anything to a client.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, Protocol

import structlog
import trio

from triomq.broker.configuration import Configuration
from triomq.broker.message_writer import MessageWriter, PendingPut
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.put_responses import UNSTORABLE
from triomq.broker.tables.delay_offsets import DelayOffsets
from triomq.broker.tables.topics import TopicTable
from triomq.broker.undeliverable import DELAY, Undeliverable
from triomq.protocol import property_names as names
from triomq.protocol import stored_properties
from triomq.protocol.clock import NowMs
from triomq.protocol.errors import RecordError
from triomq.protocol.outage import Outage
from triomq.protocol.record import FIXED_BYTES, read_fields, store_timestamp_at, stored_again
from triomq.protocol.system_topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from triomq.store.errors import StoreError
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import GetStatus, MessageToStore, PutResult, PutStatus
from triomq.store.writing.delivering import LOWEST_TAGS_CODE, DueBlock, RealQueues, is_queue_id

log = structlog.get_logger("triomq.broker.delay")

RECHECK_SECONDS = 1.0
"""How often a pending message's due time is compared with the wall clock, which may have been set."""
RETRY_MS = 100
RETRY_LIMIT_MS = 60_000
LOG_EVERY_FAILURES = 100
AFTER_FAILURE_SECONDS = 10.0
LONGEST_DELAY_MS = 366 * 86_400_000
"""Of a level that messageDelayLevel lacks: a due time that is further away is damage."""
BATCH_MESSAGES = 256
"""Of a batch, and of batches between which other tasks do not run."""
BLOCK_MESSAGES = 32
"""Queue entries that are read at once. A batch ends behind each block if an interactive client waits."""
BATCH_BYTES = 4 * 1024 * 1024


_PUT_OK: Final = PutStatus.PUT_OK


class ServedBetween(Protocol):
    """Clients that are served between two batches (remoting.turn.Turn)."""

    def is_interactive_waiting(self) -> bool:
        """Return whether one waits for whom a batch ends early."""

    def catch_up(self) -> None:
        """Serve those that have sent something."""


class DelayedDelivery:
    """See the module's docstring. Run `run` on masters only: start it when the broker becomes one, cancel it when the
    broker ceases to be one."""

    def __init__(
        self,
        configuration: Configuration,
        store: DefaultMessageStore,
        writer: MessageWriter,
        offsets: DelayOffsets,
        topics: TopicTable,
        undeliverable: Undeliverable,
        *,
        now_ms: NowMs,
        stats: BrokerStats | None = None,
    ) -> None:
        self._configuration = configuration
        self._store = store
        self._writer = writer
        self._offsets = offsets
        self._topics = topics
        self._undeliverable = undeliverable
        self._now_ms = now_ms
        self._stats = stats
        self._clients: ServedBetween | None = None
        self._levels = store.delay_levels

    def progress(self) -> dict[int, tuple[int, int]]:
        """Return level -> (offset of the next message to deliver, end of the level's queue) of the levels that have
        delivered something, as RocketMQ's runtime information has them."""
        return {
            level: (queue_offset, self._store.reading.max_offset(SCHEDULE_TOPIC, level - 1))
            for level, queue_offset in self._offsets.items()
        }

    def every_level(self) -> dict[int, tuple[int, int]]:
        """Return the progress of all levels, also of those that have delivered nothing yet."""
        return {
            level: (self._offsets.get(level), self._store.reading.max_offset(SCHEDULE_TOPIC, level - 1))
            for level in self._served_levels()
        }

    def _served_levels(self) -> list[int]:
        """Return the levels of messageDelayLevel, and those above them in which messages wait since it had more."""
        last = self._levels.max_level
        ends = self._store.reading.ends(SCHEDULE_TOPIC)
        above = [
            queue_id + 1 for queue_id, end in ends.items() if queue_id >= last and end > self._offsets.get(queue_id + 1)
        ]
        return [*range(1, last + 1), *sorted(above)]

    def next_due_ms(self) -> int | None:
        """Return when the next message falls due (wall clock, ms), None if none is pending. For masters only."""
        now_ms = self._now_ms()
        soonest: int | None = None
        for level in self._served_levels():
            head = self._store.reading.queue_entries(SCHEDULE_TOPIC, level - 1, self._offsets.get(level), 1)
            if head:
                physical_offset, _, code = head[0]
                due_ms = self._deliver_at(level, physical_offset, code, now_ms)
                if soonest is None or due_ms < soonest:
                    soonest = due_ms
        return soonest

    async def run(
        self, clients: ServedBetween | None = None, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Deliver until cancelled; the store must be loaded. The caller then persists the offsets. Without `clients` no
        batch ends early: in a group each one waits for a quorum, so that others run meanwhile, and short batches would
        wait more often."""
        self._clients = clients
        levels = self._served_levels()
        for level in levels:
            self._correct(level)
        for level in levels[self._levels.max_level :]:
            waiting = self._store.reading.max_offset(SCHEDULE_TOPIC, level - 1) - self._offsets.get(level)
            log.warning("delay level above messageDelayLevel found", level=level, messages_waiting=waiting)
        async with trio.open_nursery() as nursery:
            for level in levels:
                nursery.start_soon(self._serve, level)
            nursery.start_soon(self._persist_now_and_then)
            task_status.started()

    # -- one level ---------------------------------------------------------------------------------------------------

    async def _serve(self, level: int) -> None:
        failures = in_a_row = 0  # in a row: messages since other tasks could run
        while True:
            try:
                if await self._wait_for_due(level):
                    batch = self._append_due(level)
                    await self._wait_for_quorum(batch)
                    failures = 0 if self._conclude(level, batch, failures) else failures + 1
                    in_a_row += len(batch.results)
                    if failures:
                        await trio.sleep(self._retry_ms(failures) / 1000)
                    elif self._clients is not None and in_a_row < BATCH_MESSAGES:
                        self._clients.catch_up()  # what was read before is read again
                    else:
                        in_a_row = 0
                        await trio.lowlevel.checkpoint()
            except Exception:
                log.exception("delivery of a delay level failed", level=level, retry_seconds=AFTER_FAILURE_SECONDS)
                await trio.sleep(AFTER_FAILURE_SECONDS)

    async def _wait_for_due(self, level: int) -> bool:
        """Return True if the level's next message is due. Otherwise wait for a change and return False; the caller then
        tries again."""
        queue_offset = self._offsets.get(level)
        head = self._store.reading.queue_entries(SCHEDULE_TOPIC, level - 1, queue_offset, 1)
        if not head:
            await self._wait_for_entry(level, queue_offset)
            return False
        physical_offset, _, code = head[0]
        now_ms = self._now_ms()
        wait_ms = self._deliver_at(level, physical_offset, code, now_ms) - now_ms
        if wait_ms <= 0:
            await self._store.reading.have_read(SCHEDULE_TOPIC, level - 1, queue_offset, BLOCK_MESSAGES)
            return True
        await trio.sleep(min(wait_ms / 1000, RECHECK_SECONDS))
        return False  # what was read before the wait is read again

    async def _wait_for_entry(self, level: int, queue_offset: int) -> None:
        if self._correct(level):
            return
        if queue_offset < self._store.reading.max_offset(SCHEDULE_TOPIC, level - 1):
            log.warning("entry of a delay queue not read", level=level, queue_offset=queue_offset)
            found = self._store.reading.get_messages(SCHEDULE_TOPIC, level - 1, queue_offset, 1)
            if found.status is GetStatus.OFFSET_FOUND_NULL and found.next_begin_offset > queue_offset:
                self._offsets.set(level, min(found.next_begin_offset, found.max_offset))
            else:
                await trio.sleep(RECHECK_SECONDS)
            return
        await self._store.reading.queue_end(SCHEDULE_TOPIC, level - 1).wait_beyond(queue_offset)

    def _correct(self, level: int) -> bool:
        """Move an offset outside the queue to its nearer end. Return True if it was outside."""
        queue_offset = self._offsets.get(level)
        lowest = self._store.reading.min_offset(SCHEDULE_TOPIC, level - 1)
        highest = self._store.reading.max_offset(SCHEDULE_TOPIC, level - 1)
        corrected = min(max(queue_offset, lowest), highest)
        if corrected == queue_offset:
            return False
        log.warning("delay offset corrected", level=level, queue_offset=queue_offset, corrected=corrected)
        self._offsets.set(level, corrected)
        return True

    def _deliver_at(self, level: int, physical_offset: int, code: int, now_ms: int) -> int:
        """Return the due time of an entry's message, in ms. It is the entry's tags code, unless that is further away
        than the level allows (the clock was set back, or the level was shortened): then the message is due now. What a
        level above the table allows is not known."""
        if code < LOWEST_TAGS_CODE:
            record = self._store.reading.record_at(physical_offset)
            is_whole = record is not None and len(record) >= FIXED_BYTES
            code = self._levels.deliver_at(level, store_timestamp_at(record)) if record and is_whole else now_ms
        longest_ms = self._levels.delay_ms(level) if level <= self._levels.max_level else LONGEST_DELAY_MS
        return code if code <= now_ms + longest_ms else now_ms

    def deliver(self, level: int) -> bool:
        """Deliver a batch of due messages. Return False if the store refused a message. Not for a member of a group."""
        return self._conclude(level, self._append_due(level), 0)

    def _append_due(self, level: int) -> _Batch:
        """Append the level's next messages that are due, up to the limits of a batch, and commit them."""
        batch = _Batch(self._offsets.get(level), self._store.delivering.real_queues(self._queue_of))
        now_ms = self._now_ms()
        while self._append_block(level, batch, now_ms):
            if len(batch.results) >= BATCH_MESSAGES or self._is_client_served_first():
                break
        self._store.commit()
        return batch

    def _append_block(self, level: int, batch: _Batch, now_ms: int) -> bool:
        """Append the messages of the next block of queue entries that are due, behind those of the batch. Return
        whether there may be more for it."""
        queue_offset = batch.queue_offset + len(batch.results)
        block = DueBlock(self._store.reading.packed_entries(SCHEDULE_TOPIC, level - 1, queue_offset, BLOCK_MESSAGES))
        while (head := block.head()) is not None:
            delivery = self._writer.put_due(block, batch.real_queues, now_ms, BATCH_BYTES - batch.size_bytes)
            if delivery is not None:
                result = delivery.result
                batch.add(result, result.message_count, result.size_bytes)
                if self._is_counted():
                    for queue, sizes in delivery.sizes.items():
                        batch.counted.append((result, queue.topic, queue.queue_id, sizes))
            elif self._append_one(*head, level, batch, now_ms):
                block.skip()
            else:
                return False
            if batch.is_refused or batch.size_bytes >= BATCH_BYTES:
                return False  # if it was refused at once, later messages must stay behind it
        return block.count == BLOCK_MESSAGES

    def _queue_of(self, topic: str, queue_id: int) -> int | None:
        """Return the queue to which messages for this one go, None if they need a look."""
        return self._topics.reachable_queue(topic, queue_id) if topic != TRANS_HALF_TOPIC else None

    def _append_one(
        self, physical_offset: int, entry_bytes: int, code: int, level: int, batch: _Batch, now_ms: int
    ) -> bool:
        """Append the message of one entry. Return False if it is not due."""
        is_due = LOWEST_TAGS_CODE <= code <= now_ms  # as most are
        if not is_due and self._deliver_at(level, physical_offset, code, now_ms) > now_ms:
            return False
        result = self._put(physical_offset, entry_bytes, batch)
        if result is None:
            batch.results.append(None)
        else:
            batch.add(result, 1, entry_bytes)
        return True

    def _is_client_served_first(self) -> bool:
        """Return whether a batch ends because an interactive client waits. It is often the consumer of these very
        messages, which asks for the next ones."""
        return self._clients is not None and self._clients.is_interactive_waiting()

    async def _wait_for_quorum(self, batch: _Batch) -> None:
        """In a group, wait until a quorum has the batch, or it is known that this member does not learn that. Delivery
        ends with the leadership, and this wait with it: to append the messages again meanwhile would double them."""
        if self._store.acknowledged.value <= batch.last_offset < self._store.accepted.value:
            with suppress(StoreError):
                await self._store.acknowledged.wait_beyond(batch.last_offset)

    def _conclude(self, level: int, batch: _Batch, failures: int) -> bool:
        """Move the offset behind what was delivered of a batch. Return False if the store refused a message of it, as
        it did `failures` times before."""
        acknowledged = self._store.acknowledged.value
        delivered = 0
        refused: PutResult | None = None
        for result in batch.results:
            if result is not None and (result.status is not _PUT_OK or result.last_offset >= acknowledged):
                refused = result
                break
            delivered += 1
        if self._stats is not None:
            for result, topic, queue_id, sizes in batch.counted:
                if result.status is _PUT_OK and result.last_offset < acknowledged:
                    self._stats.topic_puts(topic, queue_id, sizes)
        self._offsets.set(level, batch.queue_offset + delivered)
        if refused is not None and failures % LOG_EVERY_FAILURES == 0:
            log.warning(
                "delayed message refused by the store",
                level=level,
                queue_offset=batch.queue_offset + delivered,
                status=refused.status.name,
                reason=refused.reason,
            )
        return refused is None

    def _put(self, physical_offset: int, entry_bytes: int, batch: _Batch) -> PutResult | None:
        """Append the message of an entry to its real topic, or to the dead letters if the store will never take it.
        Return None if there is nothing to append: entries that fill a rebuilt queue have a size that no record has."""
        data = self._store.reading.record_of_entry(physical_offset, entry_bytes)
        if data is None:
            log.warning("delayed message not read; it is skipped", physical_offset=physical_offset)
            return None
        try:
            message = real_message(data)
        except RecordError as error:
            self._undeliverable.count(DELAY, physical_offset, str(error))
            return None
        wanted = message.topic, message.queue_id
        queue_id = batch.queues.get(wanted)
        if queue_id is None:
            queue_id = batch.queues[wanted] = self._topics.reachable_queue(message.topic, message.queue_id)
        message.queue_id = queue_id
        put = PendingPut()
        self._writer.put(message, False, put)
        result = put.result
        if result.status is not _PUT_OK and result.status in UNSTORABLE:  # a set hashes the name of the status
            dead = self._undeliverable.put(DELAY, message, physical_offset, result.reason)
            return dead.result if dead is not None else None
        if self._is_counted():
            batch.counted.append((result, message.topic, message.queue_id, [result.size_bytes]))
        return result

    def _is_counted(self) -> bool:
        return self._stats is not None and self._configuration.store.enable_schedule_message_stats

    def _retry_ms(self, failures: int) -> int:
        if self._configuration.store.enable_schedule_async_deliver:
            return min(RETRY_MS * failures, RETRY_LIMIT_MS)
        return RETRY_MS

    # -- the file ----------------------------------------------------------------------------------------------------

    async def _persist_now_and_then(self) -> None:
        outage = Outage()
        while True:
            await trio.sleep(self._configuration.store.flush_delay_offset_interval_ms / 1000)
            try:
                await self._offsets.persist()
            except OSError as error:
                if outage.failed(trio.current_time()):
                    log.error("delay offsets not written; the next write tries again", exc_info=error)
            else:
                if outage.worked(trio.current_time()):
                    log.info("delay offsets written again")


class _Batch:
    """Messages of one level that were appended and committed together, from `queue_offset` on."""

    __slots__ = (
        "counted",
        "is_refused",
        "last_offset",
        "queue_offset",
        "queues",
        "real_queues",
        "results",
        "size_bytes",
    )

    def __init__(self, queue_offset: int, real_queues: RealQueues) -> None:
        self.queue_offset = queue_offset
        self.results: list[PutResult | None] = []
        """One for each entry; None: nothing to deliver, the offset moves past it. Those of a block may be the same."""
        self.counted: list[tuple[PutResult, str, int, list[int]]] = []
        """Each result with topic, queue id and sizes of the messages that went to their real topics, not to the dead
        letters; none unless they are counted."""
        self.queues: dict[tuple[str, int], int] = {}
        """What `reachable_queue` says, asked once for each queue."""
        self.real_queues = real_queues
        """The same for messages that are put together."""
        self.is_refused = False
        """The last message was refused at once."""
        self.size_bytes = 0
        """Of the records of the messages that were appended, those that waited or those that are delivered."""
        self.last_offset = -1
        """The physical offset of the last byte of the batch."""

    def add(self, result: PutResult, count: int, size_bytes: int) -> None:
        """Add this number of messages with this result."""
        self.results += [result] * count
        self.size_bytes += size_bytes
        if result.status is _PUT_OK:
            self.last_offset = result.last_offset
        else:
            self.is_refused = True


def real_message(data: bytes) -> MessageToStore:
    """Return the message to deliver for a record of SCHEDULE_TOPIC_XXXX.

    Its properties are those of the record, with DELAY, REAL_TOPIC and REAL_QID, as RocketMQ has them. Raises
    RecordError for a record that is corrupt, does not name its real topic, or is a half message: half messages must not
    be delivered this way.
    """
    record = read_fields(data, 0, len(data))
    properties = stored_properties.read(record.properties).encoded_again()
    topic, queue_text = properties.get(names.REAL_TOPIC), properties.get(names.REAL_QUEUE_ID)
    if not topic or queue_text is None or not is_queue_id(queue_text):
        raise RecordError(f"REAL_TOPIC {topic!r} and REAL_QID {queue_text!r} do not name a queue")
    if topic == TRANS_HALF_TOPIC:
        raise RecordError("it is a half message")
    return stored_again(data, record, topic, int(queue_text), properties)
