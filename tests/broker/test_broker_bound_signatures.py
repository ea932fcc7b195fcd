"""Accounts with `boundSignature: true`: a captured request is of no use for anything else, nor a second time."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from broker_fakes import FakeConnection
from fake_clock import FakeClock
from test_broker_access_matrix import guarded_broker

from triomq.admin.session import Session
from triomq.broker.acl import bound_signatures
from triomq.broker.acl.access_control import AccessControl
from triomq.broker.acl.access_table import AccessTable
from triomq.broker.acl.bound_signatures import MAX_SKEW_MS
from triomq.broker.acl.failed_signatures import FailedSignatures
from triomq.broker.errors import AccessDenied
from triomq.client.core.config import Credentials
from triomq.client.core.signing import SigningHook
from triomq.protocol import signature
from triomq.protocol.command import RemotingCommand, new_request

ACCOUNTS = """
accounts:
- accessKey: operator
  secretKey: secretOfOperator
  admin: true
  boundSignature: true
- accessKey: auditor
  secretKey: secretOfAuditor
  admin: true
  boundSignature: true
- accessKey: ordinary
  secretKey: secretOfOrdinary
  admin: true
"""
NOW_MS = FakeClock().now_ms


class Guarded:
    def __init__(self, home: Path) -> None:
        (home / "conf").mkdir()
        (home / "conf/plain_acl.yml").write_text(ACCOUNTS)
        self.clock = FakeClock()
        self.table = AccessTable(home, now_ms=self.clock)
        self.table.load()
        self.failures = FailedSignatures(lambda: 60, lambda: 0.0)
        self.control = AccessControl(self.table, failures=self.failures, now_ms=self.clock)

    def refusal(self, request: RemotingCommand) -> str | None:
        try:
            self.control(cast(Any, FakeConnection()), request)
        except AccessDenied as denied:
            return denied.reason.partition(", org.apache")[0]
        return None


@pytest.fixture
def guarded(tmp_path: Path) -> Guarded:
    return Guarded(tmp_path)


def bound(
    code: int, fields: dict[str, str] | None = None, *, at_ms: int = NOW_MS, nonce: bytes = b"1", key: str = "operator"
) -> RemotingCommand:
    secret = f"secretOf{key.title()}"
    signed_at = signature.stamp(at_ms, nonce)
    return new_request(code, ext_fields=signature.sign_bound(code, fields or {}, b"", key, secret, signed_at=signed_at))


def test_a_request_is_taken_once(guarded: Guarded) -> None:
    request = bound(202, {"topic": "Orders"})
    assert guarded.refusal(request) is None
    assert guarded.refusal(request) == "Check signature failed for accessKey=operator: the request was seen before"
    assert guarded.refusal(bound(202, {"topic": "Orders"}, nonce=b"2")) is None


def test_accounts_may_sign_at_the_same_time_with_the_same_nonce(guarded: Guarded) -> None:
    assert guarded.refusal(bound(202, {"topic": "Orders"})) is None
    assert guarded.refusal(bound(202, {"topic": "Orders"}, key="auditor")) is None
    assert "seen before" in (guarded.refusal(bound(202, {"topic": "Orders"}, key="auditor")) or "")


def test_a_captured_request_is_no_other_request(guarded: Guarded) -> None:
    captured = bound(202, {"topic": "Orders"})
    other = new_request(215, ext_fields=captured.ext_fields)
    assert guarded.refusal(other) == "Check signature failed for accessKey=operator"
    assert guarded.refusal(captured) is None, "the forgery did not use it up"
    ordinary = bound(202, {"topic": "Orders"}, key="ordinary")
    assert guarded.refusal(new_request(215, ext_fields=ordinary.ext_fields)) is None, "RocketMQ's does not bind"


def test_without_a_bound_signature_the_account_is_refused(guarded: Guarded) -> None:
    fields = signature.sign_fields({}, b"", "operator", "secretOfOperator")
    told = guarded.refusal(new_request(26, ext_fields=fields))
    assert told == f"Check signature failed for accessKey=operator: {bound_signatures.UNBOUND}"
    assert len(guarded.failures) == 0, "an old client is no guesser"
    assert guarded.refusal(bound(26, key="ordinary")) is None


def test_a_wrong_bound_signature_counts_as_a_guess(guarded: Guarded) -> None:
    fields = {**(bound(26).ext_fields or {}), "BoundSignature": "AAAA"}
    assert guarded.refusal(new_request(26, ext_fields=fields)) == "Check signature failed for accessKey=operator"
    assert len(guarded.failures) == 1


@pytest.mark.parametrize(
    ("at_ms", "is_taken"),
    [
        (NOW_MS - MAX_SKEW_MS, True),
        (NOW_MS + MAX_SKEW_MS, True),
        (NOW_MS - MAX_SKEW_MS - 1, False),
        (NOW_MS + MAX_SKEW_MS + 1, False),
    ],
)
def test_a_request_of_another_time_is_refused(guarded: Guarded, at_ms: int, is_taken: bool) -> None:
    told = guarded.refusal(bound(26, at_ms=at_ms))
    assert (told is None) == is_taken
    assert is_taken or "SignedAt is not within 5 minutes of the broker's clock" in (told or "")
    fields = signature.sign_bound(26, {}, b"", "operator", "secretOfOperator", signed_at="now")
    assert "SignedAt is not within" in (guarded.refusal(new_request(26, ext_fields=fields)) or "")


def test_what_was_seen_is_kept_until_it_has_expired(guarded: Guarded) -> None:
    ahead = bound(26, at_ms=NOW_MS + MAX_SKEW_MS)
    assert guarded.refusal(ahead) is None
    guarded.clock.advance(2 * MAX_SKEW_MS)
    assert guarded.refusal(bound(26, at_ms=guarded.clock.now_ms)) is None
    assert "seen before" in (guarded.refusal(ahead) or "")
    guarded.clock.advance(1)
    assert "SignedAt is not within" in (guarded.refusal(ahead) or "")


def test_the_table_of_requests_is_bounded(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound_signatures, "MAX_SEEN", 3)
    for number in range(10):
        assert guarded.refusal(bound(26, nonce=bytes([number]))) is None
    assert len(guarded.control._bound) == 3


def test_the_client_s_hook_binds_if_it_is_told_to(guarded: Guarded) -> None:
    for is_bound in (True, False):
        request = new_request(26)
        account = Credentials("operator", "secretOfOperator", bound=is_bound)
        SigningHook(account, guarded.clock).before_request("127.0.0.1:1", request)
        assert (guarded.refusal(request) is None) == is_bound


def test_an_update_of_the_account_keeps_the_demand(guarded: Guarded, tmp_path: Path) -> None:
    config = guarded.table.config("operator")
    assert config is not None
    guarded.table.update_account(config)
    assert "boundSignature: 'true'" in (tmp_path / "conf/plain_acl.yml").read_text()
    account = guarded.table.account("operator")
    assert account is not None
    assert account.is_bound


async def test_mqadmin_binds_its_requests(tmp_path: Path) -> None:
    import trio

    async with guarded_broker(tmp_path, ACCOUNTS) as broker:

        def ask() -> int:
            with Session("", credentials=("operator", "secretOfOperator")) as session:
                return session.request(broker.address, 26).code

        assert await trio.to_thread.run_sync(ask) == 0
