"""The dashboard's action that lets another member of a group lead: whole brokers in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from broker_group_lab import WAIT_SECONDS, BrokerGroup, run_group

from sim.dledger.brokers import GROUP
from triomq.broker.assembly.processors import register
from triomq.broker.views.all_brokers import AllBrokers
from triomq.broker.views.dledger_actions import DledgerActions
from triomq.broker.views.neighbours import Neighbours
from triomq.broker.views.operator import Operator
from triomq.broker.views.own_totals import TotalsProcessor
from triomq.dashboard.actions import Act, ActionRefused, Actor, Result
from triomq.dashboard.views import Ask
from triomq.dledger import handover, status
from triomq.remoting.processor_table import ProcessorTable

VISITOR = Actor("", "127.0.0.1")


class Page:
    """The page of the cluster of one broker, and its action."""

    def __init__(self, group: BrokerGroup, name: str) -> None:
        serving = group.serving(name)
        table = ProcessorTable()
        register(serving, table, ProcessorTable(), lambda: TotalsProcessor(serving))
        operator = Operator(table, serving.tables.surroundings.turn, None, serving.host, serving.tables.now_ms)
        self._neighbours = Neighbours(serving, operator, AllBrokers(serving, operator))
        self.actions = DledgerActions(serving, operator, self._neighbours)
        self.host = group.brokers.brokers[name].host

    async def rows(self) -> dict[str, dict[str, object]]:
        """Return the members that the page shows."""
        self._neighbours.renew()
        await self._neighbours.gather(Ask())
        steps = self._neighbours.cluster(Ask())
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return {row["member"]: row for row in end.value["dledger"]}

    async def all_rows(self) -> dict[str, dict[str, object]]:
        """Wait until all members have registered and know who leads."""
        with trio.fail_after(WAIT_SECONDS):
            while True:
                found = await self.rows()
                if len(found) == 3 and all(row["leader"] and row["lag"] == 0 for row in found.values()):
                    return found
                await trio.sleep(0.5)


def wanted(member: str, group: str = GROUP) -> Act:
    return Act({"group": group, "member": member}, VISITOR)


async def transferred(page: Page, member: str) -> Result:
    """Let a member lead. Another one may win the election, which the leader says."""
    with trio.fail_after(WAIT_SECONDS):
        while True:
            try:
                return await page.actions.transfer(wanted(member))
            except ActionRefused as error:
                assert "does not lead" in str(error)
            await page.all_rows()


@pytest.mark.parametrize("at_leader", [True, False])
def test_the_leadership_goes_to_the_member_that_was_chosen(tmp_path: Path, at_leader: bool) -> None:
    async def scenario(group: BrokerGroup) -> None:
        leader = await group.leader()
        first, second = (name for name in group.brokers.brokers if name != leader)
        page = Page(group, leader if at_leader else first)
        with page.host.entered():
            rows = await page.all_rows()
            assert {member: row["role"] for member, row in rows.items()} == {
                leader: "leader",
                first: "follower",
                second: "follower",
            }
            assert [name for name, row in rows.items() if row["may_lead"]] == sorted([first, second])
            preview = await page.actions.preview(wanted(second))
            [row] = preview.rows
            assert (row.before, row.after, preview.typed) == (leader, second, GROUP)
            facts = {fact.name: fact.value for fact in preview.facts}
            assert str(facts["Leads now"]).startswith(f"{leader} (")
            assert (facts["Term"], facts["Entries that it lacks"]) == (rows[leader]["term"], 0)
            for act, reason in (
                (wanted(leader), "leads already"),
                (wanted("n9"), "'n9' is no member"),
                (wanted(second, "other"), "no registered broker is a member of the group 'other'"),
            ):
                with pytest.raises(ActionRefused, match=reason):
                    await page.actions.preview(act)
            result = await transferred(page, second)
            assert [(one.text, one.subject, one.ok) for one in result.outcomes] == [("It leads now", second, True)]
            assert (await page.rows())[second]["role"] == "leader"
        assert await group.leader(leader, first) == second

    run_group(tmp_path, scenario, configUpdateWithoutAcl="true")


@pytest.mark.parametrize("at_leader", [True, False])
def test_a_leader_that_takes_no_changes_refuses(tmp_path: Path, at_leader: bool) -> None:
    async def scenario(group: BrokerGroup) -> None:
        leader = await group.leader()
        first, second = (name for name in group.brokers.brokers if name != leader)
        page = Page(group, leader if at_leader else first)
        with page.host.entered():
            rows = await page.all_rows()
            # What another leader refuses is not known here.
            offered = [name for name, row in rows.items() if row["may_lead"]]
            assert offered == ([] if at_leader else sorted([first, second]))
            with pytest.raises(ActionRefused, match="configUpdateWithoutAcl"):
                await page.actions.transfer(wanted(second))
        assert await group.leader() == leader

    run_group(tmp_path, scenario)


def test_a_member_that_is_away_is_shown_and_does_not_lead(tmp_path: Path) -> None:
    async def scenario(group: BrokerGroup) -> None:
        leader = await group.leader()
        first, second = (name for name in group.brokers.brokers if name != leader)
        page = Page(group, first)
        with page.host.entered():
            await page.all_rows()
        await group.brokers.brokers[second].kill()
        with page.host.entered():
            assert (await page.rows())[second]["reachable"] is False
            facts = {fact.name: fact.value for fact in (await page.actions.preview(wanted(second))).facts}
            assert facts["Entries that it lacks"] == "?"
            with pytest.raises(ActionRefused, match="is not there, or lacks too many entries"):
                await page.actions.transfer(wanted(second))

    run_group(tmp_path, scenario, configUpdateWithoutAcl="true")


def info(member: str, role: str, term: int, **more: str) -> dict[str, str]:
    peers = "n0-h0:1;n1-h1:1;n2-h2:1"
    values = {status.SELF: member, status.PEERS: peers, status.ROLE: role, status.TERM: str(term), status.END: "9"}
    return {**values, **more}


def test_who_leads_in_the_latest_term_is_asked() -> None:
    infos = {
        "b0:2": info("n0", "leader", 4),
        "b1:2": info("n1", "leader", 5),
        "b2:2": info("n2", "follower", 5, dledgerEndIndex="7", dledgerLacks="offsets"),
    }
    planned = handover.plan(infos, "n2")
    assert (planned.leader, planned.address, planned.term) == ("n1", "b1:2", 5)
    assert (planned.lag, planned.lacks, planned.body) == (2, "offsets", b"dLegerLeader=n2\n")
    with pytest.raises(handover.NoHandover, match="'n7' is no member: there are n0, n1, n2"):
        handover.plan(infos, "n7")
    with pytest.raises(handover.NoHandover, match="no member leads at present"):
        handover.plan({"b2:2": infos["b2:2"]}, "n2")


@pytest.mark.parametrize("text", ["9" * 5000, "\u00b2", "--1", "", "1.5"])
def test_what_is_no_number_of_an_entry_is_unknown(text: str) -> None:
    [found] = status.statuses({"n0": "h0:1"}, {"b0:2": info("n0", "follower", 1, dledgerEndIndex=text)}, {})
    assert found.last is None
