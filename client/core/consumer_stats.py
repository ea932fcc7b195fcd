"""Rates of one consumer over the last minute, for `mqadmin consumerStatus` (RocketMQ: ConsumerStatsManager).

Holds counters in buckets of five seconds for each topic: those of the last minute, and failures of the last hour. The
topics are those that the consumer subscribes to, which bounds the table.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from triomq.protocol.bodies.running_info import ConsumeStatus

BUCKET_MS = 5_000
WINDOW_MS = 60_000
FAILURES_WINDOW_MS = 3_600_000
FAILURES_BUCKET_MS = 60_000


@dataclass(slots=True)
class _Bucket:
    began_ms: int
    pulls: int = 0
    pull_cost_ms: int = 0
    pulled: int = 0
    calls: int = 0
    call_cost_ms: int = 0
    ok: int = 0
    failed: int = 0


class _Topic:
    def __init__(self) -> None:
        self.recent: deque[_Bucket] = deque(maxlen=WINDOW_MS // BUCKET_MS)
        self.hour: deque[_Bucket] = deque(maxlen=FAILURES_WINDOW_MS // FAILURES_BUCKET_MS)


class ConsumerStats:
    """Written by the pull loops and the consuming tasks, read when an administrator asks."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._topics: dict[str, _Topic] = {}

    def pulled(self, topic: str, cost_ms: int, count: int) -> None:
        """Count one pull that found `count` messages."""
        bucket = _bucket(self._topic(topic).recent, self._now_ms(), BUCKET_MS)
        bucket.pulls += 1
        bucket.pull_cost_ms += cost_ms
        bucket.pulled += count

    def consumed(self, topic: str, cost_ms: int, ok: int, failed: int) -> None:
        """Count one call of the listener."""
        now_ms = self._now_ms()
        known = self._topic(topic)
        bucket = _bucket(known.recent, now_ms, BUCKET_MS)
        bucket.calls += 1
        bucket.call_cost_ms += cost_ms
        bucket.ok += ok
        bucket.failed += failed
        if failed:
            _bucket(known.hour, now_ms, FAILURES_BUCKET_MS).failed += failed

    def of_topic(self, topic: str) -> ConsumeStatus:
        """Return rates per second and mean times in ms of the last minute."""
        now_ms = self._now_ms()
        known = self._topics.get(topic)
        if known is None:
            return ConsumeStatus()
        recent = [bucket for bucket in known.recent if now_ms - bucket.began_ms < WINDOW_MS]
        seconds = max(BUCKET_MS, now_ms - recent[0].began_ms) / 1000 if recent else 1.0
        pulls = sum(bucket.pulls for bucket in recent)
        calls = sum(bucket.calls for bucket in recent)
        return ConsumeStatus(
            pull_rt=sum(bucket.pull_cost_ms for bucket in recent) / pulls if pulls else 0.0,
            pull_tps=sum(bucket.pulled for bucket in recent) / seconds,
            consume_rt=sum(bucket.call_cost_ms for bucket in recent) / calls if calls else 0.0,
            consume_ok_tps=sum(bucket.ok for bucket in recent) / seconds,
            consume_failed_tps=sum(bucket.failed for bucket in recent) / seconds,
            consume_failed_msgs=sum(
                bucket.failed for bucket in known.hour if now_ms - bucket.began_ms < FAILURES_WINDOW_MS
            ),
        )

    def _topic(self, topic: str) -> _Topic:
        known = self._topics.get(topic)
        if known is None:
            known = self._topics[topic] = _Topic()
        return known


def _bucket(buckets: deque[_Bucket], now_ms: int, size_ms: int) -> _Bucket:
    began_ms = now_ms - now_ms % size_ms
    if not buckets or buckets[-1].began_ms != began_ms:
        buckets.append(_Bucket(began_ms))
    return buckets[-1]
