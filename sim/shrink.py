"""The shortest plan that still fails: faults are left out one at a time for as long as the run fails without them."""

from __future__ import annotations

from dataclasses import replace

from sim.run import Outcome, simulate


def shortest(failed: Outcome) -> Outcome:
    """Return the outcome of a plan that fails, and would not without any one of its faults."""
    best = failed
    at = 0
    while at < len(best.plan.faults):
        faults = best.plan.faults
        outcome = simulate(replace(best.plan, faults=faults[:at] + faults[at + 1 :]))
        if outcome.failures:
            best = outcome
        else:
            at += 1
    return best
