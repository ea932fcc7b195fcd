"""context add, use, list, remove: clusters by name."""

from __future__ import annotations

import os
import sys

from triomq.admin.contexts import load, save
from triomq.admin.errors import AdminError, NotFound, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.admin.run import Run

MAX_SECRET_BYTES = 4096


def context_add(run: Run) -> None:
    name = run.get("NAME")
    if not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
        raise UsageError(f"a context's name has letters, digits, dots and dashes, which {name!r} has not")
    if not run.has("n"):
        raise UsageError("give the NameServers with -n HOST:PORT")
    context: dict[str, Any] = {"nameServers": run.get("n")}
    if run.has("accessKey"):
        context["accessKey"] = run.get("accessKey")
        context["secretKey"] = _secret(run.get("secretFile"))
    if run.has("tls"):
        context["tls"] = True
    if run.has("caFile"):
        context["caFile"] = os.path.abspath(run.get("caFile"))
    document = load()
    document["contexts"][name] = context
    document["current"] = document["current"] or name
    _store(run, document, f"remember context {name}")
    run.out.line(f"Context {name} is remembered.")
    run.out.item(**_item(name, context, document))


def _secret(path: str) -> str:
    """Return the secret key: from a file, else from the environment, else from standard input without echo."""
    if not path and os.environ.get("MQADMIN_SECRET_KEY"):
        return os.environ["MQADMIN_SECRET_KEY"]
    if not path and sys.stdin.isatty():
        import getpass

        text = getpass.getpass("Secret key: ")
    elif path in ("", "-"):
        text = sys.stdin.readline(MAX_SECRET_BYTES)
    else:
        try:
            with open(path, encoding="utf-8") as file:
                text = file.readline(MAX_SECRET_BYTES)
        except OSError as error:
            raise AdminError(f"cannot read {path}: {error.strerror}") from error
    if not text.strip():
        raise UsageError("the secret key is empty: set MQADMIN_SECRET_KEY or give --secretFile")
    return text.strip()


def context_use(run: Run) -> None:
    document = load()
    name = _known(document, run.get("NAME"))
    document["current"] = name
    _store(run, document, f"use context {name}")
    run.out.line(f"Commands go to {name}.")
    run.out.item(**_item(name, document["contexts"][name], document))


def context_list(run: Run) -> None:
    document = load()
    columns = {
        "current": "CURRENT",
        "name": "NAME",
        "nameServers": "NAMESERVERS",
        "accessKey": "ACCESS KEY",
        "tls": "TLS",
    }
    run.out.table(columns, [_item(name, each, document) for name, each in sorted(document["contexts"].items())])


def context_remove(run: Run) -> None:
    document = load()
    name = _known(document, run.get("NAME"))
    item = _item(name, document["contexts"].pop(name), document)
    if document["current"] == name:
        document["current"] = ""
    _store(run, document, f"forget context {name}")
    run.out.line(f"Context {name} is forgotten.")
    run.out.item(**item)


def _store(run: Run, document: dict[str, Any], text: str) -> None:
    run.change("changeContext", text, lambda: save(document))


def _known(document: dict[str, Any], name: str) -> str:
    if name not in document["contexts"]:
        raise NotFound(f"there is no context {name!r}: `mqadmin context list` shows those that exist")
    return name


def _item(name: str, context: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": name,
        "current": name == document["current"],
        "nameServers": context.get("nameServers", ""),
        "accessKey": context.get("accessKey"),
        "tls": bool(context.get("tls")),
        "caFile": context.get("caFile"),
    }
