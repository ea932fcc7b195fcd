"""The log of a stopped member, opened for reading only: what `python -m triomq.store verify` and `dump` look at.

Nothing is changed, not even what the next start of the member would mend by itself, such as index units that a power
failure has taken.
"""

from __future__ import annotations

from typing import Final

from triomq.dledger.ledger import recovery, replacing
from triomq.dledger.ledger.data_directories import data_settings, member_directory, plain_settings
from triomq.dledger.ledger.entry_format import Header
from triomq.dledger.ledger.identity import misfit
from triomq.dledger.ledger.ledger import Ledger
from triomq.dledger.ledger.ledger_log import LedgerLog
from triomq.dledger.ledger.records import is_whole_record
from triomq.dledger.ledger.recovery import Found
from triomq.dledger.ledger.term_files import TermFiles
from triomq.store.config import StoreSettings
from triomq.store.disk.layout import Layout
from triomq.store.disk.ledgers import ledgers_in
from triomq.store.disk.log_directories import log_directories
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.errors import StoreRefused
from triomq.store.log.commit_log import CommitLog
from triomq.store.upkeep.offline import OfflineLog, ReadOnlyFiles, load_whole_files
from triomq.store.upkeep.progress import StartProgress, unseen

_OPEN_FILES: Final = 256


def open_member(settings: StoreSettings, self_id: str, start_progress: StartProgress = unseen) -> OfflineLog:
    """Read the entries of a member, and return its log. What is wrong with entries, index, term and checkpoint is among
    the problems. Raises StoreRefused if there is no such member, or if file sizes do not fit; OSError."""
    files = ReadOnlyFiles()
    directory = member_directory(Layout(settings).root, self_id)
    if not files.exists(directory):
        others = ", ".join(f"dledger-{each}" for each in ledgers_in(files, Layout(settings).root)) or "no ledger"
        raise StoreRefused(f"{directory} does not exist; dLegerSelfId says which member it is. There is {others}")
    paths = Layout(data_settings(settings, directory, files))
    pool = OpenFiles(files, _OPEN_FILES)
    size = settings.mapped_file_size_commit_log_bytes
    older = CommitLog(pool, Layout(plain_settings(settings, directory, files)), size)
    ledger = Ledger(files, directory, size, pool=pool, directories=log_directories(paths))
    problems = load_whole_files(older.sequence, older.directories)
    problems += load_whole_files(ledger.data, ledger.directories)
    ledger.index.load(ledger.index.directory)
    if replacing.waiting(files, directory, ledger.directories):
        problems.append(f"{directory}: its leader was replacing this ledger; a start of the member completes that")
    notes = TermFiles(files, directory)
    problems += filter(None, [misfit(notes, directory, (settings.dleger_group or "", self_id))])
    noted_end, committed = notes.load_checkpoint()
    found = _read_entries(ledger, noted_end, problems, start_progress)
    _compare_notes(notes, noted_end, found, problems)
    ledger.view(found)
    log = LedgerLog(ledger, older)
    try:
        log.view()
    except StoreRefused as error:
        problems.append(str(error))
    made = OfflineLog(paths, pool, log, problems)
    made.queued_end = ledger.end_of(min(committed, found.end_index))
    known = "unknown" if committed < 0 else f"up to {committed}"
    range_text = (
        f"{found.begin_index} to {found.end_index} of term {found.end_term}" if found.end_index >= 0 else "none"
    )
    made.about.append(f"ledger: entries {range_text}, committed {known}")
    return made


def _read_entries(ledger: Ledger, noted_end: int, problems: list[str], start_progress: StartProgress) -> Found:
    """Find the end as a start does, from the beginning, and compare the index with the entries."""
    data = ledger.data
    found = recovery.begin(data)
    wrong: list[Header] = []
    last = data.last
    progress = start_progress("reading the entries", found.end_pos, last.likely_end if last is not None else 0)
    for file in data.files:
        if not recovery.scan(file, ledger.index, found, noted_end, is_whole_record, wrong.append):
            break
        progress.at(file.end)
    progress.over()
    if wrong:
        problems.append(
            f"index of the ledger: {len(wrong)} units are not those of their entries, the first one at "
            f"{wrong[0].entry_index}"
        )
    return found


def _compare_notes(notes: TermFiles, noted_end: int, found: Found, problems: list[str]) -> None:
    """Compare term and checkpoint with the entries."""
    if found.end_index < noted_end:
        problems.append(
            f"the ledger ends behind index {found.end_index}, at {found.end_pos}, but entries up to {noted_end} "
            "were on disk"
        )
    try:
        term, _ = notes.load_term()
    except StoreRefused as error:
        problems.append(str(error))
        return
    if term < found.end_term:
        problems.append(f"currterm has term {term}, but there are entries of term {found.end_term}")
