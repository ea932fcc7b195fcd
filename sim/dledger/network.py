"""Messages between members: each takes its time, or is lost, doubled, or cut off; cuts may have one direction.

A connection belongs to two processes. What was sent to a process that has ended never reaches its successor; other than
that a late message may arrive at any time, also after the call that it belongs to was given up.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random


@dataclass
class Weather:
    """How bad the network is at present. Rates are probabilities of one message."""

    loss: float = 0.0
    double: float = 0.0
    late: float = 0.0
    delay_ms: int = 3


@dataclass
class Network:
    """What happens to the messages of one run."""

    choose: Random
    counts: Counter[str]
    weather: Weather = field(default_factory=Weather)
    cuts: set[tuple[str, str]] = field(default_factory=set)

    def delays(self, source: str, target: str) -> list[int]:
        """Return after how many milliseconds copies of a message arrive; none if it is lost."""
        if (source, target) in self.cuts:
            self.counts["cut off"] += 1
            return []
        weather = self.weather
        choose = self.choose
        if weather.loss and choose.random() < weather.loss:
            self.counts["lost"] += 1
            return []
        found = [1 + int(choose.random() * weather.delay_ms)]
        if weather.late and choose.random() < weather.late:
            found[0] += int(choose.random() * 6000)
            self.counts["late"] += 1
        if weather.double and choose.random() < weather.double:
            found.append(found[0] + int(choose.random() * 4000))
            self.counts["doubled"] += 1
        return found

    def cut(self, source: str, target: str) -> None:
        self.cuts.add((source, target))

    def heal(self) -> None:
        self.cuts.clear()
        self.weather = Weather()
