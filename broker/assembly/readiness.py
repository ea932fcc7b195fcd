"""The checks of /health/ready for a broker. Each reads what the broker keeps anyway. The runtime information has those
that fail, for `mqadmin doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from triomq.broker.assembly.serving import Serving
from triomq.broker.nameservers.link import CONTESTED
from triomq.monitoring.health import Check, FindOut
from triomq.protocol.runtime_findings import NOT_READY
from triomq.store.config import BrokerRole

if TYPE_CHECKING:
    from triomq.broker.group.roles import GroupRoles

_NOT_OF_THE_STORE = ("disk", "role")
"""Causes of refusals that have a check of their own, or are no fault."""


class Readiness:
    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    def all(self) -> list[FindOut]:
        """Return every check of a broker."""
        return [self.store, self.disk, self.registration, self.replication, self.sends, self.ports]

    def checks(self) -> list[Check]:
        """Return what every check finds now."""
        return [check() for check in self.all()]

    def failing(self) -> dict[str, str]:
        """Return what the checks that fail say, by the key of the runtime information."""
        return {f"{NOT_READY}{check.name}": check.detail for check in self.checks() if not check.is_ok}

    def ports(self) -> Check:
        """The ports for operators are open."""
        closed = self._serving.closed_ports
        return Check("ports", not closed, "; ".join(closed) or "open")

    def store(self) -> Check:
        """The store is open and accepts messages, apart from what other checks say."""
        found = [text for cause, text in self._serving.store.refusals.texts().items() if cause not in _NOT_OF_THE_STORE]
        return Check("store", not found, "; ".join(found) or "open")

    def disk(self) -> Check:
        """The disk has room (diskSpaceWarningLevelRatio)."""
        text = self._serving.store.refusals.texts().get("disk")
        return Check("disk", text is None, text or "has room")

    def registration(self) -> Check:
        """A NameServer has accepted a registration within the last two periods."""
        registration = self._serving.registration
        contested = registration.contested()
        if contested:
            return Check("registration", False, f"{CONTESTED} (at {', '.join(contested)})")
        links = registration.states(trio.current_time())
        if not links:
            return Check("registration", True, "no NameServer is configured")
        limit = 2 * self._serving.tables.configuration.broker.registration_period_ms / 1000
        fresh = [name for name, is_complete, ago in links if is_complete and ago is not None and ago <= limit]
        if fresh:
            return Check("registration", True, f"registered at {', '.join(fresh)}")
        addresses = ", ".join(address for address, *_ in links)
        return Check("registration", False, f"not registered within {limit:g} s at any of {addresses}")

    def replication(self) -> Check:
        """A synchronous master has a slave that is near; a slave follows its master. A member of a group knows
        who leads, and a leader has taken office."""
        if self._serving.group is not None:
            return self._group(self._serving.group)
        replication = self._serving.replication
        configuration = self._serving.tables.configuration
        if configuration.role.broker_role is BrokerRole.SYNC_MASTER:
            is_near = replication.log_server.is_near(self._serving.store.reading.max_physical_offset)
            limit = configuration.store.ha_slave_fallbehind_max_bytes
            return Check("replication", is_near, "a slave is near" if is_near else f"no slave within {limit} bytes")
        if not configuration.role.is_slave:
            return Check("replication", True, "needs no slave")
        refused = replication.follower.refused
        if refused is not None:
            return Check("replication", False, refused)
        follows = replication.follower.is_following
        return Check("replication", follows, "follows the master" if follows else "not connected to the master")

    def _group(self, group: GroupRoles) -> Check:
        member = group.member
        if member is None or member.leader is None:
            return Check("replication", False, "no member of the group leads, as far as this one knows")
        lacking = group.lacks_tables()
        if lacking is not None:
            return Check("replication", False, f"{member.leader} leads the group, but {lacking}")
        if not member.is_leader:
            return Check("replication", True, f"follows {member.leader}, the leader of the group")
        is_master = self._serving.store.role_refusal is None  # and so takes sends and changes of tables
        return Check("replication", is_master, "leads the group" if is_master else "is about to lead the group")

    def sends(self) -> Check:
        """startAcceptSendRequestTimeStamp has passed."""
        begins_ms = self._serving.tables.configuration.broker.start_accept_send_request_time_stamp
        is_past = self._serving.tables.now_ms() >= begins_ms
        return Check("sends", is_past, "accepted" if is_past else f"accepted from {begins_ms} ms since 1970")
