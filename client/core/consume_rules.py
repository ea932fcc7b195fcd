"""The limits of pulling and consuming, with RocketMQ's defaults."""

from __future__ import annotations

from dataclasses import dataclass

from triomq.client.core.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True, slots=True)
class ConsumeRules:
    """The limits of pulling and consuming. Raises ConfigurationError for values that cannot be used."""

    pull_batch_size: int = 32
    """Messages requested in one pull; brokers return at most 32 unless maxTransferCountOnMessageInMemory allows more.
    """
    pull_interval_seconds: float = 0.0
    """Pause between two pulls of a queue."""
    pull_suspend_seconds: float = 15.0
    """How long a broker may hold a pull until a message comes."""
    pull_timeout_seconds: float = 30.0
    max_cached_messages: int = 1000
    """Messages of one queue that may be cached."""
    max_cached_bytes: int = 100 * 1024 * 1024
    """Bytes of message bodies of one queue that may be cached."""
    max_cached_bytes_total: int = 512 * 1024 * 1024
    """Bytes of message bodies of all queues of this consumer that may be cached."""
    max_span: int = 2000
    """Distance between the oldest and the newest unconsumed queue offset (concurrent consuming)."""
    concurrency: int = 20
    """Number of concurrent listener calls."""
    batch_max_size: int = 1
    """Messages passed to a batch listener in one call."""
    max_reconsume_times: int = -1
    """Deliveries after the first before a message goes to the dead letter topic. -1: 16, or without limit when ordered.
    """
    consume_timeout_seconds: float = 15 * 60.0
    """A message whose consuming takes longer is sent back, so that it does not block the queue's offset."""
    suspend_seconds: float = 1.0
    """Pause of an ordered consumer before it retries a failed message."""
    close_seconds: float = 10.0
    """How long closing waits for listener calls in progress. Threads that still run then are left behind."""
    rebalance_interval_seconds: float = 20.0
    lock_interval_seconds: float = 20.0
    send_expression: bool = False
    """Send the filter expression with every pull instead of relying on the heartbeats."""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("pull_batch_size", 1, 1024),
            ("max_cached_messages", 1, 65535),
            ("max_cached_bytes", 1, 1 << 40),
            ("max_cached_bytes_total", 1, 1 << 40),
            ("max_span", 1, 65535),
            ("concurrency", 1, 1000),
            ("batch_max_size", 1, 1024),
            ("max_reconsume_times", -1, 1 << 31),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigurationError(f"{name} must be between {low} and {high}, not {value}")
        if not self.pull_timeout_seconds > self.pull_suspend_seconds:
            raise ConfigurationError("pull_timeout_seconds must be more than pull_suspend_seconds")
