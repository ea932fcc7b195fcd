"""What the rules ask for. The owner of a member performs the actions of a turn in their order.

`StoreTerm` is on disk before any later action of the turn begins: a vote that a crash takes back would be given twice.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TypeAlias

from triomq.dledger.wire.bodies import Request, Response


class Role(enum.Enum):
    """What a member is. Only a leader takes appends, only a follower takes pushes."""

    CANDIDATE = "CANDIDATE"
    FOLLOWER = "FOLLOWER"
    LEADER = "LEADER"


@dataclass(slots=True)
class Send:
    """Send a request. Call `Member.answered(call, ...)` exactly once: with the response, or with None if there is none
    within three seconds or the connection fails."""

    call: int
    to: str
    request: Request


@dataclass(slots=True)
class Reply:
    """Answer the request that came with this ticket."""

    ticket: object
    response: Response


@dataclass(slots=True)
class Drop:
    """Forget the request that came with this ticket: it gets no answer."""

    ticket: object


@dataclass(slots=True)
class StoreTerm:
    """Make term and vote durable."""

    term: int
    vote: str | None


@dataclass(slots=True)
class RoleChanged:
    """The member has this role now. A leader takes appends after `Member.take_office`."""

    role: Role
    term: int
    leader: str | None


@dataclass(slots=True)
class Committed:
    """Everything up to this index is on a quorum and stays: it may be shown to readers."""

    index: int


@dataclass(slots=True)
class Shortened:
    """The log was cut behind this index by its leader: what was derived from later entries must go, too."""

    index: int


@dataclass(slots=True)
class Settled:
    """An append that was taken has its result: SUCCESS, or the reason why that is not known or will not be. `index`: of
    its last entry."""

    ticket: object
    code: int
    index: int


@dataclass(slots=True)
class Slowed:
    """The member uses RocketMQ's times from now on, because this peer has not the fast ones (dLegerFastElection)."""

    peer: str


Action: TypeAlias = Send | Reply | Drop | StoreTerm | RoleChanged | Committed | Shortened | Settled | Slowed
