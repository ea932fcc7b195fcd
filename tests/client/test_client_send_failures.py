"""The failed attempts of one send: which pause each is worth, and before which broker."""

from __future__ import annotations

import pytest

from triomq.client.core.errors import BrokerRefused, OperationTimeout
from triomq.client.produce.failures import Failures
from triomq.protocol.codes import ResponseCode

TIMED_OUT = OperationTimeout("no response")
BUSY = BrokerRefused(ResponseCode.SYSTEM_BUSY, "busy")
REFUSED = BrokerRefused(ResponseCode.SYSTEM_ERROR, "no")


def test_a_pause_is_for_the_failures_since_the_last_one_only() -> None:
    failures = Failures()
    failures.add("a", BUSY)
    assert failures.pause_before("a") == 0.15
    failures.add("a", REFUSED)
    assert failures.pause_before("a") == 0, "a refusal that a pause does not change"


def test_pauses_before_a_broker_that_fails_again_grow_to_a_bound() -> None:
    failures = Failures()
    pauses = []
    for _ in range(6):
        failures.add("a", TIMED_OUT)
        pauses.append(failures.pause_before("a"))
    assert pauses == pytest.approx([0.05, 0.1, 0.2, 0.4, 0.5, 0.5])


def test_a_busy_broker_has_its_pause_also_where_another_one_did_not_respond() -> None:
    failures = Failures()
    failures.add("a", BUSY)
    failures.add("b", TIMED_OUT)
    assert failures.pause_before("c") == 0, "it has not failed"
    assert failures.pause_before("a") == 0.15
    assert failures.pause_before("b") == 0, "after the pause all have a new chance"
