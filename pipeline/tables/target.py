"""What a table of any format can do. Rows and positions are committed together or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from typing import Any, Protocol

from triomq.protocol.message_queue import MessageQueue
from triomq.spark.jobs.session import JobFailed
from triomq.spark.positions import Positions


@dataclass(frozen=True, slots=True)
class About:
    """What a table is of. `cluster`: name of the cluster, as its brokers register it. `key`: the column of which the
    table has the last row of each value; empty for one with all messages."""

    topic: str
    cluster: str
    key: str = ""


class Conflict(Exception):
    """Another writer has committed since this one read the table; nothing was written."""


class Target(Protocol):
    """A table at one place. Methods raise JobFailed for a place that cannot be read or written."""

    def about(self) -> About | None:
        """Read the table again. None: there is none; JobFailed: it is not one that this job has made."""

    def kinds(self) -> dict[str, str]:
        """Column name -> type name, as last read."""

    def positions(self, queues: Sequence[MessageQueue]) -> Positions:
        """The positions as last read; queues without one are left out."""

    def create(self, about: About, schema: Any, positions: Positions) -> None:
        """Make an empty table. Raises Conflict if there is one."""

    def add_columns(self, columns: dict[str, Any]) -> None:
        """Add nullable columns, name -> Arrow type, in a commit of its own. Raises Conflict. Read the table again."""

    def commit(self, rows: Any, positions: Positions) -> None:
        """Append an Arrow table and set the positions. Raises Conflict."""

    def replace(self, rows: Any, key: str, positions: Positions) -> None:
        """Replace the rows with the keys of an Arrow table, which has each key once, and set the positions. A row of
        another queue that was stored later stays. Raises Conflict."""

    def compact(self) -> None:
        """Merge the small files of each partition, in commits of their own. Raises Conflict. Read the table again."""

    def remove_before(self, day: date) -> None:
        """Remove the rows of the days before, in a commit of its own. Raises Conflict. Read the table again."""

    def close(self) -> None:
        """Let go of locks."""


@contextmanager
def failures_at(url: str, *kinds: type[BaseException]) -> Iterator[None]:
    """Turn errors of a library into JobFailed with one line."""
    wanted: tuple[type[BaseException], ...] = (OSError, *kinds)
    try:
        yield
    except wanted as error:
        if isinstance(error, OSError) and error.strerror:
            raise JobFailed(f"--to {url}: {error.strerror}") from error
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise JobFailed(f"--to {url}: {'; '.join(lines)[:400] or type(error).__name__}") from error
