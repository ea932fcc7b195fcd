"""The results of a self-test, and the text that users read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "FAILED"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: its name, the outcome, and a sentence with the measurement or the advice."""

    check: str
    outcome: Outcome
    detail: str


@dataclass(frozen=True, slots=True)
class Speed:
    """Messages of 1 KiB that one store accepts in one flush mode."""

    flush: str
    messages: int
    seconds: float

    @property
    def messages_per_second(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Kills:
    """The processes killed during writes in one flush mode. `lost` counts missing acknowledged messages; `damage` says
    what is wrong with present ones, or is empty.
    """

    flush: str
    kills: int
    acknowledged: int
    lost: int
    damage: str = ""


def percentile(sorted_values: Sequence[float], percent: float) -> float:
    """Return the smallest value that `percent` of the values do not exceed. Raises IndexError without values."""
    rank = -(-len(sorted_values) * percent // 100)
    return sorted_values[max(0, int(rank) - 1)]


@dataclass(frozen=True, slots=True)
class Report:
    findings: Sequence[Finding]
    speeds: Sequence[Speed]
    kills: Sequence[Kills]

    @property
    def is_ok(self) -> bool:
        """Return whether nothing failed and no acknowledged message was lost; warnings are allowed."""
        return not any(found.outcome is Outcome.FAILED for found in self.findings) and not any(
            killed.lost or killed.damage for killed in self.kills
        )

    def lines(self) -> list[str]:
        width = max((len(found.check) for found in self.findings), default=0)
        lines = [f"{found.check:{width}}  {found.outcome.value:7}  {found.detail}" for found in self.findings]
        lines += [
            f"{speed.flush}: {speed.messages_per_second:,.0f} messages of 1 KiB a second, 64 for each commit"
            for speed in self.speeds
        ]
        lines += [
            f"{killed.flush}: {killed.kills} processes killed while they wrote, {killed.acknowledged} messages "
            f"acknowledged, {killed.lost} lost{'; ' if killed.damage else ''}{killed.damage}"
            for killed in self.kills
        ]
        return [*lines, *self.promises()]

    def promises(self) -> list[str]:
        """Return one sentence per flushDiskType: what an acknowledged message survives on this machine."""
        if not self.is_ok:
            return ["Do not keep a store here: see what failed above."]
        doubts = [found.check for found in self.findings if found.outcome is Outcome.WARNING and found.check in _SYNCS]
        power = (
            f"a power failure is in doubt ({', '.join(doubts)})"
            if doubts
            else "and a power failure, if the drive keeps what it reports as synced (only a power cut can show that)"
        )
        return [
            f"flushDiskType=SYNC_FLUSH: acknowledged messages survive a killed broker{';' if doubts else ''} {power}.",
            "flushDiskType=ASYNC_FLUSH: acknowledged messages survive a killed broker; a power failure takes those of "
            "about the last half second.",
        ]


FILE_SYSTEM = "file system"
SYNC = "sync"
_SYNCS = frozenset({FILE_SYSTEM, SYNC})
