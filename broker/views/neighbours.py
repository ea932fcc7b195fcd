"""The page of the cluster: what other brokers and the NameServers say, and how this broker is registered."""

from __future__ import annotations

from contextlib import nullcontext

import trio

from triomq.broker.assembly.serving import Serving
from triomq.dashboard.others import Others
from triomq.dashboard.views import Ask, Data, NotThere, Steps, View
from triomq.monitoring.host_names import is_loopback


class Neighbours:
    """For administrators: the daemons of a cluster are none of a reader's business."""

    def __init__(self, serving: Serving) -> None:
        self._registration = serving.registration
        settings = serving.tables.configuration.server
        here = serving.host.ip if is_loopback(settings.dashboard_address) else None
        self._others = Others(
            lambda: nullcontext(serving.client),
            lambda: self._registration.nameservers,
            None,
            here,
            serving.tables.now_ms,
        )

    def view(self) -> View:
        """Return the page."""
        return View("/cluster", "Cluster", "cluster.html", self.cluster, gather=self.gather)

    def last_alarms(self, ask: Ask) -> Data:
        """Return what the overview shows of the cluster: the last round, which it does not repeat."""
        return {"is_shown": ask.sees_all, "seen": self._others.last_alarms() if ask.sees_all else None}

    async def gather(self, ask: Ask) -> None:
        """Ask the other daemons. Raises NotThere."""
        if not ask.sees_all:
            raise NotThere("only administrators see the cluster")
        await self._others.look()

    def cluster(self, ask: Ask) -> Steps:
        """Make the page."""
        if not ask.sees_all:
            raise NotThere("only administrators see the cluster")
        now = trio.current_time()
        states = {address: (ok, ago) for address, ok, ago in self._registration.states(now)}
        failures = self._registration.failures(now)
        name_servers: list[Data] = []
        for one in self._others.seen.name_servers:
            is_registered, responded = states.get(one.address, (False, None))
            failure, failed = failures.get(one.address, ("", None))
            name_servers.append(
                {
                    "address": one.address,
                    "why": one.why,
                    "build": one.build,
                    "dashboard": one.dashboard,
                    "dashboard_note": one.dashboard_note,
                    "registered": is_registered,
                    "responded_seconds": responded,
                    "failure": failure,
                    "failed_seconds": failed,
                }
            )
        yield
        return {**self._others.data(), "name_servers": name_servers}
