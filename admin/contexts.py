"""Contexts: named clusters with their NameServers and account, in one file that only its owner may read.

    ~/.config/triomq/contexts    {"current": NAME, "contexts": {NAME: {"nameServers": ..., "accessKey": ..., ...}}}

XDG_CONFIG_HOME stands for ~/.config as usual. A secret key is in no output.
"""

from __future__ import annotations

import os

from triomq.admin.errors import AdminError, NotFound, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_FILE_BYTES = 1024 * 1024
MAX_CONTEXTS = 1000


class Place:
    """Where a command goes, and as whom."""

    __slots__ = ("ca_file", "credentials", "name_servers", "tls")

    def __init__(self, name_servers: str, credentials: tuple[str, str] | None, tls: bool, ca_file: str) -> None:
        self.name_servers = name_servers
        self.credentials = credentials
        self.tls = tls
        self.ca_file = ca_file


def path() -> str:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(base, "triomq", "contexts")


def load() -> dict[str, Any]:
    """Return the whole file. Raises AdminError if others may read its secrets, or if it is damaged."""
    import json

    name = path()
    try:
        with open(name, encoding="utf-8") as file:
            status = os.fstat(file.fileno())
            text = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        return {"current": "", "contexts": {}}
    except OSError as error:
        raise AdminError(f"cannot read {name}: {error.strerror}") from error
    if status.st_mode & 0o077:
        raise AdminError(f"other accounts may read the secrets in {name}: run chmod 600 {name}")
    try:
        document = json.loads(text) if len(text) <= MAX_FILE_BYTES else None
    except ValueError as error:
        raise AdminError(f"{name} is damaged: {error}") from error
    if not isinstance(document, dict) or not _is_table(document.get("contexts")):
        raise AdminError(f"{name} is damaged: it has no table of contexts")
    return {"current": str(document.get("current") or ""), "contexts": document["contexts"]}


def _is_table(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(each, dict) for each in value.values())


def save(document: dict[str, Any]) -> None:
    """Replace the file as a whole; it is never readable by others, not even for a moment."""
    import json

    if len(document["contexts"]) > MAX_CONTEXTS:
        raise UsageError(f"at most {MAX_CONTEXTS} contexts are kept")
    name = path()
    temporary = f"{name}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(name), mode=0o700, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
            os.replace(temporary, name)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise AdminError(f"cannot write {name}: {error.strerror}") from error


def place_of(name_servers: str, wanted: str, credentials: tuple[str, str] | None) -> Place:
    """Return where to go: -n, else --context, MQADMIN_CONTEXT, NAMESRV_ADDR, the current context. The account of a
    context goes only with that context's NameServers, unless --context names it. Raises UsageError if the file with
    the certificates to trust does not exist.
    """
    tls = os.environ.get("MQADMIN_TLS") == "1"
    ca_file = os.environ.get("MQADMIN_TLS_CA", "")
    if tls:
        _check_ca_file(ca_file, "MQADMIN_TLS_CA")
    if not wanted and not name_servers:
        wanted = os.environ.get("MQADMIN_CONTEXT", "")
        name_servers = "" if wanted else os.environ.get("NAMESRV_ADDR", "")
    if not wanted and name_servers:
        return Place(name_servers, credentials, tls, ca_file)
    document = load()
    name = wanted or document["current"]
    if not name:
        return Place("", credentials, tls, ca_file)
    context = document["contexts"].get(name)
    if context is None:
        raise NotFound(f"there is no context {name!r} in {path()}: `mqadmin context list` shows those that exist")
    if credentials is None and context.get("accessKey") and context.get("secretKey"):
        credentials = (str(context["accessKey"]), str(context["secretKey"]))
    tls = tls or bool(context.get("tls"))
    if tls and not ca_file:
        ca_file = str(context.get("caFile") or "")
        _check_ca_file(ca_file, f"caFile of context {name!r}")
    elif tls:
        _check_ca_file(ca_file, "MQADMIN_TLS_CA")
    return Place(name_servers or str(context.get("nameServers", "")), credentials, tls, ca_file)


def _check_ca_file(ca_file: str, source: str) -> None:
    if ca_file and not os.path.isfile(ca_file):
        raise UsageError(f"{source}: there is no file {ca_file!r} with certificates to trust")
