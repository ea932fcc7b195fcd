"""The action that lets another member of a group lead, from the table of members on the page of the cluster.

It is `mqadmin dledger transfer`. A member is exchanged by files on machines, so for that the page shows the command.
"""

from __future__ import annotations

from typing import Final

from triomq.broker.assembly.serving import Serving
from triomq.broker.configuration_update import NOT_ALLOWED, is_closed
from triomq.broker.views.brokers import OtherBroker
from triomq.broker.views.neighbours import Neighbours
from triomq.broker.views.operator import Operator, Requests, succeeded
from triomq.dashboard.actions import Act, Action, ActionRefused, Fact, Outcome, Preview, Result, Row
from triomq.dashboard.views import View
from triomq.dledger import handover, status
from triomq.protocol.codes import RequestCode

TRANSFER: Final = "/act/dledger/transfer"
SECONDS: Final = 20.0
"""The longest wait for a leader to hand over; it tries for less."""


class DledgerActions:
    """The preview of a handover, and the request."""

    def __init__(self, serving: Serving, operator: Operator, neighbours: Neighbours) -> None:
        self._configuration = serving.tables.configuration
        self._client = serving.client
        self._operator = operator
        self._neighbours = neighbours

    def views(self) -> list[View]:
        """Return nothing: the table is on the page of the cluster."""
        return []

    def actions(self) -> list[Action]:
        """Return what may be done."""
        return [
            Action(
                TRANSFER,
                "Hand the leadership over",
                ("group", "member"),
                self.preview,
                self.transfer,
                of="/cluster",
                warning="Sends fail for a moment, until clients know the next master.",
            )
        ]

    async def _plan(self, act: Act) -> handover.Handover:
        """Return what would happen, by what the brokers say now. Raises ActionRefused."""
        group, member = act.fields["group"], act.fields["member"]
        groups = status.groups_of(await self._neighbours.dledger(act.actor.account))
        if group not in groups:
            raise ActionRefused(f"no registered broker is a member of the group {group!r}")
        try:
            found = handover.plan(groups[group], member)
        except handover.NoHandover as error:
            raise ActionRefused(str(error)) from None
        if found.leader == member:
            raise ActionRefused(f"{member} leads already")
        if found.address == self._operator.place and is_closed(self._configuration.broker):
            raise ActionRefused(NOT_ALLOWED)
        return found

    async def preview(self, act: Act) -> Preview:
        """Show who leads, who will, and what the target lacks."""
        found = await self._plan(act)
        facts = [
            Fact("Leads now", f"{found.leader} ({found.address})"),
            Fact("Term", found.term),
            Fact("Entries that it lacks", "?" if found.lag is None else found.lag),
            Fact("Lacks beside entries", found.lacks or None),
        ]
        row = Row("Leader", found.leader, found.member)
        return Preview(act.fields["group"], [row], facts, typed=act.fields["group"])

    async def transfer(self, act: Act) -> Result:
        """Send UPDATE_BROKER_CONFIG to the leader, which responds when the other one leads."""
        found = await self._plan(act)
        place: Requests = self._operator
        if found.address != self._operator.place:
            place = OtherBroker(self._operator, self._client, found.leader, found.address, SECONDS)
        try:
            response = await place.request(act.actor, RequestCode.UPDATE_BROKER_CONFIG, body=found.body)
        except ActionRefused as error:
            text = "The leader did not answer: look who leads now"
            return Result([Outcome(text, found.leader, ok=False, detail=str(error))], path="/cluster")
        finally:
            self._neighbours.renew()
        succeeded(response)
        row = Row("Leader", found.leader, found.member)
        return Result([Outcome("It leads now", found.member)], [row], path="/cluster")
