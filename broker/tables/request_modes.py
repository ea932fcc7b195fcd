"""RequestModes: whether a group pulls or receives (POP) the messages of a topic (RocketMQ: MessageRequestModeManager).

An administrator sets the mode of a topic and a group (SET_MESSAGE_REQUEST_MODE); clients that let the broker assign
their queues learn it with these. What has no mode is pulled. A mode goes with its topic and with its group. The table
is messageRequestMode.json, as RocketMQ 5 writes it. Limit: `max_modes`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final

import msgspec
import structlog

from triomq.broker.errors import TableFull
from triomq.broker.tables import entry_costs
from triomq.broker.tables.fragments import Fragments, member
from triomq.broker.tables.logged import check_leads
from triomq.broker.tables.saved_table import SavedTable
from triomq.broker.tables.table_file import NoFile, TableFile, decoder
from triomq.broker.tables.write_behind import WriteBehind
from triomq.protocol.bodies.assignment import RequestMode
from triomq.protocol.bodies.base import Body
from triomq.protocol.bodies.fastjson import dumps_pretty
from triomq.remoting.table_memory import TableAccount, TableMemory

log = structlog.get_logger("triomq.broker.request_modes")

MAX_MODES: Final = 10_000


class _Content(Body, frozen=True, kw_only=True):
    """The content of the file: topic -> group -> mode."""

    message_request_mode_map: dict[str, dict[str, RequestMode]] = {}


class RequestModes(SavedTable):
    """See the module's docstring."""

    def __init__(
        self, file: TableFile | None = None, *, account: TableAccount | None = None, max_modes: int = MAX_MODES
    ) -> None:
        self._file = file if file is not None else NoFile()
        self._account = account if account is not None else TableMemory().account("request modes")
        self._max_modes = max_modes
        self._modes: dict[str, dict[str, RequestMode]] = {}
        self._count = 0
        self._fragments: Fragments[str] = Fragments(self._topic_text)
        self._writer = WriteBehind(self._file, self._pieces, self._fragments.render)

    def __len__(self) -> int:
        return self._count

    def get(self, topic: str, group: str) -> RequestMode | None:
        """Return what an administrator has set."""
        return self._modes.get(topic, _NONE).get(group)

    def set(self, topic: str, group: str, mode: RequestMode) -> None:
        """Set the mode of a topic and a group. Raises TableFull, MemoryShort, and RequestRefused if only another member
        of the group of brokers may."""
        check_leads(self.log)
        if self.get(topic, group) is None:
            what = f"the request mode of group {group}"
            if self._count >= self._max_modes:
                raise TableFull("request modes", self._max_modes, what)
            self._account.check(entry_costs.REQUEST_MODE, what)
        self._put(topic, group, mode)
        self._changed()

    def topic_gone(self, topic: str) -> None:
        """Forget the modes of a topic that was deleted."""
        groups = list(self._modes.get(topic, _NONE))
        for group in groups:
            self._put(topic, group, None)
        if groups:
            self._changed()

    def group_gone(self, group: str) -> None:
        """Forget the modes of a group that was deleted."""
        topics = [topic for topic, groups in self._modes.items() if group in groups]
        for topic in topics:
            self._put(topic, group, None)
        if topics:
            self._changed()

    def keep_only(self, has_topic: Callable[[str], bool], has_group: Callable[[str], bool]) -> None:
        """Forget the modes of what is not there any more: a crash came between a deletion and its write."""
        for topic in [each for each in self._modes if not has_topic(each)]:
            self.topic_gone(topic)
        for group in {each for groups in self._modes.values() for each in groups if not has_group(each)}:
            self.group_gone(group)

    def load(self) -> None:
        """Read the file."""
        content = self._file.load(decoder(_Content))
        if content is None:
            return
        for topic, groups in content.message_request_mode_map.items():
            for group, mode in groups.items():
                self._put(topic, group, mode)
        log.info("request modes loaded", modes=self._count)

    # -- the log of a group of brokers ---------------------------------------------------------------------------------

    def logged_names(self) -> list[str]:
        """See LoggedTable. A name is the JSON array of topic and group."""
        return [_name_of(topic, group) for topic, groups in self._modes.items() for group in groups]

    def logged_entry(self, name: str) -> bytes | None:
        """See LoggedTable."""
        mode = self.get(*_key_of(name))
        return mode.encode() if mode is not None else None

    def take_logged(self, name: str, entry: bytes | None) -> None:
        """See LoggedTable."""
        topic, group = _key_of(name)
        mode = msgspec.json.decode(entry, type=RequestMode) if entry is not None else None
        if mode != self.get(topic, group):
            self._put(topic, group, mode)
            self._changed()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _put(self, topic: str, group: str, mode: RequestMode | None) -> None:
        groups = self._modes.setdefault(topic, {})
        self._count -= group in groups
        if mode is not None:
            groups[group] = mode
            self._count += 1
        else:
            groups.pop(group, None)
            if not groups:
                del self._modes[topic]
        self._account.set(entry_costs.REQUEST_MODE * self._count)
        self._fragments.touch(topic)
        if self.log is not None:
            self.log.changed(_name_of(topic, group))

    def _changed(self) -> None:
        self._writer.changed()
        if self.log is not None:
            self.log.write()

    def _topic_text(self, topic: str) -> str | None:
        groups = self._modes.get(topic)
        return member(topic, dumps_pretty(groups).decode()) if groups else None

    def _pieces(self) -> list[bytes]:
        return [b'{\n\t"messageRequestModeMap":', *self._fragments.object(), b"\n}"]


_NONE: Final[dict[str, RequestMode]] = {}


def _name_of(topic: str, group: str) -> str:
    return json.dumps([topic, group])


def _key_of(name: str) -> tuple[str, str]:
    """Raises ValueError."""
    topic, group = json.loads(name)
    return str(topic), str(group)
