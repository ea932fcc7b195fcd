"""SettingsFile: the configuration file of a running daemon, read again on request (SIGHUP).

Settings that may change at run time take the file's values, except those that the command line set. A file with a bad
value changes nothing. Other settings that were edited since the file was last read (hence the copy of its texts), and
settings that were removed from it, keep their value until a restart and are reported. Only one task uses it at a time,
the one that handles SIGHUP.
"""

from collections.abc import Callable, Mapping, Sequence

import structlog
import trio

from triomq.daemon.configuration import ConfigurationLayers, read_file
from triomq.daemon.errors import StartError
from triomq.protocol.settings import SettingError, declarations

log = structlog.get_logger("triomq.daemon.configuration")

Take = Callable[[Mapping[str, str]], frozenset[str]]
"""Applies texts by key and returns the keys whose values changed. Raises SettingError, with nothing changed."""


class SettingsFile:
    """The file that `layers` were loaded from, if any. `classes`: the daemon's settings records."""

    def __init__(self, layers: ConfigurationLayers, classes: Sequence[type]) -> None:
        self._path = layers.file
        self._values: Mapping[str, str] = dict(layers.file_values)
        every = [declaration for cls in classes for declaration in declarations(cls)]
        self._changeable = {one.key for one in every if one.changeable and layers.source(one.key) != "command line"}
        self._retired = {one.key for one in every if one.retired}

    async def reload(self, take: Take, present: Callable[[], Mapping[str, str]]) -> None:
        """Read the file again and pass it to `take`; `present` lists the current values. Log errors in the file."""
        if self._path is None:
            log.info("configuration not reloaded; there is no file")
            return
        file = str(self._path)
        try:
            values = await trio.to_thread.run_sync(read_file, self._path)
            keys = take({key: text for key, text in values.items() if key in self._changeable})
        except (StartError, SettingError) as error:
            log.error("configuration not reloaded, nothing was changed", file=file, reason=str(error))
            return
        in_force = present()
        edited = {key for key, text in values.items() if text not in (self._values.get(key), in_force.get(key))}
        pending = (edited - self._changeable) | (self._values.keys() - values.keys())
        pending -= self._retired
        if pending:
            log.warning(
                "keys not applied; they change at the next start only", file=file, keys=",".join(sorted(pending))
            )
        self._values = values
        log.info("configuration reloaded", file=file, changed=",".join(sorted(keys)))
