"""MasterAccount: the account with which a slave asks its master for tables.

It is in the variables TRIOMQ_ACCESS_KEY and TRIOMQ_SECRET_KEY (or TRIOMQ_SECRET_KEY_FILE), or it is the one of mqadmin,
in <home>/conf/tools.yml. Files are read again for each round. Without an account requests carry none, as RocketMQ's do;
a master with access control then has to know the slave's address.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import structlog

from triomq.broker import optional
from triomq.protocol.account_text import account_in_document, account_in_variables
from triomq.protocol.clock import NowMs
from triomq.protocol.command import RemotingCommand
from triomq.protocol.secret_text import SecretError
from triomq.protocol.signature import sign_bound, stamp
from triomq.remoting.secret_file import read_secret

log = structlog.get_logger("triomq.broker.replication")

MAX_FILE_BYTES: Final = 65_536
VARIABLES: Final = "TRIOMQ"
"""What the names of the variables begin with."""


class MasterAccount:
    """Signs requests with the account in a file, or in `variables` (default: those of the process)."""

    def __init__(self, path: Path, now_ms: NowMs, variables: Mapping[str, str] | None = None) -> None:
        self._path = path
        self._now_ms = now_ms
        self._variables = os.environ if variables is None else variables
        self._problem = ""

    def sign(self, request: RemotingCommand) -> None:
        """Add the account and its signatures to a request. Never raises: an account that cannot be used is logged
        once."""
        try:
            account = self._account()
        except (OSError, ValueError) as error:
            problem = error.strerror or "" if isinstance(error, OSError) else str(error)
            if problem != self._problem:
                log.warning("account for the master not read", path=str(self._path), reason=problem)
            self._problem = problem
            return
        self._problem = ""
        if account is None:
            return
        signed_at = stamp(self._now_ms(), os.urandom(8))
        fields = request.ext_fields or {}
        request.ext_fields = sign_bound(request.code, fields, request.body, *account, signed_at=signed_at)

    def access_key(self) -> str:
        """Return the access key of the account; "" if there is none that can be used."""
        try:
            account = self._account()
        except (OSError, ValueError):
            return ""
        return account[0] if account is not None else ""

    def _account(self) -> tuple[str, str] | None:
        """Return the account, or None if there is none. Raises OSError, and ValueError that quotes no secret."""
        in_variables = account_in_variables(self._variables, VARIABLES, lambda path: read_secret(Path(path)))
        in_file = _read(self._path)
        if in_variables is not None and in_file is not None:
            raise SecretError(
                f"there are two accounts: in the variables {VARIABLES}_ACCESS_KEY and {VARIABLES}_SECRET_KEY, and in "
                "this file; remove one"
            )
        return in_variables or in_file


def _read(path: Path) -> tuple[str, str] | None:
    """Return the account in the file, or None if there is no file or nothing in it. Raises OSError, and ValueError with
    a reason that quotes nothing."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(data) > MAX_FILE_BYTES:
        raise ValueError(f"longer than {MAX_FILE_BYTES} bytes")
    try:
        document: Any = optional.yaml.load(data, Loader=optional.yaml.BaseLoader)
    except (optional.yaml.YAMLError, UnicodeDecodeError):
        raise ValueError("not YAML") from None
    return account_in_document(document, lambda name: read_secret(path.parent / name))
