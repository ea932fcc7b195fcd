"""AccessTable: the accounts and white lists of all ACL files, as they are now (PlainPermissionManager).

    <home>/conf/plain_acl.yml       the default file (property rocketmq.acl.plain.file); created empty if missing
    <home>/conf/acl/**/*.yml|yaml   further files, in order of their paths; the default file comes last

An access key defined twice belongs to the file that comes first. Files are watched by their times and sizes, a few
times a second, and with them the files that hold secret keys (secretKeyFile); one that changed is read again, and when
it cannot be used its former content stays in force. Requests
only ever see a table built from whole files.

Touched only on the event loop. It decides nothing (AccessControl does) and never logs or shows a secret key, except in
`configs`, which exists for the administrators' request that asks for them.

Limit: `MAX_FILES` files.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog
import trio

from triomq.broker.acl import acl_file
from triomq.broker.acl.accounts import Account, check_patterns, check_update
from triomq.broker.acl.acl_file import AclFile
from triomq.broker.acl.addresses import AddressPattern
from triomq.broker.acl.errors import AclFileError, AclUpdateRefused
from triomq.broker.acl.names import DEFAULT_FILE, TOOLS_FILE
from triomq.protocol.bodies.acl import PlainAccessConfig
from triomq.protocol.bodies.base import replace
from triomq.protocol.bodies.topic_config import DataVersion
from triomq.protocol.clock import NowMs
from triomq.protocol.runtime_findings import REJECTED
from triomq.remoting.secret_file import read_secret

log = structlog.get_logger("triomq.broker.acl")

FURTHER_FILES = "conf/acl"
WATCH_SECONDS = 0.3
MAX_FILES = 1000

_Stamp = tuple[int, int, int]
_Stamps = tuple[_Stamp | None, ...]
"""Of an ACL file, then of the files that hold its secret keys."""


class AccessTable:
    """See the module's docstring. `home` is the installation directory, `default_file` relative to it or absolute."""

    def __init__(self, home: Path, *, now_ms: NowMs, default_file: str = DEFAULT_FILE) -> None:
        self._home = Path(home).absolute()
        self.default_path = self._home / default_file.lstrip("/") if default_file else self._home / DEFAULT_FILE
        self._now_ms = now_ms
        self._files: dict[Path, AclFile] = {}
        self._stamps: dict[Path, _Stamps] = {}
        self._key_stamps: dict[Path, dict[Path, _Stamp | None]] = {}  # of the files that hold secret keys
        self._accounts: dict[str, Account] = {}
        self._owners: dict[str, Path] = {}
        self._white_addresses: tuple[AddressPattern, ...] = ()
        self._rejected: dict[Path, str] = {}

    # -- reading -----------------------------------------------------------------------------------------------------

    def account(self, access_key: str) -> Account | None:
        """Return the account of an access key."""
        return self._accounts.get(access_key)

    @property
    def white_addresses(self) -> tuple[AddressPattern, ...]:
        """Return the patterns of addresses whose clients need no credentials."""
        return self._white_addresses

    def configs(self) -> tuple[list[str], list[PlainAccessConfig]]:
        """Return all white addresses and accounts as in the files, with their secret keys: not for logs."""
        files = self._files.values()
        return (
            [text for file in files for text in file.white_texts],
            [config for file in files for config in file.configs],
        )

    def config(self, access_key: str) -> PlainAccessConfig | None:
        """Return the account of an access key as in its file, with its secret key: not for logs."""
        path = self._owners.get(access_key)
        configs = self._files[path].configs if path is not None else ()
        return next((config for config in configs if config.access_key == access_key), None)

    def default_white_addresses(self) -> list[str]:
        """Return the white addresses of the default file."""
        file = self._files.get(self.default_path)
        return list(file.white_texts) if file is not None else []

    @property
    def rejected(self) -> int:
        """The number of files that cannot be used, whose former content is in force."""
        return len(self._rejected)

    def rejected_values(self) -> dict[str, str]:
        """Return what the runtime information says of files that cannot be used: why, and since when."""
        return {REJECTED: "; ".join(self._rejected.values())} if self._rejected else {}

    def versions(self) -> dict[str, DataVersion]:
        """Return path of each file -> its data version."""
        return {str(path): file.version for path, file in self._files.items()}

    def default_version(self) -> DataVersion:
        """Return the data version of the default file."""
        file = self._files.get(self.default_path)
        return file.version if file is not None else DataVersion()

    # -- files -------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Read all files at start. Raises AclFileError naming the file that cannot be used."""
        if not self.default_path.exists():
            try:
                self.default_path.parent.mkdir(parents=True, exist_ok=True)
                self.default_path.touch(mode=0o600)
            except OSError as error:
                log.warning("ACL file not created", path=str(self.default_path), error=error.strerror)
        files: dict[Path, AclFile] = {}
        stamps: dict[Path, _Stamps] = {}
        for path in self._paths():
            if _stamp(path) is not None:
                files[path], stamps[path] = self._read(path)
        self._files = files
        self._stamps = stamps
        self._rebuild()
        log.info("ACL files loaded", files=len(files), accounts=len(self._accounts))

    def check(self) -> None:
        """Read all files as `load` does, but create and store nothing. Raises AclFileError."""
        for path in self._paths():
            if _stamp(path) is not None:
                self._read(path)

    async def run(self) -> None:
        """Watch the files until cancelled."""
        while True:
            await trio.sleep(WATCH_SECONDS)
            try:
                self.refresh()
            except Exception:
                log.exception("ACL files not checked")

    def refresh(self) -> bool:
        """Read the files that changed since the last time. Return True if any did. Never raises for a bad file."""
        stamps = {path: self._stamps_of(path) for path in self._paths() if _stamp(path) is not None}
        if stamps == self._stamps:
            return False
        files: dict[Path, AclFile] = {}
        for path, stamp in stamps.items():
            known = self._files.get(path)
            if known is not None and self._stamps.get(path) == stamp:
                files[path] = known
                continue
            try:
                files[path], stamps[path] = self._read(path)
                self._rejected.pop(path, None)
                log.info("ACL file loaded", path=str(path), accounts=len(files[path].accounts))
            except AclFileError as error:
                log.error("ACL file rejected; its former content stays in force", error=str(error))
                since = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
                self._rejected[path] = f"{error} (since {since:%Y-%m-%d %H:%M:%S} UTC)"
                stamps[path] = (stamp[0], *self._key_stamps[path].values())
                if known is not None:
                    files[path] = known
        for path in self._stamps.keys() - stamps.keys():
            log.warning("ACL file removed", path=str(path))
            self._rejected.pop(path, None)
        self._files = files
        self._stamps = stamps
        self._rebuild()
        return True

    def _stamps_of(self, path: Path) -> _Stamps:
        return (_stamp(path), *map(_stamp, self._key_stamps.get(path, ())))

    def _read(self, path: Path) -> tuple[AclFile, _Stamps]:
        """Return the file and its stamps, which are taken before reading: a change at the same moment counts later. Log
        a warning for each doubtful entry. Raises AclFileError."""
        stamp = _stamp(path)
        seen = self._key_stamps[path] = {}

        def read_key(key_file: Path) -> str:
            seen[key_file] = _stamp(key_file)
            return read_secret(key_file)

        file = acl_file.read(path, self._now_ms(), read_key)
        for remark in file.remarks:
            log.warning("doubtful entry found in an ACL file", path=str(path), remark=remark)
        return file, (stamp, *seen.values())

    def _paths(self) -> list[Path]:
        """Return the paths of the files in order of precedence."""
        further = self._home / FURTHER_FILES
        tools = self._home / TOOLS_FILE
        paths: list[Path] = []
        for directory, directories, names in os.walk(further):
            directories.sort()
            paths += [Path(directory, name) for name in names if name.endswith((".yml", ".yaml"))]
        paths = sorted(path for path in paths if path != tools)
        if self.default_path not in paths:
            paths.append(self.default_path)
        if len(paths) > MAX_FILES:
            log.warning("ACL files left out; there are too many", files=len(paths), limit=MAX_FILES)
            paths = paths[: MAX_FILES - 1] + [self.default_path]
        return paths

    def _rebuild(self) -> None:
        accounts: dict[str, Account] = {}
        owners: dict[str, Path] = {}
        white_addresses: list[AddressPattern] = []
        for path, file in self._files.items():
            white_addresses += file.white_addresses
            for account in file.accounts:
                if account.access_key in accounts:
                    log.warning("access key defined twice; the first definition applies", key=account.access_key)
                    continue
                accounts[account.access_key] = account
                owners[account.access_key] = path
        self._accounts = accounts
        self._owners = owners
        self._white_addresses = tuple(white_addresses)
        if not accounts:
            log.warning(
                "accounts not defined although aclEnable=true; only globalWhiteRemoteAddresses are admitted",
                path=str(self.default_path),
                white_addresses=len(white_addresses),
            )

    # -- changes by administrators -----------------------------------------------------------------------------------

    def check_account(self, config: PlainAccessConfig) -> Path:
        """Return the file that has an account, or will have a new one. Raises AclUpdateRefused if `update_account`
        would for what the account says."""
        check_update(config)
        path = self._owners.get(config.access_key or "", self.default_path)
        self._check_key_file(path, config)
        return path

    def update_account(self, config: PlainAccessConfig) -> None:
        """Write an account into the file that has it, a new one into the default file. It takes effect at once. Raises
        AclUpdateRefused and OSError."""
        path = self.check_account(config)
        self._change(path, lambda document: acl_file.with_account(document, config))
        log.info("ACL entry written", key=config.access_key, path=str(path))

    def _check_key_file(self, path: Path, config: PlainAccessConfig) -> None:
        """Raise AclUpdateRefused for a new secret key of an account whose present one has a file of its own."""
        present = self.config(config.access_key or "")
        if present is None or present.secret_key == config.secret_key:
            return
        for entry in self._files[path].document.get("accounts") or ():
            key_file = acl_file.key_file_of(entry, path.parent)
            if key_file is not None and entry.get("accessKey") == config.access_key:
                raise AclUpdateRefused(f"the secret key of {config.access_key} is in {key_file}: change it there")

    def delete_account(self, access_key: str) -> bool:
        """Remove an account from its file. Return False if there is none. Raises AclUpdateRefused and OSError."""
        path = self._owners.get(access_key)
        if path is None:
            return False
        self._change(path, lambda document: acl_file.without_account(document, access_key))
        log.info("ACL entry deleted", key=access_key, path=str(path))
        return True

    def update_white_addresses(self, texts: list[str], path_text: str | None) -> bool:
        """Replace the white list of a file (None or empty: the default file). Return False if the path is not an ACL
        file below the installation directory, or ends in .yaml. Raises AclUpdateRefused and OSError."""
        path = Path(path_text).absolute() if path_text else self.default_path
        if path not in self._files or not path.is_relative_to(self._home) or path.suffix == ".yaml":
            return False
        check_patterns(texts)
        self._change(path, lambda document: acl_file.with_white_addresses(document, texts))
        log.info("global white addresses written", path=str(path), entries=len(texts))
        return True

    def _change(self, path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
        """Change a file based on its present content, not on content that was read earlier."""
        try:
            present = acl_file.read(path, self._now_ms()) if path.exists() else acl_file.parse(path, b"", 0)
        except AclFileError as error:
            raise AclUpdateRefused(f"the ACL file must be repaired first: {error}") from None
        version = replace(present.version, counter=present.version.counter + 1, timestamp=self._now_ms())
        acl_file.write(path, change(present.document), version)
        self._stamps.pop(path, None)
        self.refresh()


def _stamp(path: Path) -> _Stamp | None:
    """Return a stamp that changes when the file does; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
