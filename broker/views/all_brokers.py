"""The pages of topics and groups of all brokers: the sums, and what each broker has of one topic or group."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from msgspec import Struct, structs

from triomq.broker.assembly.serving import Serving
from triomq.broker.views.operator import Operator
from triomq.broker.views.own_totals import OwnTotals
from triomq.broker.views.signing import SigningClient
from triomq.broker.views.topics import ALL, KINDS, SYSTEM_KINDS
from triomq.dashboard.listing import listed
from triomq.dashboard.totals import Master, Totals
from triomq.dashboard.views import Ask, Data, NotThere, Steps, View
from triomq.monitoring.host_names import is_loopback
from triomq.protocol.system_topics import is_system_group


class AllBrokers:
    """Administrators see everything. Others see what they may read, if this broker has an account of its own to ask
    with: theirs may not ask."""

    def __init__(self, serving: Serving, operator: Operator) -> None:
        configuration = serving.tables.configuration
        self._registration = serving.registration
        self._client = SigningClient(serving, operator)
        own = OwnTotals(serving)
        self._totals = Totals(
            self._client,
            lambda: serving.registration.nameservers,
            lambda: own.documents() if not configuration.role.is_slave else None,
            name=configuration.broker.broker_name,
            cluster=configuration.broker.broker_cluster_name,
            counts=(lambda kind: kind not in SYSTEM_KINDS, lambda group: not is_system_group(group)),
            here=serving.host.ip if is_loopback(configuration.server.dashboard_address) else None,
        )

    def views(self) -> list[View]:
        """Return the pages."""
        gather = self.gather
        return [
            View("/all-topics", "Topics", "all_topics.html", self.topics, of="/topics", gather=gather),
            View("/all-topic", "Topic", "all_topic.html", self.topic, of="/topics", gather=gather),
            View("/all-groups", "Groups", "all_groups.html", self.groups, of="/groups", gather=gather),
            View("/all-group", "Group", "all_group.html", self.group, of="/groups", gather=gather),
        ]

    def beside(self, make: Callable[[Ask], Steps]) -> Callable[[Ask], Steps]:
        """Return what makes a page of this broker that leads to the one of all brokers, where that is open."""

        def both(ask: Ask) -> Steps:
            data = yield from make(ask)
            return {**data, "has_all_brokers": bool(self._registration.nameservers) and self._may_look(ask)}

        return both

    def _may_look(self, ask: Ask) -> bool:
        return ask.sees_all or self._client.has_own_account()

    async def gather(self, ask: Ask) -> None:
        """Ask the other brokers. Raises NotThere."""
        if not self._may_look(ask):
            raise NotThere("only administrators see this page")
        self._client.viewer = ask.viewer.name if ask.viewer is not None else ""
        await self._totals.look()

    # -- lists ---------------------------------------------------------------------------------------------------------

    def topics(self, ask: Ask) -> Steps:
        """Make the list of topics."""
        sums, chosen = self._totals.seen, ask.query.get("kind", "")
        known = [
            name
            for name, parts in sums.topics.items()
            if (
                parts[0][1].kind == chosen if chosen in KINDS else chosen == ALL or parts[0][1].kind not in SYSTEM_KINDS
            )
            and ask.may_read(name)
        ]
        page = yield from listed(
            known,
            ask.query,
            sums.topic,
            {
                "name": lambda row: row.name,
                "messages": lambda row: row.messages,
                "rate": lambda row: row.per_second,
                "bytes": lambda row: row.bytes_per_second,
            },
            default="name",
        )
        kind = chosen if chosen in (*KINDS, ALL) else ""
        return {"list": page, "kinds": list(KINDS), "kind": kind, **self._coverage(ask)}

    def groups(self, ask: Ask) -> Steps:
        """Make the list of groups: those of users, or those of the broker and of tools."""
        sums, are_system = self._totals.seen, ask.query.get("kind") == "system"
        page = yield from listed(
            [name for name in sums.groups if is_system_group(name) is are_system and ask.may_read_group(name)],
            ask.query,
            sums.group,
            {
                "name": lambda row: row.name,
                "members": lambda row: row.members,
                "lag": lambda row: row.lag,
                "in_flight": lambda row: row.in_flight,
                "age": lambda row: row.age_ms,
                "rate": lambda row: row.per_second,
                "dead": lambda row: row.dead_letters,
            },
            default="lag",
        )
        return {"list": page, "kind": "system" if are_system else "", **self._coverage(ask)}

    # -- one topic, one group ------------------------------------------------------------------------------------------

    def topic(self, ask: Ask) -> Steps:
        """Make the page of one topic."""
        name = ask.query.get("name", "")
        found = self._totals.seen.topic(name) if ask.may_read(name) else None
        if found is None:
            raise NotThere(f"no broker has a topic {name!r} that you may see")
        yield
        return {"topic": found, "parts": _parts(self._totals.seen.topics[name]), **self._coverage(ask)}

    def group(self, ask: Ask) -> Steps:
        """Make the page of one group."""
        name = ask.query.get("name", "")
        found = self._totals.seen.group(name) if ask.may_read_group(name) else None
        if found is None:
            raise NotThere(f"no broker has a group {name!r} that you may see")
        yield
        return {"group": found, "parts": _parts(self._totals.seen.groups[name]), **self._coverage(ask)}

    # -- all of it -----------------------------------------------------------------------------------------------------

    def totals(self, ask: Ask) -> Data:
        """Return what the page of the cluster shows: all together, and each broker."""
        seen = self._totals.seen
        said = [one for one in seen.masters if not one.why]
        return {
            "topics": seen.users_topics,
            "groups": seen.users_groups,
            "lag": sum([one.lag for one in said]),
            "dead_letters": sum([one.dead_letters for one in said]),
            "stored_per_second": round(sum([one.stored_per_second for one in said]), 2),
            "read_per_second": round(sum([one.read_per_second for one in said]), 2),
            "parts": said,
            **self._coverage(ask),
        }

    def _coverage(self, ask: Ask) -> Data:
        """Return which brokers the sums are of, and which they lack. Addresses and reasons are for administrators."""
        seen = self._totals.seen

        def named(one: Master) -> Data:
            shown = ask.sees_all
            return {"name": one.name, "address": one.address if shown else "", "why": one.why if shown else ""}

        silent = [one for one in seen.masters if one.why]
        left_out = sum([one.left_out for one in seen.masters])
        return {
            "coverage": {
                "brokers": [one.name for one in seen.masters if not one.why],
                "silent": [named(one) for one in silent if not one.is_unknown_code],
                "cannot_say": [named(one) for one in silent if one.is_unknown_code],
                "brokers_left_out": seen.masters_left_out,
                "rows_left_out": left_out,
                "problem": seen.problem if ask.sees_all or not seen.problem else "no response",
                "is_partial": bool(silent or seen.masters_left_out or left_out or seen.problem),
            }
        }


def _parts(found: Iterable[tuple[Master, Struct]]) -> list[Data]:
    """Return the row of each broker, without ids of clients."""
    rows = []
    for master, row in sorted(found, key=lambda one: one[0].name):
        figures = {name: value for name, value in structs.asdict(row).items() if name not in ("name", "client_ids")}
        rows.append({"broker": master.name, "is_own": master.is_own, "dashboard": master.dashboard, **figures})
    return rows
