"""QuotaRefusals: how often quotas refused or delayed a request, by kind and quota. The names of accounts, addresses and
groups are not among the counters, so they stay few; the log line has the last refusal. Touched only on the event loop.
"""

from __future__ import annotations

import structlog

log = structlog.get_logger("triomq.broker.quotas")


class QuotaRefusals:
    """See the module's docstring."""

    def __init__(self) -> None:
        self._refused: dict[tuple[str, str], int] = {}
        self._delayed: dict[tuple[str, str], int] = {}
        self._logged = 0
        self._last = ""

    @property
    def refused_total(self) -> int:
        return sum(self._refused.values())

    def refused(self, kind: str, quota: str, remark: str, remote: str) -> None:
        """Count a request that was refused."""
        self._refused[kind, quota] = self._refused.get((kind, quota), 0) + 1
        self._last = f"{remark} (from {remote})"

    def delayed(self, kind: str, quota: str) -> None:
        """Count a pull that waits for its share."""
        self._delayed[kind, quota] = self._delayed.get((kind, quota), 0) + 1

    def counts(self) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]]:
        """Return (kind, quota) -> requests refused, and -> pulls delayed."""
        return dict(self._refused), dict(self._delayed)

    def values(self) -> dict[str, str]:
        """Return the counters that are above 0, under their keys in the runtime information."""
        refused = {f"quotaRefused_{kind}_{quota}": str(count) for (kind, quota), count in self._refused.items()}
        delayed = {f"quotaDelayed_{kind}_{quota}": str(count) for (kind, quota), count in self._delayed.items()}
        return dict(sorted(refused.items())) | dict(sorted(delayed.items()))

    def log_refusals(self) -> None:
        """Log one line if requests were refused since the last one. A task calls this every second."""
        total = self.refused_total
        if total != self._logged:
            log.warning("quotas exceeded; requests were refused", requests=total - self._logged, last=self._last)
            self._logged = total
