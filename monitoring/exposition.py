"""The two text formats of Prometheus: families of samples as lines, in steps.

A family is a name, a type, a sentence, and its samples. Samples may be an iterator that computes them one by one, and
`Page.text` yields the page piece by piece, each after at most `STEP_SECONDS` of work, so that the caller can let other
tasks run in between. Instead of a sample an iterator may yield a number: of series that are left out here, perhaps
none.

    text         "text/plain; version=0.0.4", what Prometheus reads without being asked for more
    OpenMetrics  "application/openmetrics-text; version=1.0.0", if the Accept header names it

They differ in little here: OpenMetrics names the family of a counter without `_total`, and ends with `# EOF`.

The iterators bound the series of a family (`bounded`); the page adds up what is left out, for a family of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import inf, isnan
from typing import Final, TypeAlias, TypeVar

from triomq.monitoring.histogram import Histogram

Key = TypeVar("Key")

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"

TEXT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

STEP_SECONDS: Final = 0.0005
"""A piece of text takes this long to make, and one sample more."""
PIECE_BYTES: Final = 32 * 1024
_COUNT_AT_ONCE: Final = 256

Value: TypeAlias = "int | float | Histogram"
Sample: TypeAlias = tuple[str, Value]
"""The text of the labels, as `labels` returns it, and the value."""
Samples: TypeAlias = "Iterable[Sample | int]"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric with all its series. The name of a counter ends in `_total`."""

    name: str
    kind: str
    meaning: str
    samples: Samples


def counter(name: str, meaning: str, samples: Samples) -> Family:
    return Family(name, COUNTER, meaning, samples)


def gauge(name: str, meaning: str, samples: Samples) -> Family:
    return Family(name, GAUGE, meaning, samples)


def histogram(name: str, meaning: str, samples: Samples) -> Family:
    return Family(name, HISTOGRAM, meaning, samples)


def one(value: Value) -> Samples:
    """Return the samples of a family with one series that has no labels."""
    return [("", value)]


def bounded(keys: Iterable[Key], limit: int, sample_of: Callable[[Key], Sample | None]) -> Iterator[Sample | int]:
    """Yield the samples of the first `limit` keys that have one, then how many keys are left out."""
    shown = passed = 0
    for key in keys:
        if shown >= limit:
            passed += 1
            if passed == _COUNT_AT_ONCE:
                yield passed
                passed = 0
            continue
        sample = sample_of(key)
        if sample is None:
            yield 0
        else:
            shown += 1
            yield sample
    yield passed


def labels(**values: str) -> str:
    """Return the labels of a series as text, without the braces."""
    return ",".join([f'{name}="{escaped(value)}"' for name, value in values.items()])


def escaped(value: str) -> str:
    """Return a label value as it stands between quotes."""
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return value


def number(value: int | float) -> str:
    """Return a value as both formats write it."""
    if isinstance(value, float):
        if value == inf:
            return "+Inf"
        if value == -inf:
            return "-Inf"
        if isnan(value):
            return "NaN"
    return repr(value)


class Page:
    """One scrape: renders families one after another. `left_out` is family -> series that are not shown, as far as it
    is rendered, for the families that may leave some out; `spent_seconds` is what the rendered part took of the loop.
    `on_failure` hears of samples that cannot be computed; the page continues without them."""

    def __init__(
        self,
        *,
        is_openmetrics: bool,
        on_failure: Callable[[str, Exception], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._is_openmetrics = is_openmetrics
        self._on_failure = on_failure
        self._clock = clock
        self.left_out: dict[str, int] = {}
        self.spent_seconds = 0.0

    @property
    def content_type(self) -> str:
        return OPENMETRICS_TYPE if self._is_openmetrics else TEXT_TYPE

    def text(self, families: Iterable[Family]) -> Iterator[str]:
        """Yield the page in pieces; a piece may be empty. Each is one step of work."""
        pending: list[str] = []
        size = 0
        until = self._clock() + STEP_SECONDS
        for family in families:
            for line in self._lines(family):
                pending.append(line)
                size += len(line)
                if size >= PIECE_BYTES or self._clock() >= until:
                    yield "".join(pending)
                    pending.clear()
                    size = 0
                    until = self._clock() + STEP_SECONDS
        if self._is_openmetrics:
            pending.append("# EOF\n")
        yield "".join(pending)

    def _lines(self, family: Family) -> Iterator[str]:
        """Yield the lines of a family; an empty one where the work may be interrupted."""
        name = family.name
        of_family = name.removesuffix("_total") if self._is_openmetrics and family.kind == COUNTER else name
        meaning = family.meaning.replace("\\", "\\\\").replace("\n", "\\n")
        if self._is_openmetrics:
            meaning = meaning.replace('"', '\\"')
        head = f"# HELP {of_family} {meaning}\n# TYPE {of_family} {family.kind}\n"
        has_head = False
        for sample in self._samples(family):
            if isinstance(sample, int):
                self.left_out[name] = self.left_out.get(name, 0) + sample
                yield ""
                continue
            if not has_head:
                has_head = True
                yield head
            text, value = sample
            if isinstance(value, Histogram):
                yield _histogram_lines(name, text, value)
            elif text:
                yield f"{name}{{{text}}} {number(value)}\n"
            else:
                yield f"{name} {number(value)}\n"

    def _samples(self, family: Family) -> Iterator[Sample | int]:
        try:
            yield from family.samples
        except Exception as error:
            self._on_failure(family.name, error)


def _histogram_lines(name: str, text: str, value: Histogram) -> str:
    comma = "," if text else ""
    braces = f"{{{text}}}" if text else ""
    lines = [f'{name}_bucket{{{text}{comma}le="{number(edge)}"}} {count}\n' for edge, count in value.cumulative()]
    lines.append(f"{name}_sum{braces} {number(value.total)}\n{name}_count{braces} {value.count}\n")
    return "".join(lines)


def wants_openmetrics(accept: str) -> bool:
    """Return whether an Accept header asks for OpenMetrics 1.0.0 at least as much as for the plain text format."""
    wanted = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for part in accept.split(","):
        kind, *parameters = [piece.strip() for piece in part.split(";")]
        given = dict(parameter.partition("=")[::2] for parameter in parameters)
        if kind in wanted and given.get("version", "1.0.0").strip('"') in ("1.0.0", "0.0.4"):
            wanted[kind] = max(wanted[kind], _quality(given.get("q", "1")))
    return wanted["application/openmetrics-text"] > 0 and (
        wanted["application/openmetrics-text"] >= wanted["text/plain"]
    )


def _quality(text: str) -> float:
    try:
        quality = float(text)
    except ValueError:
        return 0.0
    return quality if 0 <= quality <= 1 else 0.0
