"""What a connection is given (remoting.connection): its bounds and its driver."""

from __future__ import annotations

from typing import Protocol, TypeVar

from msgspec import Struct

from triomq.protocol.command import RemotingCommand
from triomq.protocol.frame import MAX_FRAME_BYTES
from triomq.remoting.memory import MemoryBudget
from triomq.remoting.scheduling.step_line import StepLine

C = TypeVar("C", contravariant=True)
"""The connection (remoting.connection)."""

DEFAULT_HIGH_WATER_BYTES = 4 * 1024 * 1024
TIGHT_HIGH_WATER_BYTES = 64 * 1024
"""The high water mark while memory is tight."""


class RequestHandler(Protocol[C]):
    """Handles the peer's requests (processor_table.ProcessorTable)."""

    def handle(self, connection: C, request: RemotingCommand) -> None: ...


class Transport(Protocol):
    """What a driver provides to its connection."""

    def write(self, data: bytes) -> None: ...

    def write_pieces(self, pieces: list[bytes]) -> None:
        """Write long pieces one behind the other; `write` of them joined would copy them."""

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...


class ConnectionSettings(Struct, frozen=True):
    """Bounds of a connection, and the header codec and language of its own requests. A water mark of 0 means the
    default: 4 MiB, and a quarter of the high one. `language` is a LanguageCode; None keeps that of each request.
    `memory` is the budget of all connections of a server, `step_line` the line of their tasks."""

    max_frame_bytes: int
    max_unanswered: int
    max_header_bytes: int = MAX_FRAME_BYTES
    high_water_bytes: int = 0
    low_water_bytes: int = 0
    serialize_type: int = 0
    language: int | None = None
    memory: MemoryBudget | None = None
    step_line: StepLine | None = None
