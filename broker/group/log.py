"""The store of a broker that is a member of a DLedger group: where its ledger lies, and how the store gets it.

<root>/dledger-<id>/data     the log (storePathDLedgerCommitLog, if set: one directory, or several)
<root>/dledger-<id>          its index, term, vote and checkpoint, and whose ledger it is
<root>/commitlog             what was stored before the broker became a member (storePathCommitLog, if set)
"""

from __future__ import annotations

from dataclasses import dataclass

from triomq.broker.configuration import Configuration
from triomq.broker.settings.group import GroupSettings
from triomq.dledger.ledger.data_directories import data_settings, member_directory, plain_settings
from triomq.dledger.ledger.identity import check_identity, note_identity
from triomq.dledger.ledger.ledger import Ledger
from triomq.dledger.ledger.ledger_log import LedgerLog
from triomq.dledger.ledger.term_files import TermFiles
from triomq.store.config import StoreSettings
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
from triomq.store.disk.log_directories import log_directories
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.errors import StoreRefused
from triomq.store.log.commit_log import CommitLog


@dataclass(frozen=True, slots=True)
class GroupLog:
    """The ledger of this member, and the log that the store sees."""

    ledger: Ledger
    log: LedgerLog
    terms: TermFiles


class GroupStore:
    """Makes the log of a member's store. `made` is what `make_log` has made."""

    def __init__(self, configuration: Configuration, group: GroupSettings, files: Files) -> None:
        self.directory = member_directory(configuration.store.store_path_root_dir, group.setup.self_id)
        self._root = Layout(configuration.store).root
        self._identity = (group.setup.group, group.setup.self_id)
        self._files = files
        self._plain = Layout(plain_settings(configuration.store, self.directory, files))
        self.made: GroupLog

    def settings(self, store: StoreSettings) -> StoreSettings:
        """Return the settings of the store, for which the data directories are those of the log."""
        return data_settings(store, self.directory, self._files)

    def make_log(self, pool: OpenFiles, paths: Layout, file_size_bytes: int) -> LedgerLog:
        """See Contents.of."""
        ledger = Ledger(self._files, self.directory, file_size_bytes, pool=pool, directories=log_directories(paths))
        older = CommitLog(pool, self._plain, file_size_bytes)
        self.made = GroupLog(ledger, LedgerLog(ledger, older), TermFiles(self._files, self.directory))
        return self.made.log

    def check(self) -> None:
        """Raise StoreRefused if the ledger would lie among the files of the plain log, or is another member's. The
        directory is as it was found: not even locked."""
        every = self.made.ledger.directories.every
        check_identity(self._files, self._root, self.directory, every, self._identity)
        data = set(map(self._files.real_path, every))
        for path in (*self._plain.commit_logs, *self._plain.read_only_commit_logs):
            if self._files.real_path(path) in data:
                raise StoreRefused(
                    f"{path} is a directory of storePathCommitLog and of the ledger; give storePathDLedgerCommitLog "
                    "a directory of its own"
                )

    def note(self) -> None:
        """Note whose ledger it is. Raises OSError."""
        note_identity(self.made.terms, self._identity)
