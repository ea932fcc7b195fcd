"""POP's parts (assembly/pop.py): they come with the first request that needs them, or with a log that is on the disk.
So a broker without receives has neither their code nor their tasks."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

import trio

from triomq.broker import optional
from triomq.broker.assembly.tables import Tables
from triomq.broker.message_writer import MessageWriter
from triomq.broker.processors.pull import PullProcessor
from triomq.broker.pulls.selection import FilterChooser
from triomq.protocol.command import RemotingCommand
from triomq.remoting.connection import Connection

if TYPE_CHECKING:
    from triomq.broker.assembly.pop import Pop
    from triomq.broker.pop.figures import InFlightFigures
    from triomq.broker.pop.group_queues import Key

DIRECTORY: Final = "pop"
"""The directory of the log of messages in flight, in that of the store."""


class PopOnDemand:
    """A processor of POP's requests, and what the broker's life has to do with them."""

    def __init__(self, tables: Tables, pull: PullProcessor, filters: FilterChooser, writer: MessageWriter) -> None:
        self._tables = tables
        self._pull = pull
        self._filters = filters
        self._writer = writer
        self._background: trio.Nursery | None = None
        self.parts: Pop | None = None
        """None: nothing was received yet."""

    @property
    def _directory(self) -> str:
        return f"{self._tables.configuration.store.store_path_root_dir}/{DIRECTORY}"

    async def load(self) -> None:
        """Read what is in flight, before the store takes messages. Raises OSError.

        A slave and a member of a group remove the log: offsets in it may come to mean other messages, as their master's
        log replaces theirs."""
        tables = self._tables
        if not tables.surroundings.files.list_directory(self._directory):
            return
        if tables.configuration.role.is_slave or tables.group is not None:
            optional.pop.remove_log(tables.surroundings.files, self._directory)
            return
        self.parts = self._build()
        await self.parts.load()

    def start(self, background: trio.Nursery) -> None:
        """Run the tasks of the parts in this nursery, from when they are there."""
        self._background = background
        if self.parts is not None:
            background.start_soon(self.parts.run)

    def __call__(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand | None] | None:
        """Handle a request of POP."""
        if self.parts is None:
            self.parts = self._build()
            if self._background is not None:
                self._background.start_soon(self.parts.run)
        return self.parts.processors[request.code](connection, request)

    def figures(self, topic: str, group: str, queue_id: int) -> InFlightFigures | None:
        """Return what is in flight in a queue; None if the group does not receive of it."""
        return self.parts.figures(topic, group, queue_id) if self.parts is not None else None

    def give_back(self, popped: dict[tuple[Key, int], int]) -> None:
        """Let messages be ready again soon, as `Pop.give_back` does."""
        if popped and self.parts is not None and self._background is not None:
            self._background.start_soon(self.parts.give_back, popped)

    def deposed(self) -> None:
        """Deliver nothing any more: this broker does not lead its group."""
        if self.parts is not None:
            self.parts.deposed()

    def topic_made_again(self, topic: str) -> None:
        """Forget what is in flight of the topic's former life. Raises OSError."""
        if self.parts is not None:
            self.parts.deliveries.end_topic(topic)

    def _build(self) -> Pop:
        return optional.pop.build_pop(self._tables, self._pull, self._filters, self._writer, self._directory)
