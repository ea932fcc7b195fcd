"""What must hold of receipt handles: when a message may be received again, and which handles are valid.

Brokers and clients have the same clock here. Nothing is said of a receive whose response was lost: it can only come
after what the checks compare it with. A power failure may take the last records of the log of messages in flight, but
no acknowledgement that was answered with SYNC_FLUSH.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise

from sim.checks import SLOW_SYNC_SECONDS, UNSYNCED_SECONDS, Verdict, may_reuse_offsets
from sim.cluster import BEGIN_MS, Broker
from sim.history import DONE, REFUSED, History, Receipt, Use
from sim.plan import POPPED, POPPED_IN_ORDER

PROMPT_SECONDS = 3.0
"""A receive that waits gets a message within this time, if nothing is wrong."""
SETTLED_SECONDS = 3.0
ROUNDED_MS = 1
"""A change within the same millisecond as the receive has the time of the next one."""


def check_receipts(history: History, brokers: Mapping[str, Broker], began: float, verdict: Verdict) -> None:
    places: dict[tuple[str, str, int, int], list[Receipt]] = defaultdict(list)
    for receipt in history.receipts:
        places[receipt.place].append(receipt)
    checker = _Checker(history, brokers)
    for receipts in places.values():
        receipts.sort(key=lambda one: one.popped_ms)
    for rule, text in (
        (checker.after_acknowledgement, "received again after the acknowledgement"),
        (checker.too_early, "received again before its invisible time was over"),
        (checker.miscounted, "received more or less often than it says"),
        (checker.as_if_again, "received for the first time as if it had been received before"),
        (checker.with_old_handles, "done with a handle that is not valid any more"),
        (checker.refused, "refused although the handle is valid"),
    ):
        verdict.none_of((found for receipts in places.values() for found in rule(receipts)), text)
    _check_order(history, brokers, places, verdict)
    verdict.none_of(_late(history, began), "not received at once")


class _Checker:
    """Rules of one message and group. Each is given all handles of one place of a queue in the order of their times."""

    def __init__(self, history: History, brokers: Mapping[str, Broker]) -> None:
        self._history = history
        self._brokers = brokers

    def after_acknowledgement(self, receipts: list[Receipt]) -> Iterator[str]:
        for number, again in enumerate(receipts):
            for first in receipts[:number]:
                if first.key == again.key and any(self._keeps_done(first, use, again) for use in first.uses):
                    yield f"{_name(again)}, received at {first.popped_ms - BEGIN_MS} ms and acknowledged"
                    break

    def _keeps_done(self, first: Receipt, use: Use, again: Receipt) -> bool:
        """Return whether the group must be done with the message when it is received again."""
        if use.is_change or use.result != DONE or use.ended_ms >= again.popped_ms:
            return False
        broker = self._brokers[first.broker]
        if not self._keeps_message(first, again.popped_ms):
            return False
        # When it was written is not known: perhaps as it was sent, and the answer was on its way when the power failed.
        return _is_sync(broker) or not _has_lost(broker, use.sent_ms, again.popped_ms, written_until_ms=use.ended_ms)

    def too_early(self, receipts: list[Receipt]) -> Iterator[str]:
        for first, again in pairwise(receipts):
            if first.key == again.key and again.receive and not _is_repetition(first, again):
                is_early = again.popped_ms < first.visible_ms - ROUNDED_MS
                if is_early and self._keeps_receive(first, again.popped_ms):
                    yield f"{_name(again)}, invisible until {first.visible_ms - BEGIN_MS} ms"

    def miscounted(self, receipts: list[Receipt]) -> Iterator[str]:
        received = [one for one in receipts if one.receive]
        for first, again in pairwise(received):
            if first.key != again.key or not self._keeps_receive(first, again.popped_ms):
                continue
            if _is_repetition(first, again):
                is_right = first.times == again.times
            else:
                is_right = first.times < again.times
            if not is_right:
                yield f"{_name(again)}: {again.times} times, before: {first.times}"

    def as_if_again(self, receipts: list[Receipt]) -> Iterator[str]:
        first = receipts[0]
        if first.times and not self._brokers[first.broker].restored and first.key in self._history.sent:
            sent_at = self._history.sent[first.key][2]
            maybe = (
                group == first.group and broker == first.broker and until >= sent_at
                for group, broker, until in self._history.unanswered
            )
            if not any(maybe):
                yield f"{_name(first)}, {first.times} times"

    def with_old_handles(self, receipts: list[Receipt]) -> Iterator[str]:
        for number, old in enumerate(receipts):
            later = [one for one in receipts[number + 1 :] if one.popped_ms > old.popped_ms and one.key == old.key]
            for use in old.uses:
                if use.result != DONE:
                    continue
                known = [one for one in later if one.got_ms < use.sent_ms and self._keeps_receive(one, use.ended_ms)]
                is_done = any(_may_be_done(one, use.ended_ms) for one in receipts if one is not old)
                if known and (use.is_change or not is_done):
                    what = "changed" if use.is_change else "acknowledged"
                    yield f"{_name(old)}, {what} at {use.sent_ms - BEGIN_MS} ms, newer: {_name(known[0])}"

    def refused(self, receipts: list[Receipt]) -> Iterator[str]:
        for number, receipt in enumerate(receipts):
            if receipt.attempt or any(use.is_change for use in receipt.uses):
                continue  # the same attempt may have got it again, and the change a new handle, without our knowing
            newer = receipts[number + 1 :]
            for use in receipt.uses:
                is_valid = use.ended_ms < receipt.visible_ms and not any(one.popped_ms < use.ended_ms for one in newer)
                if use.result == REFUSED and is_valid and self._keeps_receive(receipt, use.ended_ms):
                    yield f"{_name(receipt)}, at {use.sent_ms - BEGIN_MS} ms"

    def _keeps_message(self, first: Receipt, until_ms: float) -> bool:
        """Return whether no message can have come to this offset in the place of the one that was received."""
        broker = self._brokers[first.broker]
        if broker.restored:
            return False
        losses = [at for at in _losses_ms(broker) if first.popped_ms <= at <= until_ms]
        if not losses:
            return True
        promise = self._history.acknowledged.get(first.key)
        if promise is None or (promise.broker, promise.queue_id, promise.queue_offset) != first.place[1:]:
            return False
        promised_ms = BEGIN_MS + promise.at * 1000
        if _is_sync(broker):
            return promised_ms <= losses[0]
        return not _has_lost(broker, promised_ms, until_ms) and promised_ms <= losses[0]

    def _keeps_receive(self, receipt: Receipt, until_ms: float) -> bool:
        """Return whether the broker must know of a receive or change at a later moment: no power failure took it, or
        the message."""
        broker = self._brokers[receipt.broker]
        if broker.restored or not self._keeps_message(receipt, until_ms):
            return False
        return not _has_lost(broker, receipt.popped_ms, until_ms)


def _losses_ms(broker: Broker) -> list[float]:
    """Return when messages or records may have been lost, as far as they were not synced."""
    return [BEGIN_MS + at * 1000 for at, how in broker.died_at if how == "power" or how in broker.ends_that_lose]


def _has_lost(broker: Broker, written_ms: float, until_ms: float, *, written_until_ms: float | None = None) -> bool:
    """Return whether a loss may have taken a record that was written at this time, or from then until another one,
    before a later moment."""
    last_ms = written_ms if written_until_ms is None else written_until_ms
    window_ms = (UNSYNCED_SECONDS + SLOW_SYNC_SECONDS) * 1000
    for at in _losses_ms(broker):
        down_ms = 1000 * broker.down_seconds((written_ms - BEGIN_MS) / 1000, (at - BEGIN_MS) / 1000)
        if written_ms <= at <= min(until_ms, last_ms + window_ms + down_ms):
            return True
    return False


def _is_sync(broker: Broker) -> bool:
    return not broker.ends_that_lose


def _is_repetition(first: Receipt, again: Receipt) -> bool:
    """Return whether the same attempt got its batch once more."""
    return bool(again.attempt) and first.attempt == again.attempt and again.popped_ms < first.visible_ms


def _may_be_done(receipt: Receipt, until_ms: float) -> bool:
    """Return whether the message may be acknowledged with this handle by a moment."""
    return any(not use.is_change and use.result != REFUSED and use.sent_ms <= until_ms for use in receipt.uses)


def _name(receipt: Receipt) -> str:
    place = f"{receipt.broker} {receipt.queue_id}:{receipt.queue_offset}"
    return f"{receipt.key} at {place} by {receipt.member} at {receipt.popped_ms - BEGIN_MS} ms"


# -- in order and in time ----------------------------------------------------------------------------------------------


def _check_order(
    history: History,
    brokers: Mapping[str, Broker],
    places: Mapping[tuple[str, str, int, int], list[Receipt]],
    verdict: Verdict,
) -> None:
    """A queue of a group that receives in order has one batch in flight, and offsets come in their order."""
    queues: dict[tuple[str, int], list[Receipt]] = defaultdict(list)
    for receipt in history.receipts:
        if receipt.attempt and not may_reuse_offsets(brokers[receipt.broker]):
            queues[receipt.broker, receipt.queue_id].append(receipt)
    for (broker, queue_id), receipts in queues.items():
        receipts.sort(key=lambda one: one.popped_ms)
        earlier: dict[int, list[Receipt]] = {}
        for _, found in groupby(receipts, key=lambda one: (one.popped_ms, one.member, one.receive)):
            batch = list(found)
            offsets = [one.queue_offset for one in batch]
            if offsets != sorted(offsets):
                verdict.failures.append(f"{POPPED_IN_ORDER}: not in the order of the queue: {_name(batch[0])}")
            verdict.none_of(_open(batch, earlier), f"{POPPED_IN_ORDER}: still open when others were received")
            for receipt in batch:
                earlier[receipt.queue_offset] = places[receipt.place]
        firsts = list(earlier)
        if firsts != list(range(len(firsts))):
            verdict.failures.append(f"{POPPED_IN_ORDER}: {broker} {queue_id} was first received as {firsts[:50]}")


def _open(batch: list[Receipt], earlier: Mapping[int, list[Receipt]]) -> Iterator[str]:
    """Yield what is in flight when a batch is received, or ready again and left out of it though it comes first."""
    at_ms = batch[0].popped_ms
    offsets = {one.queue_offset for one in batch}
    for queue_offset, handles in earlier.items():
        before = [one for one in handles if one.popped_ms < at_ms]
        if not before or any(_may_be_done(one, at_ms) for one in before):
            continue
        last = before[-1]
        is_invisible = last.visible_ms - ROUNDED_MS > at_ms and not any(_is_repetition(last, one) for one in batch)
        if is_invisible or (queue_offset not in offsets and queue_offset < max(offsets)):
            yield f"{_name(last)}, when {_name(batch[0])} was"


def _late(history: History, began: float) -> Iterator[str]:
    """Yield what receives that wait should have got. Looked at before the first fault only."""
    firsts: dict[str, float] = {}
    for one in history.receipts:
        firsts.setdefault(one.key, one.got_ms)
    for key, place in history.acknowledged.items():
        latest = place.at + PROMPT_SECONDS
        if place.topic != POPPED or place.at <= began + SETTLED_SECONDS or history.is_disturbed(0.0, latest):
            continue
        if firsts.get(key, BEGIN_MS + latest * 1000 + 1) > BEGIN_MS + latest * 1000:
            yield f"{key}, acknowledged at {place.at:.2f} s"
