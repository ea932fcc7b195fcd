"""The present settings of the store, in the one place that a change at run time updates.

Parts hold this object instead of a StoreSettings of their own, so they see a change immediately. Only
`DefaultMessageStore.change_settings` writes it.
"""

from __future__ import annotations

from triomq.store.config import BrokerRole, FlushDiskType, StoreSettings

MIN_MESSAGE_BYTES = 10
"""A smaller maxMessageSize would refuse every message, so at run time it does not change the limit (as in RocketMQ)."""


class LiveSettings:
    """`max_message_bytes` is separate from `now` because every append reads it."""

    def __init__(self, settings: StoreSettings) -> None:
        self.now = settings
        self.max_message_bytes = settings.max_message_size_bytes

    def change(self, settings: StoreSettings) -> None:
        self.now = settings
        if settings.max_message_size_bytes >= MIN_MESSAGE_BYTES:
            self.max_message_bytes = settings.max_message_size_bytes

    @property
    def is_slave(self) -> bool:
        return self.now.broker_role is BrokerRole.SLAVE

    @property
    def has_buffer(self) -> bool:
        """transientStorePoolEnable, which RocketMQ respects only for a master with ASYNC_FLUSH."""
        is_async = self.now.flush_disk_type is FlushDiskType.ASYNC_FLUSH
        return self.now.transient_store_pool_enable and is_async and not self.is_slave
