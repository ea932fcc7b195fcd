"""Where the log of a member lies, and the plain log below it: storePathDLedgerCommitLog and storePathCommitLog, which
may be lists, and readOnlyCommitLogStorePaths, which speaks of both."""

from __future__ import annotations

from msgspec.structs import replace

from triomq.dledger.ledger import entry_format
from triomq.dledger.wire.bodies import ENTRY_HEADER_BYTES, ENTRY_MAGIC
from triomq.store.config import StoreSettings
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout, is_offset_name, paths_in
from triomq.store.disk.listing import our_files


def member_directory(root: str, self_id: str) -> str:
    """Return where the ledger of a member lies below the root directory of its store."""
    return f"{root.rstrip('/')}/dledger-{self_id}"


def data_settings(store: StoreSettings, directory: str, files: Files) -> StoreSettings:
    """Return the settings of a store whose log is the ledger in `directory`. Raises OSError."""
    data = _data_paths(store, directory)
    read_only = [path for path in Layout(store).read_only_commit_logs if _is_data(path, store, data, files)]
    return _with_paths(store, data, read_only)


def plain_settings(store: StoreSettings, directory: str, files: Files) -> StoreSettings:
    """Return the settings of the plain log below that ledger. Raises OSError."""
    paths = Layout(store)
    data = _data_paths(store, directory)
    read_only = [path for path in paths.read_only_commit_logs if not _is_data(path, store, data, files)]
    return _with_paths(store, paths.commit_logs, read_only)


def _data_paths(store: StoreSettings, directory: str) -> list[str]:
    return paths_in(store.store_path_dledger_commit_log) or [f"{directory}/data"]


def _with_paths(store: StoreSettings, paths: list[str], read_only: list[str]) -> StoreSettings:
    return replace(
        store,
        store_path_commit_log=",".join(paths),
        read_only_commit_log_store_paths=",".join(read_only) or None,
    )


def _is_data(path: str, store: StoreSettings, data: list[str], files: Files) -> bool:
    """Return whether a read-only directory is one of the ledger. The content decides about one of neither list."""
    if path in data or path in Layout(store).commit_logs:
        return path in data
    return any(
        _begins_with_entry(f"{path}/{name}", files) for name in our_files(files, path, is_offset_name, tells=False)
    )


def _begins_with_entry(path: str, files: Files) -> bool:
    """Return whether a file has an entry at its start. A plain file has the size of a record there, which is larger
    than an entry's magic number."""
    fd = files.open(path, write=False)
    try:
        head = files.pread(fd, ENTRY_HEADER_BYTES, 0)
    finally:
        files.close(fd)
    return len(head) == ENTRY_HEADER_BYTES and entry_format.read_header(head).magic == ENTRY_MAGIC
