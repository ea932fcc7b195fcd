"""What the clients of a run remember, for the checks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import inf

Queue = tuple[str, str, int]
"""broker, topic, queue id"""
DONE, REFUSED, UNKNOWN = "done", "refused", "unknown"
"""What an answer said of a receipt handle."""


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


@dataclass
class Use:
    """An acknowledgement with a handle, or a change of its invisible time, between two moments (Unix ms); `ended_ms` is
    infinite while it is not answered. `result` of an acknowledgement that was answered but may have been left out is
    UNKNOWN, too."""

    is_change: bool
    sent_ms: int
    ended_ms: float = inf
    result: str = UNKNOWN


@dataclass
class Receipt:
    """A receipt handle that a client got, of a receive or of a change of the invisible time. Times are Unix ms."""

    group: str
    member: str
    broker: str
    queue_id: int
    queue_offset: int
    key: str
    popped_ms: int
    visible_ms: int
    """When the message may be received again; earlier if a change of it was not answered."""
    got_ms: int
    times: int = 0
    """How often the message was received before."""
    receive: int = 0
    """The number of the receive; 0: of a change."""
    attempt: str = ""
    handle: str = ""
    """As gRPC clients have it; those of remoting make it of the rest."""
    uses: list[Use] = field(default_factory=list)

    @property
    def place(self) -> tuple[str, str, int, int]:
        return self.group, self.broker, self.queue_id, self.queue_offset


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
    receipts: list[Receipt] = field(default_factory=list)
    """All receipt handles, in the order in which clients got them."""
    unanswered: list[tuple[str, str, float]] = field(default_factory=list)
    """(group, broker, until when): receives that were not answered, and the last moment at which messages may have been
    sent to them."""
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
