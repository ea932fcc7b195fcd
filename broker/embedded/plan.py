"""ClusterPlan: the options of an embedded cluster, and the settings that its brokers get."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from triomq.broker import optional

# Small files, so that a test does not reserve a gigabyte of disk; filters, which are off by default in a broker; and no
# refused requests on a slow test machine.
EMBEDDED_SETTINGS: Mapping[str, str] = {
    "brokerIP1": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 50_000),
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
    "enablePropertyFilter": "true",
    "osPageCacheBusyTimeOutMills": "30000",
    "waitTimeMillsInSendQueue": "30000",
    "waitTimeMillsInPullQueue": "30000",
    "waitTimeMillsInHeartbeatQueue": "30000",
    "waitTimeMillsInTransactionQueue": "30000",
}
START_SECONDS = 30.0
STOP_SECONDS = 20.0


class ClusterPlan:
    """The options that both kinds of cluster share. Raises ValueError for incompatible ones, SettingError for a setting
    that brokers do not have or cannot use."""

    def __init__(
        self,
        brokers: int,
        store: Path | str | None,
        name_server_port: int,
        broker_port: int,
        cluster_name: str,
        settings: Mapping[str, str] | None,
    ) -> None:
        if not 1 <= brokers <= 26:
            raise ValueError(f"a local cluster has 1 to 26 brokers, not {brokers}")
        if brokers > 1 and broker_port:
            raise ValueError("broker_port is for a single broker; several take free ports")
        self.brokers = brokers
        self.store = None if store is None else Path(store)
        self.name_server_port = name_server_port
        self.broker_port = broker_port
        self.cluster_name = cluster_name
        self.settings = dict(settings or {})
        if self.settings:
            self._check_settings()

    def _check_settings(self) -> None:
        """Check them here and not at the start, where an error comes out of nurseries, as a group of errors."""
        values = self.values("broker-a", Path(), "127.0.0.1:9876")
        optional.configuration.Configuration.from_values(values, source="settings of the cluster")

    def broker_names(self) -> list[str]:
        return [f"broker-{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"[: self.brokers]]

    def values(self, name: str, directory: Path, name_server: str) -> dict[str, str]:
        """Return the settings of one broker."""
        return {
            **EMBEDDED_SETTINGS,
            "listenPort": str(self.broker_port),
            "brokerName": name,
            "brokerClusterName": self.cluster_name,
            "namesrvAddr": name_server,
            "storePathRootDir": str(directory / name if self.brokers > 1 else directory),
            **self.settings,
        }
