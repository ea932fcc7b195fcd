"""Clocks that move only when a test moves them. For the time of trio itself there is its MockClock."""

from __future__ import annotations


class FakeClock:
    """A wall clock in ms; each reading moves it by `step_ms` first."""

    def __init__(self, now_ms: int = 1_700_000_000_000, step_ms: int = 0) -> None:
        self.now_ms = now_ms
        self.step_ms = step_ms

    def __call__(self) -> int:
        self.now_ms += self.step_ms
        return self.now_ms

    def advance(self, ms: int) -> None:
        self.now_ms += ms


class FakeSeconds:
    """A monotonic clock in seconds; each reading moves it by `step` first."""

    def __init__(self, now: float = 1000.0, step: float = 0.0) -> None:
        self.now = now
        self.step = step

    def __call__(self) -> float:
        self.now += self.step
        return self.now
