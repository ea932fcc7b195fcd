"""Overrides: the allowances of named accounts, addresses and groups, in place of the defaults of their kind.

They are kept in config/quotas.json of the store and changed by UPDATE_BROKER_CONFIG, whose key `quotaOverrides` holds
entries that are separated by semicolons:

    account alice bytesIn=1048576,messagesIn=0; address 10.1.0.0/16 connections=20; group G messagesOut=100

An entry replaces the override of its name, and one without an allowance removes it. Names that no entry mentions keep
theirs. `account -` is the account of all clients without a signature. An address is one host or a network: each of its
hosts has the allowance, and the smallest network that holds a host decides. Of IPv6 the hosts of a /64 are one.

Only the event loop touches the table. Limit: `MAX_OVERRIDES`.
"""

from __future__ import annotations

import ipaddress
import json
from typing import Final

import structlog

from triomq.broker.settings import allowance as allowances
from triomq.broker.settings.allowance import ACCOUNT, ADDRESS, GROUP, QUOTAS, Allowance
from triomq.broker.tables.saved_table import SavedTable
from triomq.broker.tables.table_file import TableFile
from triomq.broker.tables.write_behind import WriteBehind
from triomq.protocol.address import HostPort
from triomq.protocol.settings import SettingError

log = structlog.get_logger("triomq.broker.quotas")

KEY: Final = "quotaOverrides"
MAX_OVERRIDES: Final = 1000
MAX_NAME: Final = 255
UNNAMED: Final = "-"
IPV6_BITS: Final = 64
_ALL: Final = "all"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Table = dict[tuple[str, str], Allowance]


class Overrides(SavedTable):
    """See the module's docstring."""

    def __init__(self, file: TableFile) -> None:
        self._file = file
        self._table: Table = {}
        self._networks: list[tuple[Network, str]] = []
        self._writer = WriteBehind(file, lambda: [self._file_text().encode()])

    def __len__(self) -> int:
        return len(self._table)

    def find(self, kind: str, name: str) -> Allowance | None:
        """Return the override of an account or a group."""
        return self._table.get((kind, name))

    def of_address(self, remote: HostPort) -> tuple[str, Allowance] | None:
        """Return the override of the smallest network that holds a host, after the network's text."""
        if not self._networks:
            return None
        host = ipaddress.ip_address(remote.ip)
        for network, text in self._networks:
            if host in network:
                return text, self._table[ADDRESS, text]
        return None

    def kinds(self) -> set[str]:
        """Return the kinds that have overrides."""
        return {kind for kind, _ in self._table}

    def names(self) -> list[tuple[str, str]]:
        """Return kind and name of all overrides."""
        return sorted(self._table)

    def text(self) -> str:
        """Return all entries, as an update takes them."""
        entries = sorted(self._table.items())
        return "; ".join(f"{kind} {name} {allowances.to_text(allowance, kind)}" for (kind, name), allowance in entries)

    def check(self, text: str) -> None:
        """Raise SettingError if `change` would."""
        self._changed(text)

    def change(self, text: str) -> None:
        """Apply the entries of an update, all or none. Raises SettingError."""
        self._install(self._changed(text))
        self._writer.changed()
        if self.log is not None:
            self.log.changed(_ALL)
            self.log.write()

    def logged_names(self) -> list[str]:
        """See LoggedTable. All overrides together are one entry."""
        return [_ALL]

    def logged_entry(self, name: str) -> bytes | None:
        """See LoggedTable: the content of the file."""
        return self._file_text().encode()

    def take_logged(self, name: str, entry: bytes | None) -> None:
        """See LoggedTable."""
        table = _decode(entry.decode()) if entry is not None else {}
        if table != self._table:
            self._install(table)
            self._writer.changed()

    def load(self) -> None:
        """Read the file."""
        table = self._file.load(_decode)
        if table is not None:
            self._install(table)
            log.info("quota overrides loaded", overrides=len(table))

    def _changed(self, text: str) -> Table:
        if self.log is not None and not self.log.leads:
            raise SettingError("update", KEY, "another member of the group is its master, or none: update it there")
        table = dict(self._table)
        for entry in text.split(";"):
            words = entry.split(None, 2)
            if not words:
                continue
            try:
                kind, name = named(words)
                allowance = allowances.parse(words[2] if len(words) > 2 else "", kind)
            except ValueError as error:
                raise SettingError("update", KEY, f"{entry.strip()[:200]!r}: {error}") from None
            if allowance:
                table[kind, name] = allowance
            else:
                table.pop((kind, name), None)
        if len(table) > max(MAX_OVERRIDES, len(self._table)):
            raise SettingError("update", KEY, f"would hold {len(table)} overrides, the limit is {MAX_OVERRIDES}")
        return table

    def _install(self, table: Table) -> None:
        self._table = table
        networks = [(ipaddress.ip_network(name), name) for kind, name in table if kind == ADDRESS]
        self._networks = sorted(networks, key=lambda known: known[0].prefixlen, reverse=True)

    def _file_text(self) -> str:
        entries = [
            {"kind": kind, "name": name, "quotas": dict(allowance)}
            for (kind, name), allowance in sorted(self._table.items())
        ]
        return json.dumps({"overrides": entries}, indent=1)


def named(words: list[str]) -> tuple[str, str]:
    """Return the kind and the name that an entry begins with; an address as the table has it. Raises ValueError."""
    kind = words[0]
    if kind not in QUOTAS:
        raise ValueError(f"it must begin with {ACCOUNT}, {ADDRESS} or {GROUP}")
    if len(words) < 2:
        raise ValueError(f"it names no {kind}")
    name = words[1]
    if kind == ADDRESS:
        return kind, _network_text(name)
    if len(name) > MAX_NAME:
        raise ValueError(f"the name has {len(name)} characters, {MAX_NAME} are allowed")
    return kind, name


def _network_text(text: str) -> str:
    network = ipaddress.ip_network(text)  # its ValueError quotes the text
    if network.version == 6 and network.prefixlen > IPV6_BITS:
        raise ValueError(f"the hosts of an IPv6 network of {IPV6_BITS} bits count as one: give {text}'s network")
    return str(network)


def _decode(text: str) -> Table:
    """Return the table of a file's text. Raises ValueError."""
    table: Table = {}
    try:
        for entry in json.loads(text)["overrides"]:
            kind, name = named([entry["kind"], entry["name"]])
            limits = ",".join(f"{quota}={limit}" for quota, limit in entry["quotas"].items())
            table[kind, name] = allowances.parse(limits, kind)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a table of quotas: {error!r}") from None
    return table
