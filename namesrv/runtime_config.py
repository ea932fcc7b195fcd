"""RuntimeConfig: the configuration of a running NameServer, as GET_NAMESRV_CONFIG lists it and UPDATE_NAMESRV_CONFIG
changes it.

It holds the current settings records; an update replaces them. Code that needs a changeable setting reads it here each
time. A NameServer has no access control, so updates are refused unless configUpdateWithoutAcl permits them. An update
is all or nothing: a path among its keys rejects it (moving the file that is written means writing anywhere), and so
does an invalid value or a key that cannot change at run time. Unknown keys are ignored, since mqadmin sends the same
key to all kinds of servers. Changes also go to the configuration file.
"""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

import structlog
import trio

from triomq.daemon.atomic_file import write_atomically
from triomq.daemon.configuration import write_text
from triomq.daemon.secret_names import is_secret
from triomq.namesrv.config import PATH_KEYS, NamesrvSettings
from triomq.protocol import java_properties
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RequestRefused
from triomq.protocol.java_properties import PropertiesError
from triomq.protocol.settings import SettingError, changed, to_text
from triomq.remoting.config import ServerSettings
from triomq.remoting.scheduling.places import Place, Places

log = structlog.get_logger("triomq.namesrv.config")

NOT_ALLOWED = (
    "a NameServer has no access control, so its configuration is not changed over the network: "
    "set configUpdateWithoutAcl=true if everybody who reaches it may change it"
)

BeforeAndAfter = tuple[dict[str, str], dict[str, str]]


class RuntimeConfig:
    """`extra`: keys of the start file that no record declares; they are listed and kept."""

    def __init__(
        self, namesrv: NamesrvSettings, server: ServerSettings, *, extra: Mapping[str, str] | None = None
    ) -> None:
        self.namesrv = namesrv
        self.server = server
        self._extra = dict(extra or {})
        self._places = Places()

    def values(self) -> dict[str, str]:
        """Return key -> text for every key."""
        return {**self._extra, **to_text(self.namesrv), **to_text(self.server)}

    def listing(self) -> bytes:
        """Return properties text with every key except passwords."""
        listed = {key: text for key, text in self.values().items() if not is_secret(key)}
        return java_properties.format(listed).encode("ascii")

    def update(self, body: bytes, *, remote: str) -> Coroutine[Any, Any, BeforeAndAfter]:
        """Take the place of an update among the others, and return what applies it: properties text. That returns the
        values before and after, or raises RequestRefused with nothing changed."""
        if not self.namesrv.config_update_without_acl:
            log.warning("update refused", remote=remote)
            raise RequestRefused(ResponseCode.NO_PERMISSION, NOT_ALLOWED)
        try:
            values = java_properties.parse_request(body)
        except PropertiesError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"string2Properties error, {error}") from None
        if not PATH_KEYS.isdisjoint(values):
            log.warning("update of a path refused", keys=",".join(sorted(PATH_KEYS & values.keys())), remote=remote)
            raise RequestRefused(ResponseCode.NO_PERMISSION, "Can not update config path")
        return self._update(values, remote, self._places.take("update"))

    async def _update(self, values: Mapping[str, str], remote: str, place: Place) -> BeforeAndAfter:
        async with place:
            return await self._apply(values, remote)

    def take(self, values: Mapping[str, str]) -> frozenset[str]:
        """Apply edits of the configuration file; return the changed keys. Raises SettingError with nothing changed."""
        namesrv = changed(self.namesrv, values)
        server = changed(self.server, values)
        before = self.values()
        self.namesrv = namesrv
        self.server = server
        return frozenset(key for key, text in self.values().items() if before.get(key) != text)

    async def _apply(self, values: Mapping[str, str], remote: str) -> BeforeAndAfter:
        try:
            namesrv = changed(self.namesrv, values)
            server = changed(self.server, values)
        except SettingError as error:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{error.key}: {error.reason}") from None
        unknown = values.keys() - self.values().keys()
        if unknown:
            log.warning("update of unknown keys ignored", keys=",".join(sorted(unknown)), remote=remote)
        if namesrv is self.namesrv and server is self.server:
            return {}, {}
        await self._persist({**self._extra, **to_text(namesrv), **to_text(server)})
        # Applied to the present records again, because the file may have been reloaded during the write.
        before = self.values()
        self.namesrv, self.server = changed(self.namesrv, values), changed(self.server, values)
        return before, self.values()

    async def _persist(self, values: Mapping[str, str]) -> None:
        if not self.namesrv.config_store_path:
            return
        path = Path(self.namesrv.config_store_path)
        try:
            await trio.to_thread.run_sync(write_atomically, path, write_text(path, values))
        except OSError as error:
            reason = f"{path} cannot be written: {error.strerror}; nothing was changed"
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason) from None
