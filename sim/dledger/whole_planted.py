"""Bugs that are put into whole members on purpose: into what binds the rules to disk and network."""

from __future__ import annotations

from typing import Any

from sim.dledger.planted import Bug
from triomq.dledger.ledger import recovery
from triomq.dledger.ledger.noting import Noting
from triomq.dledger.ledger.term_files import TermFiles


def _keeps_terms_in_memory(original: Any) -> Any:
    def save_term(self: TermFiles, term: int, vote: str | None) -> None:
        return

    return save_term


def _counts_what_a_sync_will_cover(original: Any) -> Any:
    """What is about to be synced counts as synced."""

    def begin_sync(self: Noting, end_index: int) -> Any:
        pending = original(self, end_index)
        self.synced_index = max(self.synced_index, end_index)
        return pending

    return begin_sync


def _trusts_torn_bodies(original: Any) -> Any:
    def recover(data: Any, index: Any, noted_end: int, is_whole: Any) -> Any:
        return original(data, index, noted_end, lambda entry: True)

    return recover


WHOLE_BUGS = {
    "keeps_terms_in_memory": Bug(TermFiles, "save_term", _keeps_terms_in_memory, ("kill", "stop", "pair")),
    "counts_what_a_sync_will_cover": Bug(
        Noting, "begin_sync", _counts_what_a_sync_will_cover, ("power", "slow"), seed=1
    ),
    "trusts_torn_bodies": Bug(recovery, "recover", _trusts_torn_bodies, ("power", "write", "slow"), seed=4),
}
