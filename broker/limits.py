"""Limits: fast failure of requests that come too late to be worth the work (RocketMQ: BrokerFastFailure).

RocketMQ reads its sockets immediately and queues requests in its executors; it refuses them beyond ten thousand, or
after waitTimeMillsIn*Queue. Here the sockets are the queues. A turn reads what it can handle in its time
(remoting/poller.py), the rest stays unread, and TCP slows the senders down: pipelined sends are delayed, not refused.
As in RocketMQ a request's age counts from the time it was read, which is the beginning of the turn that read it.
Requests ahead of it in the same read may still be slow; then its sender has given up or soon will, and a refusal saves
the work:

    [TIMEOUT_CLEAN_QUEUE]   the request waited longer than its kind may
    [PCBUSY_CLEAN_QUEUE]    a send that arrived while a commit took longer than osPageCacheBusyTimeOutMills
    [REJECTREQUEST]         a send within `BREATH_SECONDS` after such a commit, or while the write buffer of
                            transientStorePoolEnable cannot be emptied

All of it ends by itself with the next turn, or after `BREATH_SECONDS`. Clients try another broker when refused.

Each pool has a Gate (Pool.guard), which costs a request one comparison: the turn knows the time. Only the event loop
touches it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import structlog

from triomq.broker.configuration import Configuration
from triomq.broker.pools import Pools
from triomq.remoting.processor_table import Pool
from triomq.remoting.turn import Turn

log = structlog.get_logger("triomq.broker.limits")

BREATH_SECONDS = 0.1
"""How long sends are refused after a commit that took too long."""

REJECT = "[REJECTREQUEST]system busy, start flow control for a while"
CLEAN = "broker busy, start flow control for a while, period in queue: {waited_ms}ms, size of queue: {size}"
SLOW = "the last commit of the store took {commit_ms} ms, more than osPageCacheBusyTimeOutMills"
TOO_OLD = "[TIMEOUT_CLEAN_QUEUE]"
_ALWAYS = -1.0


class Gate:
    """The check that requests of one pool pass: it returns None to accept one, a remark to refuse it."""

    __slots__ = ("_pool", "_turn", "limit_seconds", "refused", "too_old")

    def __init__(self, pool: Pool, turn: Turn) -> None:
        self._pool = pool
        self._turn = turn
        self.limit_seconds = inf
        self.refused = 0
        self.too_old = 0  # the part of `refused` that had waited too long

    def __call__(self) -> str | None:
        turn = self._turn
        waited = turn.now - turn.arrived  # a request is handled in a turn
        if waited <= self.limit_seconds:
            return None
        return self.refuse(TOO_OLD, waited)

    def refuse(self, prefix: str, waited_seconds: float) -> str:
        self.refused += 1
        self.too_old += prefix == TOO_OLD
        return prefix + CLEAN.format(waited_ms=round(waited_seconds * 1000), size=self._pool.in_flight)


class SendGate(Gate):
    """The gate for sends, which are also refused while the store is slow. `limit_seconds` is then below any wait, so
    that the usual case stays one comparison."""

    __slots__ = ("_busy_since", "_drained_turn", "_slow_seconds", "_stuck_buffer", "_wait_seconds")

    def __init__(self, pool: Pool, turn: Turn, stuck_buffer: Callable[[], str | None] | None) -> None:
        super().__init__(pool, turn)
        self._stuck_buffer = stuck_buffer
        self._wait_seconds = inf
        self._busy_since: float | None = None
        self._slow_seconds = 0.0
        self._drained_turn: float | None = None

    def set_wait(self, seconds: float) -> None:
        self._wait_seconds = seconds
        if self._busy_since is None:
            self.limit_seconds = seconds

    def was_slow(self, seconds: float) -> None:
        """Refuse sends for a while: a slow commit of `seconds` has just ended."""
        self._busy_since = self._turn.read_clock()
        self._slow_seconds = seconds
        self._drained_turn = None
        self.limit_seconds = _ALWAYS

    def was_fast(self) -> None:
        """Check, after a commit that was not slow, whether the write buffer is stuck or no longer stuck."""
        if self._stuck_buffer is None:
            return
        if self._stuck_buffer() is not None:
            self.limit_seconds = _ALWAYS
        elif self._busy_since is None:
            self.limit_seconds = self._wait_seconds

    def __call__(self) -> str | None:
        turn = self._turn
        now = turn.now
        waited = now - turn.arrived
        if waited <= self.limit_seconds:
            return None
        if self.limit_seconds >= 0:
            return self.refuse(TOO_OLD, waited)
        return self._while_busy(now, waited)

    def _while_busy(self, now: float, waited: float) -> str | None:
        stuck = self._stuck_buffer() if self._stuck_buffer is not None else None
        if stuck is not None:
            self.refused += 1
            return f"{REJECT}: {stuck}"
        if self._busy_since is None or now - self._busy_since > BREATH_SECONDS:
            self._busy_since = None
            self.limit_seconds = self._wait_seconds
            return None if waited <= self._wait_seconds else self.refuse(TOO_OLD, waited)
        began = self._turn.arrived
        if self._drained_turn is None:
            self._drained_turn = began
        if began <= max(self._busy_since, self._drained_turn):
            return self.refuse("[PCBUSY_CLEAN_QUEUE]", max(waited, self._slow_seconds))
        self.refused += 1
        return f"{REJECT}: {SLOW.format(commit_ms=round(self._slow_seconds * 1000))}"


class Limits:
    """The gates of a broker. `stuck_buffer`, for stores with a write buffer, returns why it cannot be emptied,
    None if it can."""

    def __init__(
        self, configuration: Configuration, pools: Pools, turn: Turn, *, stuck_buffer: Callable[[], str | None] | None
    ) -> None:
        self._configuration = configuration
        self._send = SendGate(pools.send, turn, stuck_buffer)
        self._pull = Gate(pools.pull, turn)
        self._heartbeat = Gate(pools.heartbeat, turn)
        self._transaction = Gate(pools.transaction, turn)
        self._logged = 0
        self._gates: dict[str, Gate] = {}
        for pool, gate in (
            (pools.send, self._send),
            (pools.pull, self._pull),
            (pools.heartbeat, self._heartbeat),
            (pools.transaction, self._transaction),
        ):
            pool.guard = gate
            self._gates[pool.name] = gate
        self.settings_changed()

    def settings_changed(self) -> None:
        """Read the limits from the configuration (also called when an administrator changed it)."""
        broker = self._configuration.broker
        is_on = broker.broker_fast_failure_enable

        def seconds(wait_ms: int) -> float:
            return wait_ms / 1000 if is_on else inf

        self._send.set_wait(seconds(broker.wait_time_in_send_queue_ms))
        self._pull.limit_seconds = seconds(broker.wait_time_in_pull_queue_ms)
        self._heartbeat.limit_seconds = seconds(broker.wait_time_in_heartbeat_queue_ms)
        self._transaction.limit_seconds = seconds(broker.wait_time_in_transaction_queue_ms)

    def commit_took(self, elapsed_ms: float) -> None:
        """Note the duration in ms of the commit at the end of a turn."""
        if elapsed_ms > self._configuration.store.os_page_cache_busy_time_out_ms:
            log.warning("commit of the store delayed; sends are refused briefly", elapsed_ms=int(elapsed_ms))
            self._send.was_slow(elapsed_ms / 1000)
        else:
            self._send.was_fast()

    def refused(self) -> dict[str, int]:
        """Return pool name -> number of refused requests."""
        return {name: gate.refused for name, gate in self._gates.items()}

    def too_old(self) -> dict[str, int]:
        """Return pool name -> number of requests refused because they had waited for too long."""
        return {name: gate.too_old for name, gate in self._gates.items()}

    def log_refusals(self) -> None:
        """Log one line if requests were refused since the last one. A task calls this every second."""
        total = sum(gate.refused for gate in self._gates.values())
        if total != self._logged:
            log.warning("requests refused: overloaded", requests=total - self._logged, **self.refused())
            self._logged = total
