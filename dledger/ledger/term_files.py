"""The small text files of a member, one `key=value` a line.

    currterm     currTerm=3, voteLeader=n1 (empty: not voted)
    checkpoint   endIndex=267, committedIndex=267
    identity     ours: group=RaftNode00, member=n0; written once, see identity.py

A vote that a crash takes back would be given twice, so `currterm` is synced, renamed over the old file, and its
directory synced, before `save` returns. RocketMQ deletes the old file before it renames: where `currterm` is missing
but `currterm.tmp` or `currterm.bak` is there, its process ended between the two. Of these the one with the larger term
counts: `.tmp` was whole before the deletion, unless the power failed, too.

A checkpoint that notes more than the last one is written in a thread, as `checkpoint.next`, because a busy disk takes
seconds to sync it. A checkpoint that notes less has a temporary file of its own, and never waits for the thread.
"""

from __future__ import annotations

from triomq.store.disk.files import Files
from triomq.store.errors import StoreRefused

_LONGEST_BYTES = 4096


class TermFiles:
    """The text files in a member's directory."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory

    def load_term(self) -> tuple[int, str | None]:
        """Return term and vote; 0 and None for a new member. Raises StoreRefused if the file is there but damaged: a
        member that forgets its vote may vote twice."""
        path = f"{self._directory}/currterm"
        if self._files.exists(path):
            found = _term_in(self._read(path))
            if found is None:
                raise StoreRefused(
                    f"{path} is damaged, so the last vote of this member is unknown. Write currTerm= with a term that"
                    " is larger than that of all other members, and voteLeader= empty"
                )
            return found
        others = [_term_in(self._read(f"{path}{ending}")) for ending in (".tmp", ".bak")]
        left = [found for found in others if found is not None]
        return max(left, key=lambda found: found[0]) if left else (0, None)

    def save_term(self, term: int, vote: str | None) -> None:
        """Make term and vote durable. Raises OSError."""
        self._save("currterm", f"currTerm={term}\nvoteLeader={vote or ''}\n")

    def load_checkpoint(self) -> tuple[int, int]:
        """Return end and committed index as last noted, -1 for what is not known."""
        values = self._read(f"{self._directory}/checkpoint")
        return _number(values.get("endIndex")), _number(values.get("committedIndex"))

    def save_checkpoint(self, end_index: int, committed_index: int) -> None:
        """Note the last index that is on disk, and the committed one. Raises OSError."""
        self._save("checkpoint", _checkpoint(end_index, committed_index))

    def prepare_checkpoint(self, end_index: int, committed_index: int) -> None:
        """Write and sync a checkpoint that `put_checkpoint` can put in place. A thread may do this. Raises OSError."""
        self._write(f"{self._directory}/checkpoint.next", _checkpoint(end_index, committed_index))

    def put_checkpoint(self) -> None:
        """Replace the checkpoint by the prepared one, which notes more. Raises OSError. The name is not synced: after a
        power failure the old checkpoint is as true as the new one."""
        self._files.rename(f"{self._directory}/checkpoint.next", f"{self._directory}/checkpoint")

    @property
    def identity_path(self) -> str:
        return f"{self._directory}/identity"

    def load_identity(self) -> tuple[str, str] | None:
        """Return group and id of the member whose ledger this is, None if that was never noted."""
        values = self._read(self.identity_path)
        group, member = values.get("group"), values.get("member")
        return (group, member) if group and member else None

    def save_identity(self, group: str, member: str) -> None:
        """Note whose ledger this is. Raises OSError."""
        self._save("identity", f"group={group}\nmember={member}\n")

    def _read(self, path: str) -> dict[str, str]:
        try:
            text = self._files.read_file(path)[:_LONGEST_BYTES].decode("utf-8", "replace")
        except FileNotFoundError:
            return {}
        pairs = (line.partition("=") for line in text.splitlines())
        return {key.strip(): value.strip() for key, _, value in pairs}

    def _save(self, name: str, text: str) -> None:
        path = f"{self._directory}/{name}"
        self._write(f"{path}.tmp", text)
        self._files.rename(f"{path}.tmp", path)
        self._files.sync_directory(self._directory)

    def _write(self, path: str, text: str) -> None:
        data = text.encode()
        fd = self._files.create(path, len(data))
        try:
            self._files.pwrite(fd, data, 0)
            self._files.datasync(fd)
        finally:
            self._files.close(fd)


def _checkpoint(end_index: int, committed_index: int) -> str:
    return f"endIndex={end_index}\ncommittedIndex={committed_index}\n"


def _term_in(values: dict[str, str]) -> tuple[int, str | None] | None:
    term = _number(values.get("currTerm"))
    return (term, values.get("voteLeader") or None) if term >= 0 else None


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() else -1
