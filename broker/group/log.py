"""The store of a broker that is a member of a DLedger group: where its ledger lies, and how the store gets it.

<root>/dledger-<id>/data     the log (storePathDLedgerCommitLog, if set)
<root>/dledger-<id>          its index, term, vote and checkpoint
<root>/commitlog             what was stored before the broker became a member (storePathCommitLog, if set)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from triomq.broker.configuration import Configuration
from triomq.broker.group.settings import GroupSettings
from triomq.dledger.ledger.ledger import Ledger
from triomq.dledger.ledger.ledger_log import LedgerLog
from triomq.dledger.ledger.term_files import TermFiles
from triomq.store.config import StoreSettings
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
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
        root = configuration.store.store_path_root_dir.rstrip("/") or "/"
        self.directory = f"{root}/dledger-{group.setup.self_id}"
        self._plain = Layout(configuration.store)
        self._data = configuration.store.store_path_dledger_commit_log or f"{self.directory}/data"
        self._files = files
        self.made: GroupLog

    def settings(self, store: StoreSettings) -> StoreSettings:
        """Return the settings of the store, for which the data directory is that of the log."""
        return dataclasses.replace(store, store_path_commit_log=self._data, read_only_commit_log_store_paths=None)

    def make_log(self, pool: OpenFiles, paths: Layout, file_size_bytes: int) -> LedgerLog:
        """See Contents.of."""
        ledger = Ledger(self._files, self.directory, file_size_bytes, pool=pool, data_directory=self._data)
        older = CommitLog(pool, self._plain, file_size_bytes)
        self.made = GroupLog(ledger, LedgerLog(ledger, older), TermFiles(self._files, self.directory))
        return self.made.log

    def check(self) -> None:
        """Raise StoreRefused if the ledger would lie among the files of the plain log."""
        data = self._files.real_path(self._data)
        for path in self._plain.commit_logs:
            if self._files.real_path(path) == data:
                raise StoreRefused(
                    f"{path} is the directory of storePathCommitLog and of the ledger; give storePathDLedgerCommitLog "
                    "a directory of its own"
                )
