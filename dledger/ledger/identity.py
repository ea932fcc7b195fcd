"""Whether the ledger that is in a store directory is that of the member which starts there.

<root>/dledger-<id>             says by its name whose ledger it is
<root>/dledger-<id>/identity    ours: group and id of the member that has started there; RocketMQ's members write none

A member with another id would find no ledger, begin an empty one, and remove the queues of the messages that it does
not see. Where volumes are mixed up, or all members are numbered again, that empties the whole group.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from triomq.dledger.ledger.term_files import TermFiles
from triomq.store.disk.files import Files
from triomq.store.disk.ledgers import has_files, ledgers_in
from triomq.store.errors import StoreRefused

log = structlog.get_logger("triomq.dledger.ledger")

Identity = tuple[str, str]
"""Group and id of a member; "" for a group that is not known."""


def check_identity(files: Files, root: str, directory: str, data: Sequence[str], wanted: Identity) -> None:
    """Raise StoreRefused if the ledger in `directory`, or beside it in `root`, is that of another member than
    `wanted`. `data` has the directories of its data files. Nothing is changed."""
    problem = misfit(TermFiles(files, directory), directory, wanted)
    if problem:
        raise StoreRefused(problem)
    _, self_id = wanted
    others = [each for each in ledgers_in(files, root) if each != self_id]
    if not others:
        return
    names = ", ".join(f"dledger-{each}" for each in others)
    if any(has_files(files, each) for each in (*data, f"{directory}/index")):
        log.warning("ledgers of other members found", root=root, own=self_id, others=names)
        return
    raise StoreRefused(
        f"{root} has the ledger of {' and '.join(others)} ({names}), and none of {self_id}, which dLegerSelfId names. "
        f"Set dLegerSelfId={others[0]}, or give this broker the store directory of {self_id}; an empty one is "
        f"filled by the leader. If this is a copy that was made for {self_id}, rename the ledger to dledger-{self_id}"
    )


def misfit(notes: TermFiles, directory: str, wanted: Identity) -> str:
    """Return what is wrong with the ledger in `directory` for the member `wanted`, "" if nothing is known to be."""
    found = notes.load_identity()
    if found is None:
        return ""
    (group, self_id), (wanted_group, wanted_id) = found, wanted
    if self_id == wanted_id and wanted_group in ("", group):
        return ""
    return (
        f"{directory} is the ledger of {self_id} of the group {group}, and this broker is {wanted_id} of "
        f"{wanted_group or group}: give it its own store directory, or set dLegerGroup and dLegerSelfId as they were. "
        f"If the group has another name now, or this was copied for {wanted_id}, remove {notes.identity_path}"
    )


def note_identity(notes: TermFiles, identity: Identity) -> None:
    """Note whose ledger it is, unless that is known. Raises OSError."""
    if notes.load_identity() is None:
        notes.save_identity(*identity)
