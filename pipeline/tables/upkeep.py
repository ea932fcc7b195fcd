"""What is done to a table beside its commits: small files are merged, and old days are removed.

Both are commits that leave the positions as they are, so a kill changes nothing. A commit of another writer meanwhile
makes them a Conflict, and they are tried again the next time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from triomq.pipeline.tables.target import Conflict, Target

EVERY_SECONDS: Final = 3600.0
SMALL_BYTES: Final = 128 * 1024 * 1024
"""A file that is smaller may be merged."""
MERGED_BYTES: Final = 256 * 1024 * 1024
"""Files that are merged have no more than this together, since they are read into memory."""


def utc_day() -> date:
    return datetime.now(UTC).date()


@dataclass
class Upkeep:
    """`days`: how many days before today are kept, or None for all."""

    targets: Sequence[Target]
    is_compacting: bool
    days: int | None
    today: Callable[[], date] = utc_day
    due_at: float = 0.0

    def run_if_due(self) -> None:
        """Run once an hour, counted from the first call."""
        now = time.monotonic()
        if self.due_at == 0.0:
            self.due_at = now + EVERY_SECONDS
        elif now >= self.due_at:
            self.due_at = now + EVERY_SECONDS
            self.run()

    def run(self) -> None:
        for target in self.targets:
            try:
                if self.days is not None:
                    target.remove_before(self.today() - timedelta(days=self.days))
                    target.about()
                if self.is_compacting:
                    target.compact()
            except Conflict:
                continue
            finally:
                target.about()
