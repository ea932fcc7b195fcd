"""What must hold after each step of a run. A violation raises `Violation` with the rule and the members concerned.

The checks look only at what changed, so that a step costs the same however long the logs are. By induction that is
enough: an index and a term name one entry and the one before it, hence two logs that share an entry share all before.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Protocol

from sim.dledger.disk import slot_of
from triomq.dledger.ledger.records import TERM_TOPIC
from triomq.dledger.wire.bodies import Entry


class Violation(Exception):
    """A rule does not hold."""


class CheckedLog(Protocol):
    """A member's log, with what changed since the last look of the checks."""

    added: list[Entry]
    removed: list[Entry]

    @property
    def begin_index(self) -> int: ...

    @property
    def end_index(self) -> int: ...

    def entry(self, index: int) -> Entry:
        """Return an entry: the same object as in `added`."""
        ...


class Checks:
    """The global view that no member has. `truth`: the entries that some member said are committed, by index; when a
    member of `java` leads, up to the last one of its own term only (JavaMember, D1)."""

    def __init__(self, java: frozenset[str] = frozenset()) -> None:
        self._java = java
        self.leaders: dict[int, str] = {}
        self.truth: list[Entry] = []
        self.committed_in = -1  # the largest term in which a leader said so
        self._named: dict[tuple[int, int], tuple[bytes, int]] = {}
        self._committed: dict[str, int] = defaultdict(lambda: -1)
        self.acknowledged: dict[int, bytes] = {}

    def restarted(self, member: str, committed: int) -> None:
        self._committed[member] = committed

    def leads(self, member: str, term: int, log: CheckedLog) -> None:
        """One leader a term; its log has everything that was committed in earlier terms."""
        other = self.leaders.setdefault(term, member)
        if other != member:
            raise Violation(f"one leader a term: {member} and {other} both lead term {term}")
        if term <= self.committed_in or not self.truth:
            return
        last = self.truth[-1]
        if not log.begin_index <= last.index <= log.end_index or not log.entry(last.index).is_same(last):
            raise Violation(f"committed entries stay: {member} leads term {term} without entry {last.index}")

    def changed(self, member: str, log: CheckedLog) -> None:
        """Logs match, queue offsets are dense, and nothing committed is removed."""
        added, log.added = log.added, []
        removed, log.removed = log.removed, []
        for entry in removed:
            is_committed = entry.index < len(self.truth) and self.truth[entry.index].is_same(entry)
            if is_committed and not (log.begin_index > entry.index):
                raise Violation(f"committed entries stay: {member} removed entry {entry.index} of term {entry.term}")
            self._committed[member] = min(self._committed[member], entry.index - 1)
        for entry in added:
            if not log.begin_index <= entry.index <= log.end_index or log.entry(entry.index) is not entry:
                continue  # removed again in the same step
            before = log.entry(entry.index - 1).term if entry.index > log.begin_index else None
            self._check_name(member, entry, before)
            self._check_slot(member, log, entry)

    def _check_name(self, member: str, entry: Entry, before: int | None) -> None:
        key = (entry.index, entry.term)
        known = self._named.get(key)
        if known is None:
            if before is not None or entry.index == 0:
                self._named[key] = (entry.body, -1 if before is None else before)
            return
        if known[0] != entry.body or (before is not None and known[1] != before):
            raise Violation(f"logs match: {member} has another entry {entry.index} of term {entry.term}, or before it")

    def _check_slot(self, member: str, log: CheckedLog, entry: Entry) -> None:
        if TERM_TOPIC in entry.body:
            return  # it opens a term, and takes no queue offset
        queue, offset = slot_of(entry)
        for index in range(entry.index - 1, log.begin_index - 1, -1):
            before = log.entry(index)
            if TERM_TOPIC in before.body:
                continue
            other, last = slot_of(before)
            if other == queue:
                if last + 1 != offset:
                    raise Violation(f"queue offsets are dense: {member} has {queue}:{offset} after {queue}:{last}")
                return
        if log.begin_index == 0 and offset != 0:
            raise Violation(f"queue offsets are dense: {member} begins {queue} with {offset}")

    def committed(self, member: str, index: int, term: int, log: CheckedLog) -> None:
        """The committed index never falls while a process lives, and names the same entries everywhere."""
        before = self._committed[member]
        if index < before:
            raise Violation(f"committed never falls: {member} from {before} to {index}")
        if index > log.end_index:
            raise Violation(f"committed is in the log: {member} has {log.end_index}, committed {index}")
        self._committed[member] = index
        permanent = self._permanent(index, term, log)
        for at in range(max(min(before + 1, len(self.truth)), log.begin_index), index + 1):
            entry = log.entry(at)
            if at < len(self.truth):
                if not self.truth[at].is_same(entry):
                    raise Violation(f"committed entries stay: {member} has another entry {at}, of term {entry.term}")
            elif at == len(self.truth) and at <= permanent:
                self.truth.append(entry)
                self.committed_in = max(self.committed_in, term)

    def _permanent(self, index: int, term: int, log: CheckedLog) -> int:
        if self.leaders.get(term) in self._java:
            while index >= log.begin_index and log.entry(index).term != term:
                index -= 1
        return index

    def acknowledge(self, member: str, index: int, body: bytes) -> None:
        """An acknowledged append is a committed entry."""
        if index >= len(self.truth) or self.truth[index].body != body:
            raise Violation(f"acknowledged entries are committed: {member} acknowledged {body!r} at {index}")
        self.acknowledged[index] = body
