"""The pure parts of quotas: token buckets, the text of allowances, the table of overrides."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
from broker_fakes import MemoryFile
from hypothesis import given
from hypothesis import strategies as st

from triomq.broker.quotas.bucket import Bucket
from triomq.broker.quotas.overrides import MAX_NAME, MAX_OVERRIDES, Overrides
from triomq.broker.settings import allowance
from triomq.broker.settings.allowance import ACCOUNT, GROUP, MAX_LIMIT, MAX_TEXT
from triomq.broker.tables.stored_file import StoredFile
from triomq.protocol.address import HostPort
from triomq.protocol.settings import SettingError
from triomq.store.disk.files import Files

# Steps of a schedule: milliseconds to wait, then the amount that a request takes.
STEPS = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 40)), max_size=60)


def admitted(bucket: Bucket, steps: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return time in ms and amount of the requests that pass."""
    passed = []
    now_ms = 0
    for wait_ms, amount in steps:
        now_ms += wait_ms
        if not bucket.wait_seconds(now_ms / 1000):
            bucket.take(amount, now_ms / 1000)
            passed.append((now_ms, amount))
    return passed


@given(STEPS, st.integers(1, 50), st.integers(1, 100))
def test_no_window_admits_more_than_the_rate_and_the_burst_and_its_last_request(
    steps: list[tuple[int, int]], rate: int, burst: int
) -> None:
    passed = admitted(Bucket(rate, burst, 0.0), steps)
    for first in range(len(passed)):
        total = 0
        for now_ms, amount in passed[first:]:
            limit = rate * (now_ms - passed[first][0]) / 1000 + burst
            assert total <= limit - 1 + 1e-3, "all but the last request, which needs one token that is left"
            total += amount


@given(st.lists(st.tuples(st.integers(0, 3000), st.floats(0, 1)), max_size=60), st.integers(1, 50), st.integers(1, 100))
def test_who_stays_below_rate_and_burst_is_never_refused(steps: list[tuple[int, float]], rate: int, burst: int) -> None:
    bucket = Bucket(rate, burst, 0.0)
    level, now_ms = Fraction(burst), 0  # of a client that counts by itself, exactly
    for wait_ms, share in steps:
        now_ms += wait_ms
        level = min(Fraction(burst), level + Fraction(rate * wait_ms, 1000))
        amount = int(share * level)
        if amount >= 1:
            assert bucket.wait_seconds(now_ms / 1000) == 0.0
            bucket.take(amount, now_ms / 1000)
            level -= amount


@given(st.integers(1, 1000), st.integers(1, 1000), st.integers(0, 100_000), st.floats(0, 1e6))
def test_after_the_time_that_a_bucket_names_a_request_passes_and_shortly_before_none(
    rate: int, burst: int, amount: int, now: float
) -> None:
    bucket = Bucket(rate, burst, now)
    bucket.take(amount, now)
    wait = bucket.wait_seconds(now)
    assert bucket.wait_seconds(now + wait + 1e-6) == 0.0
    if wait > 0.1:
        assert bucket.wait_seconds(now + wait - 0.05) > 0


def test_one_request_larger_than_the_burst_passes_and_then_its_debt_is_waited_for() -> None:
    bucket = Bucket(10, 10, 0.0)
    assert bucket.wait_seconds(0.0) == 0.0
    bucket.take(110, 0.0)
    assert bucket.wait_seconds(0.0) == pytest.approx(10.1)
    assert bucket.wait_seconds(10.2) == 0.0


def test_a_bucket_does_not_drain_when_its_clock_stands_still_or_goes_back() -> None:
    bucket = Bucket(10, 1, 5.0)
    bucket.take(1, 5.0)
    assert bucket.wait_seconds(4.0) == pytest.approx(0.1)


@given(st.dictionaries(st.sampled_from(allowance.QUOTAS[ACCOUNT]), st.integers(0, MAX_LIMIT)))
def test_an_allowance_is_read_as_it_is_written(limits: dict[str, int]) -> None:
    assert allowance.parse(allowance.to_text(limits, ACCOUNT), ACCOUNT) == limits


def test_blanks_and_commas_separate_the_quotas_of_an_allowance() -> None:
    assert allowance.parse(" bytesIn=5 , messagesIn=6\tconnections=0,", ACCOUNT) == {
        "bytesIn": 5,
        "messagesIn": 6,
        "connections": 0,
    }


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("bytes=1", ACCOUNT, "'bytes' is not a quota of this kind; there are bytesIn, messagesIn"),
        ("connections=1", GROUP, "'connections' is not a quota of this kind"),
        ("bytesIn", ACCOUNT, "bytesIn must be a number from 0"),
        ("bytesIn=-1", ACCOUNT, "not '-1'"),
        ("bytesIn=1M", ACCOUNT, "not '1M'"),
        (f"bytesIn={MAX_LIMIT + 1}", ACCOUNT, "bytesIn must be a number from 0"),
        ("bytesIn=" + "0" * 17, ACCOUNT, "bytesIn must be a number from 0"),
        ("bytesIn=1,bytesIn=2", ACCOUNT, "bytesIn is given twice"),
        (" " * (MAX_TEXT + 1), ACCOUNT, f"{MAX_TEXT} are allowed"),
    ],
)
def test_an_allowance_that_cannot_be_read_is_refused_with_the_reason(text: str, kind: str, reason: str) -> None:
    with pytest.raises(ValueError, match="^.*" + reason.replace("(", r"\(")):
        allowance.parse(text, kind)


def test_an_entry_replaces_the_override_of_its_name_and_an_empty_one_removes_it() -> None:
    overrides = Overrides(MemoryFile())
    overrides.change("account alice bytesIn=1,messagesIn=2; group G bytesOut=3;")
    overrides.change("account alice messagesIn=4")
    assert overrides.text() == "account alice messagesIn=4; group G bytesOut=3"
    overrides.change("account alice")
    assert overrides.text() == "group G bytesOut=3"
    assert overrides.find("account", "alice") is None
    assert overrides.kinds() == {"group"}


def test_the_text_of_all_overrides_changes_nothing_when_it_is_applied_again() -> None:
    overrides = Overrides(MemoryFile())
    overrides.change("account - bytesIn=1; address 10.0.0.0/8 connections=0; address fd00::/64 connections=2")
    text = overrides.text()
    overrides.change(text)
    assert overrides.text() == text


def test_overrides_are_there_after_a_restart(tmp_path: Path) -> None:
    file = StoredFile(Files(), str(tmp_path / "config" / "quotas.json"))
    overrides = Overrides(file)
    overrides.change("account alice bytesIn=1; address 10.0.0.0/8 connections=5")
    overrides.change("group G messagesOut=3")
    again = Overrides(file)
    again.load()
    assert again.text() == overrides.text()
    found = again.of_address(HostPort("10.1.2.3", 1))
    assert found is not None
    assert found[1] == {"connections": 5}


def test_a_damaged_file_of_overrides_gives_way_to_its_backup(tmp_path: Path) -> None:
    path = tmp_path / "config" / "quotas.json"
    file = StoredFile(Files(), str(path))
    overrides = Overrides(file)
    overrides.change("account alice bytesIn=1")
    overrides.change("account alice bytesIn=2")
    path.write_text(json.dumps({"overrides": [{"kind": "account", "name": "alice"}]}))
    again = Overrides(file)
    again.load()
    assert again.text() == "account alice bytesIn=1"


def test_the_smallest_network_that_holds_a_host_decides() -> None:
    overrides = Overrides(MemoryFile())
    for number, network in enumerate(("10.0.0.0/8", "10.1.0.0/16", "10.1.1.1"), 1):
        overrides.change(f"address {network} connections={number}")

    def limit(ip: str) -> int | None:
        found = overrides.of_address(HostPort(ip, 1))
        return found[1]["connections"] if found is not None else None

    assert [limit(ip) for ip in ("10.1.1.1", "10.1.1.2", "10.2.1.1", "11.0.0.1", "fd00::1")] == [3, 2, 1, None, None]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("user alice bytesIn=1", "must begin with account, address or group"),
        ("account", "names no account"),
        ("account alice bytes=1", "'bytes' is not a quota"),
        ("address 10.0.0.1/8 connections=1", "has host bits set"),
        ("address nowhere connections=1", "nowhere"),
        ("address fd00::1 connections=1", "of 64 bits count as one"),
        (f"group {'g' * (MAX_NAME + 1)} bytesIn=1", f"{MAX_NAME} are allowed"),
    ],
)
def test_an_entry_that_cannot_be_read_is_refused_and_nothing_changes(text: str, reason: str) -> None:
    overrides = Overrides(MemoryFile())
    with pytest.raises(SettingError, match=reason):
        overrides.change(f"account alice bytesIn=1; {text}")
    assert len(overrides) == 0


def test_the_number_of_overrides_has_a_bound() -> None:
    overrides = Overrides(MemoryFile())
    overrides.change(";".join(f"group g{number} bytesIn=1" for number in range(MAX_OVERRIDES)))
    with pytest.raises(SettingError, match=f"the limit is {MAX_OVERRIDES}"):
        overrides.change("group another bytesIn=1")
    overrides.change("group g1; group another bytesIn=1")
    assert len(overrides) == MAX_OVERRIDES
