"""The account of a tool or of a slave: the document conf/tools.yml, and variables that stand in for it.

accessKey: operator
secretKey: its secret           or secretKeyFile: a file that holds it, relative to the directory of tools.yml
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from triomq.protocol.secret_text import SecretError

TYPE_CHECKING = False
if TYPE_CHECKING:  # mqadmin, which starts in milliseconds, does without this module
    from typing import Any

Read = Callable[[str], str]
"""Return the secret in the file with this path. Raises SecretError."""


def account_in_document(document: Any, read: Read) -> tuple[str, str] | None:
    """Return access key and secret key; None for an empty document. Raises SecretError, which quotes no secret."""
    if document is None or document == "":
        return None
    members = document if isinstance(document, dict) else {}
    return _account(members, ("accessKey", "secretKey", "secretKeyFile"), read)


def account_in_variables(variables: Mapping[str, str], prefix: str, read: Read) -> tuple[str, str] | None:
    """Return the account in PREFIX_ACCESS_KEY and PREFIX_SECRET_KEY or PREFIX_SECRET_KEY_FILE, or None if none of them
    is set. Raises SecretError, which quotes no secret."""
    names = (f"{prefix}_ACCESS_KEY", f"{prefix}_SECRET_KEY", f"{prefix}_SECRET_KEY_FILE")
    if not any(variables.get(name) for name in names):
        return None
    return _account({name: variables.get(name) or None for name in names}, names, read)


def _account(members: Mapping[str, Any], names: tuple[str, str, str], read: Read) -> tuple[str, str]:
    access_name, secret_name, file_name = names
    access_key, secret_key, file = (members.get(name) for name in names)
    if secret_key is not None and file is not None:
        raise SecretError(f"{secret_name} and {file_name} are both set: remove one")
    for value in (access_key, secret_key if file is None else file):
        if not isinstance(value, str | int) or isinstance(value, bool) or not str(value):
            raise SecretError(f"{access_name} and {secret_name} are expected, as plain values, or {file_name}")
    return str(access_key), str(secret_key) if file is None else read(str(file))
