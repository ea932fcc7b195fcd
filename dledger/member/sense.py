"""What a member believes of numbers that come from others. Everything else about a request is the rules' business.

A term never falls again, so one that is far ahead would use up those that are left, and the group would follow its
sender. Elections raise it by one. A member that has no term yet must take the present one of its group.
"""

from __future__ import annotations

from typing import Final

from triomq.dledger.wire.bodies import (
    Entry,
    GetRequest,
    PushRequest,
    Request,
    TransferRequest,
    VoteRequest,
)

MAX_TERMS_AHEAD: Final = 1_000_000
"""Elections that a member may have missed: twelve days with one each second."""
MAX_FIRST_TERM: Final = 1 << 40
"""The largest term that a member without a term takes."""
LARGEST: Final = (1 << 62) - 1
"""Of terms and positions."""
LARGEST_INDEX: Final = (1 << 57) - 1
"""The index file has 32 bytes for each entry, and positions of 63 bits."""
LARGEST_INT: Final = (1 << 31) - 1


def furthest_term(term: int, end_index: int) -> int:
    """Return the largest term that a member in `term`, whose log ends at `end_index`, takes from others."""
    if term <= 0 and end_index < 0:
        return MAX_FIRST_TERM
    return term + MAX_TERMS_AHEAD


def far_term(term: int, furthest: int) -> str:
    """Return what to do about a term that is not believed."""
    return (
        f"term {term} is more than {furthest}, the largest that is believed here: if the group has really come that "
        "far, start this member with an empty storePathRootDir; else find out who sends this"
    )


def fault(request: Request) -> str | None:
    """Return which number of a request no member writes, since neither file nor arithmetic has room for it; None if all
    are sound."""
    numbers: list[tuple[str, int, int]] = [("term", request.term, LARGEST)]
    if isinstance(request, VoteRequest):
        numbers.append(("ledgerEndTerm", request.ledger_end_term, LARGEST))
        numbers.append(("ledgerEndIndex", request.ledger_end_index, LARGEST_INDEX))
    elif isinstance(request, TransferRequest):
        numbers.append(("takeLeadershipLedgerIndex", request.take_leadership_ledger_index, LARGEST_INDEX))
    elif isinstance(request, GetRequest):
        numbers.append(("beginIndex", request.begin_index, LARGEST_INDEX))
    elif isinstance(request, PushRequest):
        numbers.append(("commitIndex", request.commit_index, LARGEST_INDEX))
    for name, value, most in numbers:
        if not -1 <= value <= most:
            return _text(name, value)
    return _entries_fault(request.entries) if isinstance(request, PushRequest) else None


def _entries_fault(entries: list[Entry]) -> str | None:
    for entry in entries:
        if not 0 <= entry.index <= LARGEST_INDEX:
            return _text("index", entry.index)
        if not 0 <= entry.pos <= LARGEST:
            return _text("pos", entry.pos)
        if not 0 <= entry.term <= LARGEST:
            return _text("term", entry.term)
        for name in _INTS:
            value = getattr(entry, name)
            if not -LARGEST_INT <= value + 1 <= LARGEST_INT + 1:
                return _text(name, value)
    return None


def _text(name: str, value: int) -> str:
    return f"{name} is {value}, which no member of a group writes"


_INTS: Final = ("body_crc", "chain_crc", "channel", "magic", "size")
