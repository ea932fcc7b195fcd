"""quota set, remove, list: what single accounts, addresses and groups may use of a broker."""

from __future__ import annotations

from triomq.admin.commands.name_servers import properties_of
from triomq.admin.errors import NotFound, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triomq.admin.run import Run

KEY = "quotaOverrides"
DEFAULTS = {"account": "quotaPerAccount", "address": "quotaPerAddress", "group": "quotaPerGroup"}
UPDATE_BROKER_CONFIG, GET_BROKER_CONFIG = 25, 26


def quota_set(run: Run) -> None:
    kind = _kind(run)
    name = run.get("NAME")
    quotas = run.get("QUOTAS")
    if "=" not in quotas:
        raise UsageError("QUOTAS are like bytesIn=1048576,messagesIn=1000")
    _change(run, f"{kind} {name} {quotas}", quotas)


def quota_remove(run: Run) -> None:
    _change(run, f"{_kind(run)} {run.get('NAME')}", "")


def quota_list(run: Run) -> None:
    rows: list[dict[str, str]] = []

    def read(address: str) -> None:
        table = properties_of(run.session.call(address, GET_BROKER_CONFIG).body)
        if DEFAULTS["account"] not in table:
            raise NotFound(f"{address} has no quotas: it is not TrioMQ, or an older one")
        for kind, key in DEFAULTS.items():
            if table.get(key):
                rows.append({"address": address, "kind": kind, "name": "*", "quotas": table[key]})
        for entry in table.get(KEY, "").split(";"):
            words = entry.split(None, 2)
            if len(words) == 3:
                rows.append({"address": address, "kind": words[0], "name": words[1], "quotas": words[2]})

    run.for_each(_brokers(run), read)
    run.out.table({"address": "BROKER", "kind": "KIND", "name": "NAME", "quotas": "QUOTAS"}, rows)


def _brokers(run: Run) -> list[str]:
    if run.has("broker"):
        return [run.get("broker")]
    if run.has("cluster"):
        return run.session.masters_and_slaves(run.get("cluster"))
    raise UsageError("give --broker or --cluster")


def _kind(run: Run) -> str:
    kind = run.get("KIND")
    if kind not in DEFAULTS:
        raise UsageError(f"KIND is account, address or group, not {kind!r}")
    for text in (run.get("NAME"), run.get("QUOTAS")):
        if ";" in text or len(text.split()) > 1:
            raise UsageError(f"{text!r} has a blank or a semicolon")
    return kind


def _change(run: Run, entry: str, quotas: str) -> None:
    kind = run.get("KIND")
    name = run.get("NAME")

    def change(address: str) -> None:
        run.session.call(address, UPDATE_BROKER_CONFIG, body=f"{KEY}={entry}\n".encode())
        run.out.line(f"{kind} {name} has {quotas or 'the default quotas'} at {address}.")
        run.out.item(address=address, kind=kind, name=name, quotas=quotas)

    run.for_each(_brokers(run), change)
