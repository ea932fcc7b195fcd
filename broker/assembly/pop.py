"""The parts of POP: messages received one by one (broker/pop)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog
import trio
from msgspec import Struct

from triomq.broker.assembly.tables import Tables
from triomq.broker.message_writer import MessageWriter
from triomq.broker.pop.dead_letters import DeadLetters
from triomq.broker.pop.deliveries import Deliveries, DeliveryEvents
from triomq.broker.pop.figures import InFlightFigures
from triomq.broker.pop.group_queues import Key
from triomq.broker.pop.log import InFlightLog
from triomq.broker.pop.waiting import Waiting
from triomq.broker.processors.ack import AckProcessor
from triomq.broker.processors.offsets import Recency
from triomq.broker.processors.pop import PopProcessor
from triomq.broker.processors.pull import PullProcessor
from triomq.broker.pulls.selection import FilterChooser
from triomq.daemon.errors import ExitCode, StartError
from triomq.remoting.processor_table import Processor
from triomq.store.config import FlushDiskType
from triomq.store.disk.files import Files
from triomq.store.disk.worker_thread import WorkerThread

log = structlog.get_logger("triomq.broker.pop")

CLEAN_SECONDS: Final = 10.0
"""How often messages in flight that belong to no topic or group are searched for."""
GIVEN_BACK_IN_A_STEP: Final = 128


class Pop(Struct, frozen=True):
    """All of them; `log` is not written in a group of brokers."""

    tables: Tables
    deliveries: Deliveries
    waiting: Waiting
    log: InFlightLog
    processors: Mapping[int, Processor]
    thread: WorkerThread

    async def load(self) -> None:
        """Read the log, and begin a new file of it. What the store has lost is dropped on the disk as well when this
        returns. Raises StartError, OSError."""
        try:
            is_less = self.deliveries.load(self.log.read())
        except (ValueError, LookupError, TypeError) as error:
            raise StartError(
                f"{self.log.directory}: the log of messages in flight cannot be read ({error!r}). It may be of a newer "
                "version. Without this directory groups receive again what they have not acknowledged",
                ExitCode.REFUSED,
            ) from None
        self.log.begin()
        if is_less:
            await self.log.sync()

    async def give_back(self, popped: dict[tuple[Key, int], int]) -> None:
        """Let messages be ready again whose clients are gone: queue and queue offset -> the time in the handle (Unix
        ms), if that is still valid."""
        for number, ((key, queue_offset), popped_ms) in enumerate(popped.items()):
            if number % GIVEN_BACK_IN_A_STEP == 0:
                await trio.lowlevel.checkpoint()
            try:
                self.deliveries.change_invisible_time(key, queue_offset, popped_ms, 0)
            except OSError as error:
                left = len(popped) - number
                log.error("messages of a lost client not given back", error=str(error), left=left)
                return

    def figures(self, topic: str, group: str, queue_id: int) -> InFlightFigures | None:
        """Return what is in flight in a queue; None if the group does not receive of it."""
        return self.deliveries.figures(Key(topic, group, queue_id))

    async def run(self) -> None:
        """Sync the log, wake receives and clean, until cancelled; then sync a last time."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.log.run)
                nursery.start_soon(self.waiting.run)
                nursery.start_soon(self._clean)
        finally:
            with trio.CancelScope(shield=True):
                await self.log.close()
            self.thread.end()

    def deposed(self) -> None:
        """Forget what is in flight, and answer the receives that wait: another member leads the group, or none."""
        self.deliveries.forget_all()
        self.waiting.run_all()

    async def _clean(self) -> None:
        metadata = self.tables.metadata
        while True:
            await trio.sleep(CLEAN_SECONDS)
            try:
                await self.deliveries.clean(
                    lambda topic: metadata.topics.get(topic) is not None,
                    lambda group: metadata.groups.get(group) is not None,
                )
            except OSError as error:
                log.error("messages in flight not cleaned", error=str(error))


def build_pop(
    tables: Tables, pull: PullProcessor, filters: FilterChooser, writer: MessageWriter, directory: str
) -> Pop:
    """Build them. Nothing is read or written yet."""
    configuration, metadata, store = tables.configuration, tables.metadata, tables.store
    surroundings = tables.surroundings
    thread = WorkerThread("messages in flight")
    deliveries = Deliveries(
        store.reading,
        metadata.offsets,
        now_ms=tables.now_ms,
        limits=lambda: (
            configuration.broker.pop_max_in_flight_of_group,
            configuration.broker.pop_max_in_flight,
        ),
        account=surroundings.table_memory.account("messages in flight"),
        is_recent=Recency(configuration, store).is_recent,
    )
    in_flight_log = InFlightLog(
        surroundings.files,
        directory,
        deliveries.state,
        sync_seconds=lambda: _sync_seconds(tables),
        offload=surroundings.offload or thread,
    )
    if tables.group is None:
        deliveries.use(in_flight_log)
    waiting = Waiting(deliveries, store.reading, pull.long_polling, tables.now_ms)
    deliveries.tell(DeliveryEvents(times_changed=waiting.times_changed, moved=waiting.wake))
    tables.listeners.on_jump(waiting.time_jumped)
    receives = PopProcessor(
        configuration,
        store,
        metadata,
        filters,
        waiting,
        DeadLetters(deliveries, metadata.topics, writer),
        stats=tables.stats,
        quotas=pull.quotas,
    )
    acks = AckProcessor(configuration, metadata, store, deliveries, in_flight_log)
    return Pop(tables, deliveries, waiting, in_flight_log, {**receives.processors(), **acks.processors()}, thread)


def _sync_seconds(tables: Tables) -> float:
    settings = tables.configuration.store
    is_sync = settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
    return 0.0 if is_sync else settings.flush_interval_commit_log_ms / 1000


def remove_log(files: Files, directory: str) -> None:
    """Remove a log that means nothing any more. Raises OSError."""
    names = files.list_directory(directory)
    for name in names:
        files.unlink(f"{directory}/{name}")
    files.sync_directory(directory)
    log.warning("log of messages in flight removed: only a master has one", path=directory, files=len(names))
