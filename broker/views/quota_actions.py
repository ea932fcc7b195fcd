"""Actions on quotas: give an account, an address or a group limits of its own, or take them away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from triomq.broker.assembly.serving import Serving
from triomq.broker.quotas.overrides import KEY, MAX_NAME, named
from triomq.broker.settings.allowance import GROUP, QUOTAS, to_text
from triomq.broker.settings.quotas import default_allowances
from triomq.broker.views.brokers import Brokers, Places
from triomq.broker.views.forms import broker_refusals
from triomq.broker.views.operator import Requests
from triomq.broker.views.settings_actions import listed_settings
from triomq.dashboard.actions import Act, Action, ActionRefused, Fact, Preview, Result, Row
from triomq.dashboard.render import link_text
from triomq.dashboard.views import Ask, NotThere, Steps, View
from triomq.protocol import java_properties
from triomq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from triomq.protocol.change_previews import Step

SET: Final = "/act/quota"
REMOVE: Final = "/act/quota/remove"
ALL: Final = tuple(dict.fromkeys([quota for quotas in QUOTAS.values() for quota in quotas]))
"""Every quota, in the order of the form."""


class QuotaActions:
    """The form, previews and changes of overrides."""

    def __init__(self, serving: Serving, brokers: Brokers) -> None:
        self._configuration = serving.tables.configuration
        self._update = serving.update
        self._overrides = serving.quotas.overrides
        self._brokers = brokers

    def views(self) -> list[View]:
        """Return the page with the form."""
        return [View("/edit-quota", "Set a quota", "edit_quota.html", self.form, "/quotas", False, True)]

    def actions(self) -> list[Action]:
        """Return what may be done."""
        return [
            Action(SET, "Set the quota", ("kind", "name", *ALL), self.preview, self.set, of="/quotas"),
            Action(REMOVE, "Remove the quota", ("kind", "name"), self.preview, self.set, of="/quotas"),
        ]

    def form(self, ask: Ask) -> Steps:
        """Make the form: with the limits that a name has of its own, or an empty one."""
        kind, name = ask.query.get("kind", ""), ask.query.get("name", "")
        if name and kind not in QUOTAS:
            raise NotThere(f"kind is {', '.join(QUOTAS)}")
        yield
        own = self._overrides.find(kind, name) if name else None
        defaults = default_allowances(self._configuration.broker)
        return {
            "kind": kind,
            "name": name,
            "own": own or {},
            "has_own": own is not None,
            "kinds": list(QUOTAS),
            "quotas": [quota for quota in ALL if not name or quota in QUOTAS[kind]],
            "left_out": [quota for quota in ALL if name and quota not in QUOTAS[kind]],
            "for_clients": [quota for quota in ALL if quota not in QUOTAS[GROUP]],
            "default": to_text(defaults[kind], kind) if name else "",
            "most_characters": MAX_NAME,
        }

    def _entry(self, act: Act) -> tuple[str, str, str]:
        """Return kind, name and limits of a form; no limits remove an override. Raises ActionRefused if this broker
        would refuse them."""
        kind, name = act.fields["kind"], act.fields["name"].strip()
        if ";" in name or len(name.split()) > 1 or not name.isprintable():
            raise ActionRefused("a name has no blank, semicolon or control character")
        limits = {quota: act.fields[quota].strip() for quota in ALL if act.fields.get(quota, "").strip()}
        if ALL[0] in act.fields and not limits:
            raise ActionRefused("give a limit, or remove the quota")
        for quota, limit in limits.items():
            if not (limit.isascii() and limit.isdigit()):
                raise ActionRefused(f"{quota} is not a number")
        text = ",".join([f"{quota}={limit}" for quota, limit in limits.items()])
        with broker_refusals():
            self._update.check({KEY: f"{kind} {name} {text}"}, remote=act.actor.address)
        try:
            kind, name = named([kind, *name.split()])
        except ValueError as error:
            raise ActionRefused(str(error)) from None
        if not limits and self._overrides.find(kind, name) is None:
            raise ActionRefused(f"{kind} {name} has no quota of its own")
        return kind, name, text

    async def _places(self) -> Places:
        return await self._brokers.of_cluster(with_slaves=True)

    async def preview(self, act: Act) -> Preview:
        """Show the limits before and after at each broker."""
        kind, name, text = self._entry(act)
        places = await self._places()
        found = await places.each(lambda broker: _look(broker, act, kind, name, text), "The quota was not changed")
        default = to_text(default_allowances(self._configuration.broker)[kind], kind)
        facts = [Fact("Without a quota of its own", default or None), *places.facts()]
        return Preview(f"{kind} {name}", places.rows(found, _rows), facts)

    async def set(self, act: Act) -> Result:
        """Send UPDATE_BROKER_CONFIG with the entry."""
        kind, name, text = self._entry(act)
        body = java_properties.format({KEY: f"{kind} {name} {text}"}).encode()

        async def change(broker: Requests) -> Step:
            step = await _look(broker, act, kind, name, text)
            if not step["is_copied"]:
                await broker.change(act.actor, RequestCode.UPDATE_BROKER_CONFIG, body=body)
            return step

        places = await self._places()
        found = await places.each(change, "The quota was not changed")
        done = "The quota was set" if text else "The quota was removed"
        outcomes = places.done(
            found, lambda step: "It follows the master of its group" if step["is_copied"] else done, f"{kind} {name}"
        )
        return Result(outcomes, places.rows(found, _rows), link_text("/quotas", q=name))


async def _look(broker: Requests, act: Act, kind: str, name: str, text: str) -> Step:
    """Return what a change would do at a broker. `is_copied`: a member of a DLedger group has the overrides of its
    master, and refuses others. Raises ActionRefused if it has no quotas."""
    table = await listed_settings(broker, act)
    if "quotaPerAccount" not in table:
        raise ActionRefused("this broker has no quotas: it is not TrioMQ, or an older one")
    before = None
    for entry in table.get(KEY, "").split(";"):
        words = entry.split(None, 2)
        if words[:2] == [kind, name]:
            before = words[2]
    is_copied = table.get("enableDLegerCommitLog") == "true" and table.get("brokerId", "0") != "0"
    return {"name": name, "before": before, "after": text or None, "is_copied": is_copied}


def _rows(step: Step, place: str) -> list[Row]:
    return [] if step["is_copied"] else [Row("Own limits", step["before"], step["after"], place)]
