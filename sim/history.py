"""What the clients of a run remember, for the checks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

Queue = tuple[str, str, int]
"""broker, topic, queue id"""


@dataclass(frozen=True)
class Acknowledged:
    """A broker's promise for one message."""

    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    at: float


@dataclass
class Consumed:
    """One delivery to one listener; `until` is when the listener had done it, 0 while it has not."""

    key: str
    group: str
    member: str
    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    at: float
    until: float = 0.0


@dataclass(frozen=True)
class Permission:
    """From `since` on until the next change begins, a broker admits the guest, or not."""

    since: float
    broker: str
    is_given: bool


@dataclass(frozen=True)
class Reset:
    """A group was moved to these offsets, between two moments."""

    group: str
    offsets: dict[Queue, int]
    began: float
    ended: float


@dataclass
class History:
    """Everything that clients know. Times are seconds of the run."""

    sent: dict[str, tuple[str, bytes, float]] = field(default_factory=dict)
    """key -> (topic, body, when)"""
    tags: dict[str, str] = field(default_factory=dict)
    acknowledged: dict[str, Acknowledged] = field(default_factory=dict)
    deliveries: list[Consumed] = field(default_factory=list)
    """All deliveries of topics, also those that failed; those of retry topics are not in it."""
    consumed: dict[tuple[str, str], list[Consumed]] = field(default_factory=lambda: defaultdict(list))
    """(group, key) -> deliveries that succeeded. A member of a broadcasting group counts as a group."""
    groups: dict[str, list[str]] = field(default_factory=dict)
    """topic -> its groups"""
    seen: dict[tuple[str, str, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    """(group, broker, queue of the ordered topic) -> offsets in the order in which listeners got them"""
    holding: dict[tuple[str, str, int], set[str]] = field(default_factory=lambda: defaultdict(set))
    """(group, broker, queue of the ordered topic) -> the members whose listeners have a message of it"""
    left: list[tuple[str, float]] = field(default_factory=list)
    """(member, when it was stopped in order)"""
    delays: dict[str, int] = field(default_factory=dict)
    """key -> delay level"""
    outcomes: dict[str, bool] = field(default_factory=dict)
    """key of a transaction -> whether it commits; decided when it runs, the same in every check"""
    asked: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """key of a transaction -> when a broker asked for its outcome"""
    deleted: dict[str, float] = field(default_factory=dict)
    """Keys of messages of topics that were deleted -> when."""
    permissions: list[Permission] = field(default_factory=list)
    changing: list[tuple[float, float, bool]] = field(default_factory=list)
    """From when until when the guest's permission was being taken (False) or given."""
    refused: list[tuple[str, float, float]] = field(default_factory=list)
    """(broker, from, until): a send of the guest that was refused."""
    resets: list[Reset] = field(default_factory=list)
    topics: dict[str, tuple[int, int] | None] = field(default_factory=dict)
    """Made topic -> (queues, permission), None if it was deleted; as the last change said that was answered."""
    doubtful: set[str] = field(default_factory=set)
    """Topics and groups with a change that was not answered."""
    made_groups: dict[str, int | None] = field(default_factory=dict)
    """group -> its retryMaxTimes, None if it was deleted"""
    disturbed: list[tuple[float, float]] = field(default_factory=list)
    """From when until when there was a fault."""
    wrong: list[str] = field(default_factory=list)
    """What a client saw that may never be."""

    def is_disturbed(self, begin: float, end: float) -> bool:
        return any(one <= end and begin <= other for one, other in self.disturbed)
