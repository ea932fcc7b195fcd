"""The page of the cluster: what other brokers and the NameServers say, and how this broker is registered."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Final

import trio

from triomq.broker.assembly.serving import Serving
from triomq.broker.configuration_update import is_closed
from triomq.broker.views.all_brokers import AllBrokers
from triomq.broker.views.operator import Operator
from triomq.broker.views.signing import SigningClient
from triomq.dashboard.others import Others
from triomq.dashboard.views import Ask, Data, Steps, View
from triomq.dledger import status
from triomq.monitoring.host_names import is_loopback

MOST_MEMBERS: Final = 100
"""Of all groups that elect their master."""


class Neighbours:
    """For administrators: the daemons of a cluster are none of a reader's business."""

    def __init__(self, serving: Serving, operator: Operator, all_brokers: AllBrokers) -> None:
        self._all_brokers = all_brokers
        self._operator = operator
        self._configuration = serving.tables.configuration
        self._registration = serving.registration
        self._client = SigningClient(serving, operator)
        settings = serving.tables.configuration.server
        here = serving.host.ip if is_loopback(settings.dashboard_address) else None
        self._others = Others(
            lambda: nullcontext(self._client),
            lambda: self._registration.nameservers,
            None,
            here,
            serving.tables.now_ms,
        )

    def view(self) -> View:
        """Return the page."""
        return View("/cluster", "Cluster", "cluster.html", self.cluster, gather=self.gather, admins_only=True)

    def last_alarms(self, ask: Ask) -> Data:
        """Return what the overview shows of the cluster: the last round, which it does not repeat."""
        return {"is_shown": ask.sees_all, "seen": self._others.last_alarms() if ask.sees_all else None}

    async def gather(self, ask: Ask) -> None:
        """Ask the other daemons."""
        self._client.viewer = ask.viewer.name if ask.viewer is not None else ""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._others.look)
            nursery.start_soon(self._all_brokers.gather, ask)

    def renew(self) -> None:
        """Ask again at the next look."""
        self._others.renew()

    async def dledger(self, account: str) -> dict[str, dict[str, str]]:
        """Return what each broker says of its group now, in the name of an account, by address."""
        self._client.viewer = account
        self._others.renew()
        await self._others.look()
        return self._others.seen.dledger

    def cluster(self, ask: Ask) -> Steps:
        """Make the page."""
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
        refusing = self._operator.place if is_closed(self._configuration.broker) else None
        dledger, left_out = _members(self._others.seen.dledger, refusing)
        more = {"name_servers": name_servers, "dledger": dledger, "dledger_left_out": left_out}
        more["totals"] = self._all_brokers.totals(ask)
        return {**self._others.data(), **more}


def _members(infos: dict[str, dict[str, str]], refusing: str | None) -> tuple[list[Data], int]:
    """Return the members of all groups, and how many are left out. `infos`: address of a broker -> what its runtime
    information says of a group. `refusing` is the address of a broker that hands nothing over when it leads."""
    rows = [
        {"group": group, **one.values(), "may_lead": one.role == "follower" and one.leader != refuses}
        for group, found in sorted(status.groups_of(infos).items())
        for refuses in [found.get(refusing or "", {}).get(status.SELF)]
        for one in status.statuses(status.peers_of(found.values()), found, {})
    ]
    return rows[:MOST_MEMBERS], max(0, len(rows) - MOST_MEMBERS)
