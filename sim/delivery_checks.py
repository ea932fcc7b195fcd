"""What must hold of the moments at which messages were delivered, and of what the guest was allowed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

from sim.checks import SHOWN, Verdict, may_reuse_offsets
from sim.cluster import Broker
from sim.history import Consumed, History
from sim.plan import DELAYED, FILTERED, GUEST, ORDERED, PLAIN
from sim.workload import DELAY_SECONDS, WANTED_TAG

PROMPT_SECONDS = 3.0
"""A waiting consumer gets a message within this time, if nothing is wrong."""
SETTLED_SECONDS = 3.0
"""How long after its start a consumer has its queues."""
STORED_SECONDS = 7.0
"""The longest time for which a member's offsets may stay unstored: clients store them every five seconds."""


def check_deliveries(history: History, brokers: Mapping[str, Broker], began: float, verdict: Verdict) -> None:
    _check_delays(history, verdict)
    _check_order(history, brokers, verdict)
    verdict.none_of(_late(history, began), "not delivered at once")
    verdict.none_of(_repeated(history), "delivered again to another member")
    verdict.none_of(_not_repeated(history), "not delivered again after the group was moved back")
    verdict.none_of(_admitted(history), "accepted from the guest, whose permission was taken")
    verdict.none_of(_refused(history), "refused although the guest has the permission")


def _check_delays(history: History, verdict: Verdict) -> None:
    firsts: dict[str, float] = {}
    for one in history.deliveries:
        if one.topic == DELAYED:
            firsts.setdefault(one.key, one.at)
    verdict.none_of(
        (
            f"{key} after {firsts[key] - history.sent[key][2]:.3f} s"
            for key, level in history.delays.items()
            if key in firsts and firsts[key] - history.sent[key][2] < DELAY_SECONDS[level] - 0.002
        ),
        f"{DELAYED}: consumed too early",
    )


def _check_order(history: History, brokers: Mapping[str, Broker], verdict: Verdict) -> None:
    """A listener gets an offset of an ordered queue for the first time after all smaller ones."""
    for (group, name, queue_id), offsets in history.seen.items():
        if may_reuse_offsets(brokers[name]):
            continue  # offsets of lost messages are given to others
        first_sights = list(dict.fromkeys(offsets))
        if first_sights and first_sights[0] != 0:
            verdict.failures.append(f"{group} got {name} {ORDERED} {queue_id} from {first_sights[0]} on")
        for before, after in pairwise(first_sights):
            if after != before + 1:
                verdict.failures.append(f"{group} got {name} {queue_id}: {after} after {before}")
                break


def _late(history: History, began: float) -> Iterator[str]:
    """A consumer that waits gets what it waits for at once. Looked at before the first fault only: a dead member keeps
    its queues for up to two minutes."""
    firsts: dict[str, float] = {}
    for one in history.deliveries:
        if one.topic == FILTERED:
            firsts.setdefault(one.key, one.at)
    for key, place in history.acknowledged.items():
        if place.topic == FILTERED and history.tags[key] == WANTED_TAG and place.at > began + SETTLED_SECONDS:
            latest = place.at + PROMPT_SECONDS
            if not history.is_disturbed(0.0, latest) and firsts.get(key, latest + 1) > latest:
                yield f"{key}, acknowledged at {place.at:.2f} s"


def _repeated(history: History) -> Iterator[str]:
    """Name what another member got although its offset must have been stored: all up to it was done when a member left
    in order, or long ago."""
    queues: dict[tuple[str, int], list[Consumed]] = defaultdict(list)
    for one in history.deliveries:
        if one.topic == PLAIN and one.group == f"{PLAIN}-readers":
            queues[one.broker, one.queue_id].append(one)
    left = dict(history.left)
    for deliveries in queues.values():
        firsts: dict[int, Consumed] = {}
        for number, one in enumerate(deliveries):
            first = firsts.setdefault(one.queue_offset, one)
            if first.member == one.member or first.key != one.key:
                continue
            leaves = left.get(first.member, 0.0)
            stored_at = leaves if first.at < leaves < one.at else one.at - STORED_SECONDS
            # Another member may have an earlier message for the second time, and still work on it.
            is_done = all(
                0 < earlier.until < stored_at
                for earlier in deliveries[:number]
                if earlier.queue_offset <= one.queue_offset
                and (earlier.member != one.member or earlier is firsts[earlier.queue_offset])
            )
            if is_done and not history.is_disturbed(first.at - STORED_SECONDS, one.at):
                yield f"{one.key} at {one.at:.2f} s"


def _not_repeated(history: History) -> Iterator[str]:
    """A group that is moved back gets again what it had."""
    if not history.resets:
        return
    reset = max(history.resets, key=lambda one: one.ended)
    if history.is_disturbed(reset.began - STORED_SECONDS, reset.ended + STORED_SECONDS):
        return
    again = {one.key for one in history.deliveries if one.group == reset.group and one.at >= reset.began}
    for key, place in history.acknowledged.items():
        target = reset.offsets.get((place.broker, place.topic, place.queue_id))
        if target is not None and place.at < reset.began and place.queue_offset >= target and key not in again:
            yield f"{key} at {place.queue_offset}, behind {target}"


def _admitted(history: History) -> Iterator[str]:
    """Yield the messages that a broker accepted although it had answered that the permission to send was withdrawn, and
    before it was granted again."""
    for key, place in history.acknowledged.items():
        if place.topic == GUEST and f"guest at {place.broker}" not in history.doubtful:
            since = _last_change(history, place.broker, history.sent[key][2], is_given=False)
            if since is not None and not _is_changing(history, since, place.at, is_given=True):
                yield f"{key} at {place.broker}, sent at {history.sent[key][2]:.2f} s, taken at {since:.2f} s"


def _refused(history: History) -> Iterator[str]:
    for broker, begin, end in history.refused[: 1000 * SHOWN]:
        if f"guest at {broker}" not in history.doubtful:
            since = _last_change(history, broker, begin, is_given=True)
            if since is not None and not _is_changing(history, since, end, is_given=False):
                yield f"a message for {broker}, sent at {begin:.2f} s, given at {since:.2f} s"


def _last_change(history: History, broker: str, before: float, *, is_given: bool) -> float | None:
    """Return when the permission was changed last before this moment, None if it was changed to something else."""
    changes = [one for one in history.permissions if one.broker == broker and one.since <= before]
    if not changes:
        return None
    last = max(changes, key=lambda one: one.since)
    return last.since if last.is_given == is_given else None


def _is_changing(history: History, begin: float, end: float, *, is_given: bool) -> bool:
    return any(one <= end and begin <= other for one, other, given in history.changing if given == is_given)
