"""ConfigurationUpdate: the only way to change a running broker's configuration (RocketMQ: Configuration.update).

With access control (aclEnable) administrators may update it. Without access control nobody may, because the broker
cannot tell who asks, unless configUpdateWithoutAcl permits it.

An update is all or nothing: an invalid value, or a key that must not change at run time (addresses, paths, anything
that loads code), rejects all of it. Unknown keys are ignored, since mqadmin sends the same key to all kinds of servers.
A change goes to the configuration file first, so that it survives a restart, then into the records, then to the
listeners. Without a configuration file it lasts until the broker stops.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import structlog
import trio

from triomq.broker.config import BrokerSettings
from triomq.broker.configuration import Configuration
from triomq.broker.start_warnings import delete_when_problem
from triomq.daemon.atomic_file import write_atomically
from triomq.daemon.configuration import check_namesrv_addresses, read_file, write_text
from triomq.daemon.errors import StartError
from triomq.daemon.secret_names import is_secret
from triomq.protocol import java_properties
from triomq.protocol.bodies.topic_config import DataVersion
from triomq.protocol.clock import NowMs
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RequestRefused
from triomq.protocol.java_properties import PropertiesError
from triomq.protocol.settings import SettingError, changed, declarations, to_text
from triomq.remoting.config import ClientSettings, ServerSettings
from triomq.remoting.scheduling.places import Place, Places
from triomq.store.config import StoreSettings
from triomq.store.delay import DelayLevels

log = structlog.get_logger("triomq.broker.configuration")

_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")

Records = tuple[BrokerSettings, ServerSettings, ClientSettings, StoreSettings]
Listener = Callable[[frozenset[str]], None]
"""Called with the changed keys, after the change. It must not raise or await."""
Changed = Callable[[Mapping[str, str], Mapping[str, str]], None]
"""Called with the values of the changed keys before and after one update. It must not raise or await."""

NOT_ALLOWED = (
    "this broker has no access control, so its configuration is not changed over the network: "
    "set aclEnable=true, or configUpdateWithoutAcl=true if everybody who reaches it may change it"
)
REFUSED_KEYS = frozenset({"haMasterAddress"})
"""Declared changeable, but an address: it determines whose messages a slave stores."""


class KeptValue(Protocol):
    """A value that an update changes, and that its owner keeps in a file of its own."""

    def text(self) -> str: ...

    def check(self, text: str) -> None:
        """Raise SettingError if `change` would."""

    def change(self, text: str) -> None: ...

    async def wait_saved(self) -> None:
        """Wait until the changes made so far are on disk. Raises OSError."""


def is_closed(broker: BrokerSettings) -> bool:
    """Return whether the broker refuses every change of its configuration over the network."""
    return not broker.acl_enable and not broker.config_update_without_acl


class ConfigurationUpdate:
    """Lists and changes `configuration`, and the values in `kept`, by their keys."""

    def __init__(
        self, configuration: Configuration, *, now_ms: NowMs, kept: Mapping[str, KeptValue] | None = None
    ) -> None:
        self._kept = kept or {}
        self._configuration = configuration
        self._now_ms = now_ms
        self._listeners: list[Listener] = []
        self._places = Places()
        self.data_version = DataVersion(timestamp=now_ms())

    def on_change(self, listener: Listener) -> None:
        """Call `listener` after each change."""
        self._listeners.append(listener)

    def values(self) -> dict[str, str]:
        """Return every key with its present value, as RocketMQ lists them, except unset ones and passwords."""
        listed = {key: text for key, text in self._configuration.unknown.items() if not is_secret(key)}
        for record in self._configuration.listed_records():
            listed.update(to_text(record))
        listed.update({key: text for key, kept in self._kept.items() if (text := kept.text())})
        return listed

    def update(
        self, body: bytes, *, remote: str, changed: Changed | None = None
    ) -> Coroutine[Any, Any, frozenset[str]]:
        """Take the place of an update among the others, and return what applies it: properties text. That returns the
        changed keys, or raises RequestRefused with nothing changed. `changed` observes the change that it makes."""
        self._check_allowed(remote)
        try:
            values = java_properties.parse_request(body)
        except PropertiesError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"string2Properties error, {error}") from None
        return self._update(values, remote, changed, self._places.take("update"))

    def check(self, values: Mapping[str, str], *, remote: str) -> dict[str, str]:
        """Return what an update with these values would change: listed key -> value. Raises RequestRefused if it would
        be refused now. Nothing changes."""
        self._check_allowed(remote)
        try:
            for key in self._kept.keys() & values.keys():
                self._kept[key].check(values[key])
            rest = {key: text for key, text in values.items() if key not in self._kept}
            records, keys = self._changed(rest, refused=REFUSED_KEYS)
        except SettingError as error:
            raise _refusal(error, remote) from None
        listed = _texts(records)
        return {key: listed[key] for key in keys}

    def _check_allowed(self, remote: str) -> None:
        broker = self._configuration.broker
        if is_closed(broker):
            log.warning("update refused without access control", remote=remote)
            raise RequestRefused(ResponseCode.NO_PERMISSION, NOT_ALLOWED)

    async def _update(
        self, values: dict[str, str], remote: str, changed: Changed | None, place: Place
    ) -> frozenset[str]:
        async with place:
            kept = {key: values.pop(key) for key in self._kept.keys() & values.keys()}
            for key, text in kept.items():
                try:
                    self._kept[key].check(text)
                except SettingError as error:
                    raise _refusal(error, remote) from None
            keys = await self._apply(values, remote, changed)
            for key, text in kept.items():
                keys |= await self._change_kept(key, text, remote, changed)
            return keys

    def take(self, values: Mapping[str, str]) -> frozenset[str]:
        """Apply edits of the configuration file; return the changed keys. Raises SettingError with nothing changed.
        There is no await here, so an update that is being written to the file applies its keys before or after this."""
        records, keys = self._changed(values, refused=frozenset())
        if keys:
            self._install(records, keys, "configuration file")
        return keys

    async def _apply(self, values: Mapping[str, str], remote: str, changed: Changed | None) -> frozenset[str]:
        configuration = self._configuration
        try:
            records, keys = self._changed(values, refused=REFUSED_KEYS)
        except SettingError as error:
            raise _refusal(error, remote) from None
        unknown = sorted(values.keys() - _texts(records).keys() - configuration.unknown.keys())
        if unknown:
            log.warning("update of unknown keys ignored", keys=",".join(unknown), remote=remote)
        if not keys:
            return keys
        names = _file_keys(records)
        listed = _texts(records)
        await self._write({names[key]: listed[key] for key in keys})
        records, keys = self._changed(values, refused=REFUSED_KEYS)  # the file may have been reloaded since
        before = _texts(configuration.records())
        after = _texts(records)
        self._install(records, keys, remote)
        if changed is not None:
            changed({key: before[key] for key in sorted(keys)}, {key: after[key] for key in sorted(keys)})
        return keys

    async def _change_kept(self, key: str, text: str, remote: str, changed: Changed | None) -> frozenset[str]:
        """Change a kept value, which was checked; the update whose turn it is is the only one that changes it."""
        kept = self._kept[key]
        before = kept.text()
        try:
            kept.change(text)
        except SettingError as error:  # another member of the group may lead by now
            raise _refusal(error, remote) from None
        after = kept.text()
        if after == before:
            return frozenset()
        log.info("configuration changed", changed={key: after}, source=remote)
        self._tell(frozenset({key}))
        if changed is not None:
            changed({key: before}, {key: after})
        try:
            await kept.wait_saved()
        except OSError as error:
            reason = f"{key}: the change is in force but could not be written; the broker tries again: {error}"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason) from None
        return frozenset({key})

    def _changed(self, values: Mapping[str, str], *, refused: Collection[str]) -> tuple[Records, frozenset[str]]:
        """Return the records with `values` applied, and the listed keys that differ from the present ones."""
        before = self._configuration.records()
        broker, server, client, store = before
        broker = changed(broker, values)
        records = broker, changed(server, values), changed(client, values), changed(store, values)
        present = _texts(before)
        listed = _texts(records)
        keys = frozenset(key for key, text in listed.items() if present[key] != text)
        _check(keys, listed, refused)
        if keys:
            self._configuration.check_start_with(records)
        return records, keys

    def _install(self, records: Records, keys: frozenset[str], source: str) -> None:
        configuration, listed = self._configuration, _texts(records)
        configuration.broker, configuration.server, configuration.client, configuration.store = records
        self.data_version = self.data_version.next_version(self._now_ms())
        log.info("configuration changed", changed={key: listed[key] for key in sorted(keys)}, source=source)
        self._tell(keys)

    def _tell(self, keys: frozenset[str]) -> None:
        for listener in self._listeners:
            try:
                listener(keys)
            except Exception:
                log.exception("new configuration not accepted by a part", changed=",".join(sorted(keys)))

    async def _write(self, values: Mapping[str, str]) -> None:
        path = self._configuration.path
        if path is None:
            log.warning(
                "change not kept: the broker has no configuration file, and it lasts until the broker stops",
                keys=",".join(values),
            )
            return
        await trio.to_thread.run_sync(_merge_into_file, path, values)


def _refusal(error: SettingError, remote: str) -> RequestRefused:
    log.warning("update refused", key=error.key, reason=error.reason, remote=remote)
    return RequestRefused(ResponseCode.SYSTEM_ERROR, f"{error.key}: {error.reason}")


def _check(keys: Collection[str], listed: Mapping[str, str], refused: Collection[str]) -> None:
    """Check what the types and bounds of the records cannot express. Raises SettingError."""
    for key in sorted(frozenset(keys).intersection(refused)):
        raise SettingError("update", key, "is an address, not changed while running; edit the file and restart")
    if "messageDelayLevel" in keys:
        DelayLevels(listed["messageDelayLevel"])  # raises SettingError now, not at the next start
    problem = delete_when_problem(listed["deleteWhen"]) if "deleteWhen" in keys else None
    if problem:
        raise SettingError("update", "deleteWhen", problem)
    if "namesrvAddr" in keys and listed["namesrvAddr"]:
        try:
            check_namesrv_addresses(listed["namesrvAddr"], "update")
        except StartError:
            raise SettingError("update", "namesrvAddr", 'is not "host:port;host:port"') from None


def _texts(records: Iterable[object]) -> dict[str, str]:
    """Return every key of the records with its value as text; an unset value is empty."""
    texts: dict[str, str] = {}
    for record in records:
        texts.update(to_text(record, null=""))
    return texts


def _file_keys(records: Iterable[object]) -> dict[str, str]:
    """Return listed key -> key in a file; they differ for a few."""
    return {declared.shown_as: declared.key for record in records for declared in declarations(type(record))}


def _merge_into_file(path: Path, values: Mapping[str, str]) -> None:
    """Merge the values into the present content of the file."""
    try:
        if path.suffix.lower() in (".yml", ".yaml"):
            write_atomically(path, write_text(path, {**read_file(path), **values}))
        else:
            write_atomically(path, merged_properties(path.read_bytes().decode("latin-1"), values).encode("latin-1"))
    except (OSError, StartError, PropertiesError) as error:
        reason = f"{path} cannot be written: {error}; nothing was changed"
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason) from None


def merged_properties(text: str, values: Mapping[str, str]) -> str:
    """Return properties text with the values set; all other lines, including comments, stay as they are.

    A line that sets one of the keys is replaced. A key that then still lacks its value (it has no line, or its line
    continues in the next one) is appended at the end, where it takes precedence.
    """
    lines = _LINES.findall(text)
    is_continued = False
    for number, line in enumerate(lines):
        stripped = line.rstrip("\r\n")
        continues = (len(stripped) - len(stripped.rstrip("\\"))) % 2 == 1
        if not is_continued and not continues:
            for key in java_properties.parse(stripped).keys() & values.keys():
                lines[number] = java_properties.format({key: values[key]}).rstrip("\n") + line[len(stripped) :]
        is_continued = continues
    merged = "".join(lines)
    present = java_properties.parse(merged)
    missing = {key: value for key, value in values.items() if present.get(key) != value}
    if not missing:
        return merged
    end = "\n" if merged and merged[-1] not in "\r\n" else ""
    return merged + end + ("\n" if is_continued else "") + java_properties.format(missing)
