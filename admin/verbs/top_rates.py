"""The rates of topics, from the ends of one picture of `top` and the next and from the brokers' counters, and small
graphs of them.

`Rates` owns the totals of the last picture and the last rates of each topic; topics that are gone are forgotten.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from time import monotonic

from triomq.admin.cluster_view import attempt
from triomq.admin.commands.rates import rates_of
from triomq.admin.routes import DLQ_PREFIX, RETRY_PREFIX, all_topics, queue_items

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from triomq.admin.run import Run

    # topic -> (messages that queues hold, the sum of their next offsets, messages that groups read a second)
    Totals = dict[str, tuple[int, int, float]]

MAX_TOPICS = 500  # each costs a request to each master in each picture
MAX_READERS = 20  # of a topic; each costs such a request, too
HISTORY = 30
BARS, PLAIN_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"


def topic_totals(run: Run, masters: list[str], readers: dict[str, set[str]]) -> Totals:
    """Ask the masters about the first MAX_TOPICS topics by name, and of each for at most MAX_READERS of its groups;
    retries and dead letters are left out. `readers` are the groups of each topic."""
    names = sorted([name for name in all_topics(run.session) if not name.startswith((RETRY_PREFIX, DLQ_PREFIX))])
    totals = {}
    for name in names[:MAX_TOPICS]:
        held = end = 0
        for address in masters:
            body = attempt(run, address, 202, {"topic": name}) or {}  # a broker that has no such topic refuses
            for _, offsets in queue_items(body.get("offsetTable", {})):
                held += max(0, offsets["maxOffset"] - offsets["minOffset"])
                end += offsets["maxOffset"]
        groups = sorted(readers.get(name, ()))[:MAX_READERS]
        out = sum([rates_of(run, masters, "GROUP_GET_NUMS", f"{name}@{group}")[0] for group in groups])
        totals[name] = (held, end, out)
    return totals


class Rates:
    def __init__(self) -> None:
        self._earlier: Totals = {}
        self._taken = 0.0
        self._history: dict[str, deque[float]] = {}

    def items(self, totals: Totals) -> list[dict[str, Any]]:
        """Return what `top` shows of topics, the busiest first. The next rates count from these totals."""
        now = monotonic()
        seconds = now - self._taken
        items: list[dict[str, Any]] = []
        for name, (held, end, out) in totals.items():
            rate: float | None = None
            if name in self._earlier and seconds > 0:
                # A topic that was deleted and made again has no rate below 0.
                per_second = max(0, end - self._earlier[name][1]) / seconds
                rate = round(per_second, 1)
                self._history.setdefault(name, deque(maxlen=HISTORY)).append(per_second)
            items.append({"kind": "topic", "name": name, "inTps": rate, "outTps": round(out, 1), "messages": held})
        self._earlier = totals
        self._taken = now
        self._history = {name: rates for name, rates in self._history.items() if name in totals}
        items.sort(key=lambda item: (-(item["inTps"] or 0) - (item["outTps"] or 0), -item["messages"], item["name"]))
        return items

    def history(self, name: str) -> list[float]:
        """Return the last rates of a topic, the newest last."""
        return list(self._history.get(name, ()))


def graph(rates: Sequence[float], encoding: str | None) -> str:
    """Return a bar for each rate, as high as its share of the highest; blank for 0."""
    bars = BARS
    try:
        bars.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        bars = PLAIN_BARS
    most = max(rates, default=0.0)
    if most <= 0:
        return " " * len(rates)
    top = len(bars) - 1
    return "".join([bars[min(top, max(1, ceil(rate / most * top)))] if rate > 0 else bars[0] for rate in rates])
