"""Limits of a YAML file, and which of them a report breaks. Pure, but for reading the file.

    topics:
      "orders*": {max_missing_messages: 0, max_born_to_stored_p99_ms: 500, min_messages_per_hour: 100}
    groups:
      "*": {max_dead_letters: 0, max_backlog: 10000}

Names are patterns as in a shell. All patterns that fit a topic or group count; one that fits none is broken, as is a
limit for a figure that is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import yaml

from triomq.spark.jobs.session import JobFailed

Item = Mapping[str, Any]
"""A topic or a group of a report."""


def _percent(name: str) -> Callable[[Item], float | None]:
    return lambda topic: 100 * topic[name] / topic["messages"] if topic["messages"] else 0.0


def _consumed_p99(topic: Item) -> float | None:
    known = [spread["p99"] for spread in topic["storedToConsumedMs"].values() if spread]
    return max(known, default=None)


TOPIC_FIGURES: Final[dict[str, Callable[[Item], float | None]]] = {
    "messages": lambda topic: topic["messages"],
    "messages_per_hour": lambda topic: min(topic["fullHours"], default=None),
    "missing_messages": lambda topic: topic["missing"],
    "body_bytes": lambda topic: topic["maxBytes"],
    "repeated_keys_percent": _percent("repeatedKeys"),
    "repeated_ids_percent": _percent("repeatedIds"),
    "born_to_stored_p99_ms": lambda topic: (topic["bornToStoredMs"] or {}).get("p99"),
    "stored_to_consumed_p99_ms": _consumed_p99,
}
GROUP_FIGURES: Final[dict[str, Callable[[Item], float | None]]] = {
    "dead_letters": lambda group: group["deadLetters"],
    "backlog": lambda group: group["backlog"],
    "behind_seconds": lambda group: None if group["behindMs"] is None else group["behindMs"] / 1000,
}
LIMITS: Final = {
    "topics": {
        *(f"max_{name}" for name in TOPIC_FIGURES if name not in ("messages", "messages_per_hour")),
        "min_messages",
        "max_messages",
        "min_messages_per_hour",
    },
    "groups": {f"max_{name}" for name in GROUP_FIGURES},
}


@dataclass(frozen=True, slots=True)
class Limit:
    """`of`: "topics" or "groups". `name`: like max_backlog."""

    of: str
    pattern: str
    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Broken:
    """A limit that is broken by a topic or group. `figure` is None if it is not known."""

    limit: Limit
    subject: str
    figure: float | None

    def item(self) -> dict[str, Any]:
        limit = {"limit": self.limit.name, "value": self.limit.value, "figure": self.figure}
        return {"of": self.limit.of, "name": self.subject, **limit, "what": self.text()}

    def text(self) -> str:
        one = self.limit.of.removesuffix("s")
        if not self.subject:
            return f"no {one} is named {self.limit.pattern!r}"
        figure = "unknown" if self.figure is None else f"{self.figure:,.10g}"
        return f"{one} {self.subject}: {self.limit.name} is {self.limit.value:,.10g}, and there is {figure}"


def read(path: str) -> list[Limit]:
    """Read the file. Raises JobFailed."""
    try:
        tree = yaml.safe_load(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise JobFailed(f"--thresholds: {path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise JobFailed(f"--thresholds: {path} is not YAML: {' '.join(str(error).split())}") from error
    return list(_limits(tree, path))


def _limits(tree: Any, path: str) -> Iterator[Limit]:
    for of, patterns in _members(tree, path, "the file", LIMITS):
        for pattern, limits in _members(patterns, path, of, None):
            for name, value in _members(limits, path, f"{of}: {pattern}", LIMITS[of]):
                if isinstance(value, bool) or not isinstance(value, (int, float)):
                    raise JobFailed(f"--thresholds: {path}: {of}: {pattern}: {name} is {value!r}, not a number")
                yield Limit(of, pattern, name, value)


def _members(tree: Any, path: str, where: str, known: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(tree, dict):
        raise JobFailed(f"--thresholds: {path}: {where} is no table of names")
    for name, value in tree.items():
        if known is not None and name not in known:
            raise JobFailed(f"--thresholds: {path}: {where} has {name!r}; possible are {', '.join(sorted(known))}")
        yield str(name), value


def broken(limits: list[Limit], report: Mapping[str, Any]) -> Iterator[Broken]:
    """Yield the limits that a report (report.report_of) breaks."""
    for limit in limits:
        figures = TOPIC_FIGURES if limit.of == "topics" else GROUP_FIGURES
        fitting = [one for one in report[limit.of] if fnmatchcase(one["name"], limit.pattern)]
        if not fitting:
            yield Broken(limit, "", None)
        side, _, name = limit.name.partition("_")
        for one in fitting:
            figure = figures[name](one)
            if figure is None or (figure > limit.value if side == "max" else figure < limit.value):
                yield Broken(limit, one["name"], figure)
