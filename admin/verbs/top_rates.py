"""The rates of topics, from the offsets of one picture of `top` and the next, and small graphs of them.

`Rates` owns the totals of the last picture and the last rates of each topic; topics that are gone are forgotten.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from time import monotonic

from triomq.admin.cluster_view import attempt
from triomq.admin.routes import DLQ_PREFIX, RETRY_PREFIX, all_topics, queue_items

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from triomq.admin.run import Run

    # topic -> (messages that queues hold, the sum of their next offsets, the sum of the offsets of all groups)
    Totals = dict[str, tuple[int, int, int]]

MAX_TOPICS = 500  # each costs a request to each master in each picture
HISTORY = 30
BARS, PLAIN_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"


def topic_totals(run: Run, masters: list[str], consumed: dict[str, int]) -> Totals:
    """Ask the masters about the first MAX_TOPICS topics by name; retries and dead letters are left out."""
    names = sorted([name for name in all_topics(run.session) if not name.startswith((RETRY_PREFIX, DLQ_PREFIX))])
    totals = {}
    for name in names[:MAX_TOPICS]:
        held = end = 0
        for address in masters:
            body = attempt(run, address, 202, {"topic": name}) or {}  # a broker that has no such topic refuses
            for _, offsets in queue_items(body.get("offsetTable", {})):
                held += max(0, offsets["maxOffset"] - offsets["minOffset"])
                end += offsets["maxOffset"]
        totals[name] = (held, end, consumed.get(name, 0))
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
        for name, (held, end, consumed) in totals.items():
            rates: tuple[float | None, float | None] = (None, None)
            if name in self._earlier and seconds > 0:
                _, end_before, consumed_before = self._earlier[name]
                # A topic that was deleted and made again, or a group that was moved back, has no rate below 0.
                per_second = [max(0, end - end_before) / seconds, max(0, consumed - consumed_before) / seconds]
                rates = (round(per_second[0], 1), round(per_second[1], 1))
                self._history.setdefault(name, deque(maxlen=HISTORY)).append(per_second[0])
            items.append({"kind": "topic", "name": name, "inTps": rates[0], "outTps": rates[1], "messages": held})
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
