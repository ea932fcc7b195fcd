"""Wrong signatures are counted for each address and account, within bounds, and nobody else is harmed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from broker_fakes import FakeConnection
from fake_clock import FakeSeconds
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from test_broker_access_matrix import ACCOUNTS, guarded_broker

from triomq.broker.acl import failed_signatures
from triomq.broker.acl.access_control import AccessControl
from triomq.broker.acl.access_table import AccessTable
from triomq.broker.acl.failed_signatures import FailedSignatures
from triomq.broker.acl.refusal_log import LINES_PER_SECOND, RefusalLog
from triomq.broker.errors import AccessDenied, TooManyFailures
from triomq.protocol import signature
from triomq.protocol.command import RemotingCommand, new_request
from triomq.remoting.client import open_client


def connection(address: str = "192.0.2.7:4000") -> Any:
    return cast(Any, FakeConnection(address))


@pytest.fixture
def clock() -> FakeSeconds:
    return FakeSeconds()


@pytest.fixture
def failures(clock: FakeSeconds) -> FailedSignatures:
    return FailedSignatures(lambda: 6, clock)


def is_refused(failures: FailedSignatures, from_: Any, key: str = "account") -> bool:
    try:
        failures.check(from_, key)
    except TooManyFailures as refused:
        assert refused.code == 2
        return True
    return False


def test_an_address_that_fails_too_often_waits(failures: FailedSignatures, clock: FakeSeconds) -> None:
    guesser = connection()
    with capture_logs() as logs:
        for _ in range(6):
            assert not is_refused(failures, guesser)
            failures.failed(guesser, "account")
    assert [entry["event"] for entry in logs] == ["too many failed signatures"]
    with pytest.raises(TooManyFailures, match=r"accessKey=account from 192\.0\.2\.7: .* wait 10 s"):
        failures.check(guesser, "account")
    assert is_refused(failures, connection("192.0.2.7:4001")), "another connection is the same address"
    clock.now += 9.9
    assert is_refused(failures, guesser)
    clock.now += 0.2
    assert not is_refused(failures, guesser), "one more try every ten seconds"
    failures.failed(guesser, "account")
    assert is_refused(failures, guesser)


def test_other_addresses_and_accounts_are_not_refused(failures: FailedSignatures) -> None:
    for _ in range(6):
        failures.failed(connection(), "account")
    assert not is_refused(failures, connection("192.0.2.8:4000"))
    assert not is_refused(failures, connection(), "another")


def test_a_connection_that_has_signed_goes_on(failures: FailedSignatures) -> None:
    neighbour = connection("192.0.2.7:4001")
    failures.passed(neighbour, "account")
    for _ in range(6):
        failures.failed(connection(), "account")
    assert not is_refused(failures, neighbour)
    failures.passed(neighbour, "another")
    assert is_refused(failures, neighbour), "it has signed for another account since"
    failures.passed(neighbour, "account")
    failures.failed(neighbour, "account")
    assert is_refused(failures, neighbour), "what it signs now is wrong"


def test_the_addresses_of_one_ipv6_network_are_one(failures: FailedSignatures) -> None:
    for number in range(6):
        failures.failed(connection(f"[2001:db8::{number}]:4000"), "account")
    assert is_refused(failures, connection("[2001:db8::ffff]:4000"))
    assert not is_refused(failures, connection("[2001:db8:0:1::1]:4000"))


def test_the_table_is_bounded(failures: FailedSignatures, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_signatures, "MAX_PAIRS", 3)
    for _ in range(6):
        failures.failed(connection("10.0.0.0:1"), "account")
    for number in range(1, 3):
        failures.failed(connection(f"10.0.0.{number}:1"), "account")
    assert is_refused(failures, connection("10.0.0.0:1"))
    failures.failed(connection("10.0.0.3:1"), "account")
    assert len(failures) == 3
    assert not is_refused(failures, connection("10.0.0.0:1")), "the oldest is forgotten"


def test_zero_is_no_limit(clock: FakeSeconds) -> None:
    failures = FailedSignatures(lambda: 0, clock)
    for _ in range(1000):
        failures.failed(connection(), "account")
    assert not is_refused(failures, connection())
    assert len(failures) == 0


@given(st.lists(st.floats(0, 100), max_size=100), st.integers(1, 20))
def test_tries_stay_below_the_limit(pauses: list[float], limit: int) -> None:
    clock = FakeSeconds()
    failures = FailedSignatures(lambda: limit, clock)
    guesser, tries = connection(), 0
    for pause in pauses:
        clock.now += pause
        if not is_refused(failures, guesser):
            failures.failed(guesser, "account")
            tries += 1
    assert tries <= limit + sum(pauses) * limit / 60 + 1e-6


def test_refusals_do_not_fill_the_log(clock: FakeSeconds) -> None:
    refusals = RefusalLog(clock)
    with capture_logs() as logs:
        for _ in range(1000):
            refusals.refused("192.0.2.7:4000", 310, "No accessKey is configured")
    assert len(logs) == LINES_PER_SECOND
    assert logs[0] == {
        "event": "access refused",
        "log_level": "info",
        "remote": "192.0.2.7:4000",
        "code": 310,
        "reason": "No accessKey is configured",
    }
    with capture_logs() as logs:
        for _ in range(2):
            clock.now += 1
            refusals.refused("192.0.2.7:4000", 310, "No accessKey is configured")
    events = [(entry["event"], entry.get("not_logged")) for entry in logs]
    assert events == [
        ("access refused to many requests", 1000 - LINES_PER_SECOND),
        ("access refused", None),
        ("access refused", None),
    ]


def signed(secret: str) -> RemotingCommand:
    fields = {"topic": "Orders", "queueId": "0"}
    return new_request(30, ext_fields=signature.sign_fields(fields, b"", "permitted", secret))


def test_a_right_signature_is_refused_unseen(tmp_path: Path, failures: FailedSignatures, clock: FakeSeconds) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/plain_acl.yml").write_text(ACCOUNTS)
    table = AccessTable(tmp_path, now_ms=lambda: 1)
    table.load()
    control = AccessControl(table, failures=failures)
    neighbour = connection("192.0.2.7:4001")
    control(neighbour, signed("secretOfPermitted"))
    for number in range(6):
        with pytest.raises(AccessDenied, match="Check signature failed"):
            control(connection(), signed(f"guess{number}"))
    with pytest.raises(TooManyFailures):
        control(connection(), signed("secretOfPermitted"))
    control(neighbour, signed("secretOfPermitted"))
    clock.now += 11
    control(connection(), signed("secretOfPermitted"))


async def test_a_broker_refuses_after_some_tries(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path, aclFailuresPerMinute="3") as broker:
        await broker.client.invoke(broker.address, signed("secretOfPermitted"), 10)
        async with open_client() as stranger:
            answers = [await stranger.invoke(broker.address, signed(f"guess{number}"), 10) for number in range(5)]
        assert [answer.code for answer in answers] == [1, 1, 1, 2, 2]
        assert "secretOf" not in (answers[-1].remark or "")
        answer = await broker.client.invoke(broker.address, signed("secretOfPermitted"), 10)
        assert answer.code == 0
