"""What producers and consumers have in common: they are configured first and started then."""

from __future__ import annotations

from typing import Any

from triomq.client.compat.values import ConsumerException, RocketMQException, failing_as
from triomq.client.core.config import Credentials
from triomq.remoting.process_bound import ProcessBound


class Named(ProcessBound):
    """What producers and consumers have in common: they are configured first and started then."""

    _start_failed: type[RocketMQException] = ConsumerException

    def __init__(self, group_id: str) -> None:
        self._group = group_id
        self._options: dict[str, Any] = {}
        self._facade: Any = None

    def set_name_server_address(self, addr: str) -> None:
        self._options["name_server"] = addr

    def set_namesrv_addr(self, addr: str) -> None:
        self._options["name_server"] = addr

    def set_name_server_domain(self, domain: str) -> None:
        """Set where the list of name servers is published: "http://host:8080/rocketmq/nsaddr", or only the host."""
        port = "" if ":" in domain else ":8080"
        self._options["name_server"] = domain if "/" in domain else f"http://{domain}{port}/rocketmq/nsaddr"

    set_namesrv_domain = set_name_server_domain

    def set_session_credentials(self, access_key: str, access_secret: str, channel: str = "") -> None:
        self._options["credentials"] = Credentials(access_key, access_secret)

    def set_instance_name(self, name: str) -> None:
        self._options["instance_name"] = name

    def set_group(self, group_id: str) -> None:
        self._group = group_id

    def _make(self) -> Any:
        raise NotImplementedError

    def start(self) -> None:
        with failing_as(self._start_failed):
            self._facade = self._make().start()

    def shutdown(self) -> None:
        if self._facade is not None:
            self._facade.close()
            self._facade = None

    def _running(self) -> Any:
        if self._facade is None:
            raise RocketMQException("not started: call start() first")
        return self._facade

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
