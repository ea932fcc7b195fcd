"""The page of quotas: who has which limits, how much of them is in use, and what was refused."""

from __future__ import annotations

from typing import Final

from triomq.broker.assembly.serving import Serving
from triomq.broker.configuration_update import is_closed
from triomq.broker.settings.allowance import QUOTAS, to_text
from triomq.broker.settings.quotas import default_allowances
from triomq.dashboard.listing import listed
from triomq.dashboard.views import Ask, Data, Steps, View

SEPARATOR: Final = " "
"""Between kind and name, as in the text of an override."""


class QuotaPage:
    """See the module's docstring."""

    def __init__(self, serving: Serving) -> None:
        self._configuration = serving.tables.configuration
        self._quotas = serving.quotas

    def view(self) -> View:
        """Return the page."""
        return View("/quotas", "Quotas", "quotas.html", self.quotas, admins_only=True)

    def quotas(self, ask: Ask) -> Steps:
        """Make the page."""
        broker = self._configuration.broker
        names = [SEPARATOR.join(each) for each in self._quotas.names()]
        yield
        page = yield from listed(
            names,
            ask.query,
            self._row,
            {"name": lambda row: row["kind"] + row["name"], "used": lambda row: row["used"]},
            default="name",
        )
        return {
            "list": page,
            "defaults": [
                {"kind": kind, "limits": to_text(allowance, kind)}
                for kind, allowance in default_allowances(broker).items()
            ],
            "is_closed": is_closed(broker),
            "burst_ms": broker.quota_burst_ms,
            "refusals": self._refusals(),
        }

    def _row(self, text: str) -> Data:
        kind, _, name = text.partition(SEPARATOR)
        usage = self._quotas.usage(kind, name)
        own = self._quotas.overrides.find(kind, name)
        return {
            "kind": kind,
            "name": name,
            "own": to_text(own, kind) if own is not None else "",
            "limits": [
                {"quota": quota, "limit": usage[quota][0], "used": round(usage[quota][1], 4)}
                for quota in QUOTAS[kind]
                if quota in usage
            ],
            "used": round(max([used for _, used in usage.values()], default=0.0), 4),
        }

    def _refusals(self) -> list[Data]:
        refused, delayed = self._quotas.refusals.counts()
        return [
            {
                "kind": kind,
                "quota": quota,
                "refused": refused.get((kind, quota), 0),
                "delayed": delayed.get((kind, quota), 0),
            }
            for kind, quota in sorted(refused.keys() | delayed.keys())
        ]
