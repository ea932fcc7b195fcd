"""Sessions of one call: a time limit for all of its requests, and no peers but the NameServers and the brokers that
these know. What an assistant read in a message must not make it connect to other addresses.
"""

from __future__ import annotations

import math
import time

from triomq.admin.changes import READING, PlanningSession
from triomq.admin.errors import AdminError, NotFound, UsageError
from triomq.admin.session import Session
from triomq.protocol.json_frame import LANGUAGE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.protocol.json_frame import Response


class OutOfTime(AdminError):
    """The call has reached its time limit."""


class CallSession(Session):
    """`deadline`: in seconds of time.monotonic, from `limit` on; without a limit there is none."""

    def __init__(self, name_servers: str, **options: Any) -> None:
        super().__init__(name_servers, **options)
        self.seconds = math.inf
        self.deadline = math.inf

    def limit(self, seconds: float) -> None:
        """Begin a call that may take this long."""
        self.seconds = seconds
        self.deadline = time.monotonic() + seconds

    def remaining(self) -> float:
        """Return seconds. Raises OutOfTime when there are none."""
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise OutOfTime(f"not finished within {self.seconds:g} s, the limit of one call: ask for less")
        return seconds

    def response_instead(self, address: str, code: int, fields: dict[str, Any], body: bytes) -> Response | None:
        self.remaining()
        if address not in self.name_servers and address not in self._registered():
            raise NotFound(f"{address} is not the address of a broker that the NameServers know")
        return super().response_instead(address, code, fields, body)

    def _registered(self) -> set[str]:
        table = self.cluster_info().get("brokerAddrTable", {})
        return {address for data in table.values() for address in data.get("brokerAddrs", {}).values()}

    def request(
        self,
        address: str,
        code: int,
        fields: dict[str, Any] | None = None,
        body: bytes = b"",
        *,
        timeout_seconds: float | None = None,
        language: str = LANGUAGE,
    ) -> Response:
        seconds = min(timeout_seconds or self._timeout_seconds, self.remaining())
        return super().request(address, code, fields, body, timeout_seconds=seconds, language=language)


class ReadingCall(CallSession):
    """Refuses what would change something."""

    def response_instead(self, address: str, code: int, fields: dict[str, Any], body: bytes) -> Response | None:
        if code not in READING:
            raise UsageError("this would change something, and the tool only reads")
        return super().response_instead(address, code, fields, body)


class PlanningCall(CallSession, PlanningSession):
    """Plans within the limits of a call."""
