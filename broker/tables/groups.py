"""GroupTable: the settings of subscription groups (RocketMQ: SubscriptionGroupManager).

It holds one SubscriptionGroupConfig per group: the built-in groups, those created by administrators and those created
by use. Changes go to subscriptionGroup.json in the background. Only the event loop touches it. Subscriptions and
members of groups are not in here but in ConsumerTable.

Limits: `max_groups`, and `max_table_bytes` of the table as it is sent: a slave fetches it in one frame of 16 MiB at
most. A table that a file brings above a limit stays; only new groups are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec
import structlog
from msgspec import Struct

from triomq.broker.errors import TableFull, TableTooLarge
from triomq.broker.tables import entry_costs
from triomq.broker.tables.kept_table import KeptTable, ignored
from triomq.broker.tables.logged import check_leads
from triomq.broker.tables.table_file import TableFile, decoder
from triomq.protocol.bodies.base import replace
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from triomq.protocol.clock import NowMs
from triomq.protocol.system_topics import SYSTEM_GROUP_PREFIX, SYSTEM_GROUPS, check_group_length

log = structlog.get_logger("triomq.broker.groups")

MAX_GROUPS = 100_000
MAX_TABLE_BYTES = 12 * 1024**2


class GroupEvents(Struct, frozen=True, kw_only=True):
    """Who hears of groups; nobody, as long as nothing is given."""

    before_create: Callable[[str], None] = ignored
    """A new group would fit into the table; raises RequestRefused to refuse it."""
    deleted: Callable[[str], None] = ignored
    """A group is not in the table any more."""


class GroupTable(KeptTable):
    """The subscription groups of a broker, by name."""

    kind = "subscription group"
    entries_name = "subscriptionGroupTable"
    entry_bytes = 320
    entry_cost = entry_costs.GROUP

    def __init__(
        self,
        file: TableFile | None = None,
        *,
        now_ms: NowMs,
        auto_create: Callable[[], bool] | bool = True,
        max_groups: int = MAX_GROUPS,
        max_table_bytes: Callable[[], int] = lambda: MAX_TABLE_BYTES,
    ) -> None:
        """`auto_create` says whether use creates a group; a callable is evaluated each time."""
        super().__init__(file, now_ms)
        self._auto_create = auto_create
        self._max_groups = max_groups
        self._max_table_bytes = max_table_bytes
        self._events = GroupEvents()
        self._groups: dict[str, SubscriptionGroupConfig] = {}
        for name in SYSTEM_GROUPS:
            self._put(SubscriptionGroupConfig(group_name=name))

    def tell(self, events: GroupEvents) -> None:
        """Tell these of groups from now on."""
        self._events = events

    def get(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the configuration of a group, without creating it."""
        return self._groups.get(group)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """Return the configuration of a group in use, creating it if that is allowed. Raises TableFull."""
        known = self._groups.get(group)
        if known is not None:
            return known
        if self.log is not None and not self.log.leads:
            return SubscriptionGroupConfig(group_name=group)  # until the master makes it
        allowed = self._auto_create() if callable(self._auto_create) else self._auto_create
        if not allowed and not group.startswith(SYSTEM_GROUP_PREFIX):
            return None
        self._check_room(group)
        config = self._put(SubscriptionGroupConfig(group_name=group))
        self._changed()
        self.new_names.made(group)
        log.info("subscription group created by use", group=group)
        return config

    def names(self) -> Collection[str]:
        """Return the names of all groups."""
        return self._groups.keys()

    def wrapper(self) -> SubscriptionGroupWrapper:
        """Return the whole table as it is sent and persisted."""
        return SubscriptionGroupWrapper(data_version=self.data_version, subscription_group_table=dict(self._groups))

    def update(self, config: SubscriptionGroupConfig) -> None:
        """Create a group or replace its configuration. Raises TableFull."""
        self._check_room(config.group_name)
        is_new = config.group_name not in self._groups
        self._put(config)
        self._changed()
        if is_new:
            self.new_names.made(config.group_name)
        log.info("subscription group updated", group=config.group_name)

    def delete(self, group: str) -> bool:
        """Remove a group. Return True if it existed."""
        if self._groups.pop(group, None) is None:
            return False
        self._count_out(group)
        self._touch(group)
        self._changed()
        self._events.deleted(group)
        log.info("subscription group deleted", group=group)
        return True

    def disable_consuming(self, group: str) -> bool:
        """Stop the group from consuming. Return True if it was allowed to consume before."""
        config = self._groups.get(group)
        if config is None or not config.consume_enable:
            return False
        self._put(replace(config, consume_enable=False))
        self._changed()
        return True

    def replace_all(self, wrapper: SubscriptionGroupWrapper) -> bool:
        """Adopt the master's table if its version differs (slaves). Return True if it was adopted."""
        if wrapper.data_version == self.data_version:
            return False
        for group in self._groups.keys() - wrapper.subscription_group_table.keys():
            del self._groups[group]
            self._count_out(group)
            self._touch(group)
        for config in wrapper.subscription_group_table.values():
            self._put(config)
        self.data_version = wrapper.data_version
        self._writer.changed()
        return True

    def logged_names(self) -> Collection[str]:
        """See LoggedTable."""
        return self._groups.keys()

    def logged_entry(self, name: str) -> bytes | None:
        """See LoggedTable."""
        config = self._groups.get(name)
        return config.encode() if config is not None else None

    def take_logged(self, name: str, entry: bytes | None) -> None:
        """See LoggedTable."""
        if entry is None:
            self.delete(name)
            return
        config = msgspec.json.decode(entry, type=SubscriptionGroupConfig)
        if config != self._groups.get(name):
            self._put(config)
            self._changed()

    def load(self) -> None:
        """Load the file; its groups replace built-in ones of the same name."""
        wrapper = self._file.load(decoder(SubscriptionGroupWrapper))
        if wrapper is None:
            return
        for config in wrapper.subscription_group_table.values():
            self._put(config)
        self.data_version = wrapper.data_version
        log.info("subscription groups loaded", groups=len(self._groups))
        if self.sent_bytes > self._max_table_bytes():
            log.warning(
                "maxGroupTableBytes exceeded by the groups on file; new ones are refused", bytes=self.sent_bytes
            )

    def _put(self, config: SubscriptionGroupConfig) -> SubscriptionGroupConfig:
        if config.group_name not in self._groups:
            self._count_in(config.group_name)
        self._groups[config.group_name] = config
        self._touch(config.group_name)
        return config

    def _entry_text(self, group: str) -> str | None:
        config = self._groups.get(group)
        return config.encode_pretty().decode() if config is not None else None

    def _check_room(self, group: str) -> None:
        check_leads(self.log)
        if group in self._groups:
            return
        check_group_length(group)
        if len(self._groups) >= self._max_groups:
            raise TableFull("subscription groups", self._max_groups, f"group {group}")
        limit_bytes = self._max_table_bytes()
        if self.sent_bytes + self._bytes_of(group) > limit_bytes:
            raise TableTooLarge("subscription groups", "maxGroupTableBytes", limit_bytes, f"group {group}")
        self._check_memory(group, f"group {group}")
        self._events.before_create(group)
