"""The shortest plan that still fails in the same way: faults, steps and streams are left out one at a time for as long
as the run fails without them."""

from __future__ import annotations

from dataclasses import replace

from sim.plan import GUEST, ORDERED, PLAIN, Plan, clients_of
from sim.run import Outcome, simulate

PARTS = ("faults", "steps", "streams")
NEEDS = {"reset": (PLAIN,), "visit": (PLAIN, ORDERED), "leave": (PLAIN, ORDERED), "revoke": (GUEST,)}
"""Kind of step -> streams of which it needs one."""


def shortest(failed: Outcome) -> Outcome:
    """Return the outcome of a plan that fails, and would not without any one of its parts."""
    best = failed
    for part in PARTS:
        at = 0
        while at < len(getattr(best.plan, part)):
            outcome = _try_without(best.plan, part, at)
            if outcome is not None and not _ways(outcome).isdisjoint(_ways(failed)):
                best = outcome
            else:
                at += 1
    return best


def _ways(outcome: Outcome) -> set[str]:
    """Return what went wrong, without the names of where it did."""
    return {failure.partition(":")[0] for failure in outcome.failures}


def _try_without(plan: Plan, part: str, at: int) -> Outcome | None:
    """Return the outcome without one part, None if others need it."""
    parts = getattr(plan, part)
    smaller: Plan = replace(plan, **{part: parts[:at] + parts[at + 1 :]})
    names = set(_nodes_of(smaller))
    if any(not names.issuperset(fault.targets) for fault in smaller.faults):
        return None
    if any(not set(NEEDS[step.kind]).intersection(smaller.streams) for step in smaller.steps if step.kind in NEEDS):
        return None
    return simulate(smaller)


def _nodes_of(plan: Plan) -> list[str]:
    return [*plan.brokers, *plan.name_server_names, *clients_of(plan.streams)]
