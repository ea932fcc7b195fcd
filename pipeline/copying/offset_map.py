"""Where the messages of one queue went: runs of offsets at the source, and the offset at the target where each begins.

A run is [source begin, target begin, count]. Runs are in order on both sides, since one sender fills the queue in
order. Adjacent runs are one, so a queue that nobody else writes to has one run. At most MAX_RUNS are kept: of the older
half every second run is forgotten, never the first. Offsets in a forgotten run become earlier ones.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

MAX_RUNS: Final = 256


class OffsetMap:
    """Owned by the copy of one queue."""

    def __init__(self, runs: Iterable[Iterable[int]] = ()) -> None:
        self.runs: list[list[int]] = [list(run) for run in runs]

    def add(self, source: int, target: int, count: int) -> None:
        """Note that [source, source + count) went to [target, target + count). What was noted of these offsets and
        later ones is forgotten: the target has lost it, or it was copied again."""
        self.cut(source)
        self.cut_target(target)
        last = self.runs[-1] if self.runs else None
        if last is not None and last[0] + last[2] == source and last[1] + last[2] == target:
            last[2] += count
            return
        self.runs.append([source, target, count])
        if len(self.runs) > MAX_RUNS:
            half = MAX_RUNS // 2
            self.runs = [*self.runs[:half:2], *self.runs[half:]]

    def cut(self, source: int) -> None:
        """Forget everything from this source offset on."""
        while self.runs and self.runs[-1][0] >= source:
            self.runs.pop()
        if self.runs:
            self.runs[-1][2] = min(self.runs[-1][2], source - self.runs[-1][0])

    def cut_target(self, target: int) -> None:
        """Forget everything from this target offset on: the target has lost it."""
        while self.runs and self.runs[-1][1] >= target:
            self.runs.pop()
        if self.runs:
            self.runs[-1][2] = min(self.runs[-1][2], target - self.runs[-1][1])

    def translate(self, source: int) -> int | None:
        """Return the target offset from which a group that has consumed everything before `source` continues: never
        behind a message that it has not consumed. None while nothing has been copied."""
        if not self.runs:
            return None
        at = bisect_right(self.runs, source, key=lambda run: run[0]) - 1
        if at < 0:
            return self.runs[0][1]
        begin, target, count = self.runs[at]
        return target + min(source - begin, count)
