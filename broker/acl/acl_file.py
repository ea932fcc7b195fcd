"""One ACL file, plain_acl.yml or another below conf/acl: YAML text to its parts and back (AclUtils).

    globalWhiteRemoteAddresses: list of address patterns
    accounts: list of accounts
    dataVersion: list with one {counter, timestamp}

Values are read as they are written: an access key of digits keeps its zeros. Members this program does not know survive
a rewriting, comments do not. `secretKeyFile` stands for `secretKey`: a file that holds it, relative to the directory of
the ACL file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from msgspec import Struct

from triomq.broker.acl.accounts import Account, account_of
from triomq.broker.acl.addresses import AddressPattern
from triomq.broker.acl.errors import AclFileError
from triomq.broker.acl.spelling import check_keys, remarks
from triomq.protocol.bodies.acl import PlainAccessConfig
from triomq.protocol.bodies.topic_config import DataVersion
from triomq.protocol.secret_text import SecretError
from triomq.remoting.secret_file import read_secret

MAX_FILE_BYTES = 16 * 1024 * 1024
_YES = frozenset({"true", "yes", "on"})  # YAML 1.1's words for true


class AclFile(Struct, frozen=True):
    """A parsed file. `document` is its whole content as text values, for rewriting; `remarks` lists what is doubtful in
    it."""

    path: Path
    accounts: tuple[Account, ...]
    configs: tuple[PlainAccessConfig, ...]
    white_addresses: tuple[AddressPattern, ...]
    version: DataVersion
    document: dict[str, Any]
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"AclFile({str(self.path)!r}, {self.accounts!r}, {self.version!r})"  # the document has secret keys

    @property
    def white_texts(self) -> list[str]:
        return [pattern.text for pattern in self.white_addresses]


def read(path: Path, now_ms: int, read_key: Callable[[Path], str] = read_secret) -> AclFile:
    """Read and check a file; one without a dataVersion gets version 0 at `now_ms`. Raises AclFileError naming the
    file."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise AclFileError(f"{path}: {error.strerror}") from None
    if len(data) > MAX_FILE_BYTES:
        raise AclFileError(f"{path}: is longer than {MAX_FILE_BYTES} bytes")
    return parse(path, data, now_ms, read_key)


def parse(path: Path, data: bytes, now_ms: int, read_key: Callable[[Path], str] = read_secret) -> AclFile:
    """Return the file with this content; `read_key` reads secret keys that have files of their own. Raises AclFileError
    naming the file, never quoting its content."""
    try:
        # BaseLoader leaves every value as it is written, and can only create strings, lists and mappings.
        document: Any = yaml.load(data, Loader=yaml.BaseLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        place = getattr(error, "problem_mark", None)
        line = f", line {place.line + 1}" if place is not None else ""
        raise AclFileError(f"{path}{line}: not YAML") from None
    if document is None or document == "":
        document = {}
    if not isinstance(document, dict):
        raise AclFileError(f"{path}: the top level must be a mapping")
    try:
        check_keys(document)
        entries = _list(document, "accounts")
        configs = tuple(_config(entry, path.parent, read_key) for entry in entries)
        white_texts = [_text(entry, "globalWhiteRemoteAddresses") or "" for entry in _list(document, _WHITE)]
        return AclFile(
            path,
            tuple(
                account_of(config, is_bound=_is_yes(entry, "boundSignature"))
                for entry, config in zip(entries, configs, strict=True)
            ),
            configs,
            tuple(AddressPattern(text) for text in white_texts),
            _version(document, now_ms),
            document,
            remarks(document),
        )
    except AclFileError as error:
        raise AclFileError(f"{path}: {error}") from None


def with_account(document: dict[str, Any], config: PlainAccessConfig) -> dict[str, Any]:
    """Return the document with this account as its last one. Members missing in `config` keep their value, except
    admin. A secret key that has a file of its own stays there."""
    entries = _list(document, "accounts")
    kept: dict[str, Any] = {}
    for entry in entries:
        if isinstance(entry, dict) and entry.get("accessKey") == config.access_key:
            kept = entry
            break
    changed = dict(kept)
    for name, value in (
        ("accessKey", config.access_key),
        ("secretKey", (config.secret_key or None) if not kept.get(KEY_FILE) else None),
        ("whiteRemoteAddress", config.white_remote_address or None),
        ("admin", config.admin),
        ("defaultTopicPerm", config.default_topic_perm or None),
        ("defaultGroupPerm", config.default_group_perm or None),
        ("topicPerms", config.topic_perms),
        ("groupPerms", config.group_perms),
    ):
        if value is not None:
            changed[name] = value
    return {**document, "accounts": [entry for entry in entries if entry is not kept] + [changed]}


def without_account(document: dict[str, Any], access_key: str) -> dict[str, Any]:
    """Return the document without this account."""
    entries = [
        entry
        for entry in _list(document, "accounts")
        if not (isinstance(entry, dict) and entry.get("accessKey") == access_key)
    ]
    return {**document, "accounts": entries}


def with_white_addresses(document: dict[str, Any], texts: list[str]) -> dict[str, Any]:
    """Return the document with its address list replaced by this one."""
    return {**document, _WHITE: texts}


def write(path: Path, document: dict[str, Any], version: DataVersion) -> None:
    """Replace the file's content atomically, keeping its mode. Raises OSError with the old content in place."""
    whole = {**document, "dataVersion": [{"counter": version.counter, "timestamp": version.timestamp}]}
    if "accounts" in whole:
        whole["accounts"] = [_typed(entry) for entry in whole["accounts"]]
    text = yaml.safe_dump(whole, default_flow_style=False, sort_keys=False, allow_unicode=True)
    temporary = path.with_name(path.name + ".tmp")
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text.encode())
        file.flush()
        os.fdatasync(descriptor)
    temporary.replace(path)


_WHITE = "globalWhiteRemoteAddresses"
KEY_FILE = "secretKeyFile"


def _typed(entry: Any) -> Any:
    """Return an account with `admin` as a boolean, so that it is not written in quotes."""
    if isinstance(entry, dict) and isinstance(entry.get("admin"), str):
        return {**entry, "admin": entry["admin"].lower() in _YES}
    return entry


def key_file_of(entry: Any, directory: Path) -> Path | None:
    """Return the file that holds the secret key of an account, or None if the account itself does."""
    text = _text(entry.get(KEY_FILE), KEY_FILE) if isinstance(entry, dict) else None
    return directory / text if text else None


def _config(entry: Any, directory: Path, read_key: Callable[[Path], str]) -> PlainAccessConfig:
    if not isinstance(entry, dict):
        raise AclFileError("accounts: each entry must be a mapping")
    access_key = _text(entry.get("accessKey"), "accessKey")

    def text(name: str) -> str | None:
        return _text(entry.get(name), f"account {access_key!r}: {name}")

    def texts(name: str) -> list[str] | None:
        items = _list(entry, name)
        where = f"account {access_key!r}: {name}"
        return [_text(item, where) or "" for item in items] if entry.get(name) else None

    return PlainAccessConfig(
        access_key=access_key,
        secret_key=_secret_key(text("secretKey"), key_file_of(entry, directory), access_key, read_key),
        white_remote_address=text("whiteRemoteAddress"),
        admin=(text("admin") or "").lower() in _YES,
        default_topic_perm=text("defaultTopicPerm"),
        default_group_perm=text("defaultGroupPerm"),
        topic_perms=texts("topicPerms"),
        group_perms=texts("groupPerms"),
    )


def _secret_key(
    text: str | None, key_file: Path | None, access_key: str | None, read_key: Callable[[Path], str]
) -> str | None:
    if key_file is None:
        return text
    if text is not None:
        raise AclFileError(f"account {access_key!r}: secretKey and {KEY_FILE} are both set: remove one")
    try:
        return read_key(key_file)
    except SecretError as error:
        raise AclFileError(f"account {access_key!r}: {KEY_FILE} {error}") from None


def _is_yes(entry: dict[str, Any], name: str) -> bool:
    return str(entry.get(name) or "").strip().lower() in _YES


def _version(document: dict[str, Any], now_ms: int) -> DataVersion:
    for entry in _list(document, "dataVersion"):
        if isinstance(entry, dict):
            try:
                return DataVersion(counter=int(entry["counter"]), timestamp=int(entry["timestamp"]))
            except (KeyError, TypeError, ValueError):
                break
    return DataVersion(timestamp=now_ms)


def _list(document: dict[str, Any], name: str) -> list[Any]:
    value = document.get(name)
    if value is None or value in ("", "null", "~"):
        return []
    if not isinstance(value, list):
        raise AclFileError(f"{name}: must be a list")
    return value


def _text(value: Any, where: str) -> str | None:
    """Return a plain value; an empty one and YAML's null are None."""
    if value is None or value in ("", "null", "~"):
        return None
    if not isinstance(value, str):
        raise AclFileError(f"{where}: must be a plain value, not a {type(value).__name__}")
    return value.strip()
