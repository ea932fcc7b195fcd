"""Whom requests count for: accounts that access control checked, addresses, groups; and how many are remembered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import structlog
import structlog.testing
from broker_fakes import FakeConnection, MemoryFile
from broker_whole import send_fields
from test_broker_access_matrix import ACCOUNTS, Guarded, guarded_broker, topic_fields

from triomq.broker.config import BrokerSettings
from triomq.broker.configuration import Configuration
from triomq.broker.errors import QuotaExceeded
from triomq.broker.quotas.overrides import Overrides
from triomq.broker.quotas.quotas import Quotas
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.settings import SettingError
from triomq.protocol.signature import ACCESS_KEY

BUSY = ResponseCode.SYSTEM_BUSY
BIG = b"x" * 1000


def quotas_with(overrides: str = "", clock: Callable[[], float] = lambda: 0.0, **settings: Any) -> Quotas:
    table = Overrides(MemoryFile())
    table.change(overrides)
    max_peers = settings.pop("max_peers", 100)
    return Quotas(
        Configuration(broker=BrokerSettings(**settings)),
        table,
        account_of=lambda connection, request: (request.ext_fields or {}).get(ACCESS_KEY, ""),
        knows_group=lambda group: False,
        clock=clock,
        max_peers=max_peers,
    )


def passes(quotas: Quotas, ip: str = "10.0.0.1", group: str = "P", account: str = "", body: bytes = BIG) -> bool:
    fields = {name: str(value) for name, value in send_fields("T", producerGroup=group).items()}
    if account:
        fields[ACCESS_KEY] = account
    request = new_request(RequestCode.SEND_MESSAGE, ext_fields=fields, body=body)
    try:
        quotas.check(cast(Any, FakeConnection(f"[{ip}]:1" if ":" in ip else f"{ip}:1")), request)
    except QuotaExceeded:
        return False
    return True


def test_each_address_has_its_own_share_and_a_network_of_ipv6_has_one() -> None:
    quotas = quotas_with(quota_per_address="bytesIn=1")
    ips = ("10.0.0.1", "10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2", "fd00:0:0:1::1")
    assert [passes(quotas, ip) for ip in ips] == [True, False, True, True, False, True]


def test_each_account_has_its_own_share_and_those_without_one_share_another() -> None:
    quotas = quotas_with(quota_per_account="bytesIn=1")
    accounts = ("alice", "alice", "bob", "", "")
    assert [passes(quotas, account=account) for account in accounts] == [True, False, True, True, False]


def test_clients_without_an_account_are_limited_by_the_override_for_them_alone() -> None:
    quotas = quotas_with("account - bytesIn=1")
    assert [passes(quotas, account=account) for account in ("", "", "alice", "alice")] == [True, False, True, True]


def test_an_override_adds_to_the_default_of_its_kind() -> None:
    quotas = quotas_with("group P messagesIn=0", quota_per_group="messagesIn=1,bytesIn=1500")
    assert [passes(quotas, group="P") for _ in range(3)] == [True, True, False], "the default of bytesIn holds"
    assert [passes(quotas, group="Q") for _ in range(2)] == [True, False]


def test_an_address_that_is_exempt_is_not_limited() -> None:
    quotas = quotas_with("address 10.0.0.0/24 bytesIn=0", quota_per_address="bytesIn=1")
    assert [passes(quotas, "10.0.0.7") for _ in range(3)] == [True] * 3
    assert [passes(quotas, "10.0.1.7") for _ in range(2)] == [True, False]


def test_a_share_comes_back_with_time() -> None:
    now = [0.0]
    quotas = quotas_with(quota_per_account="bytesIn=100", clock=lambda: now[0])
    assert [passes(quotas), passes(quotas)] == [True, False]
    now[0] = 9.0
    assert not passes(quotas)
    now[0] = 9.02
    assert passes(quotas)


@pytest.mark.parametrize("burst_ms", [1000, 2500])
def test_a_rest_is_good_for_as_much_as_the_burst_says(burst_ms: int) -> None:
    now = [0.0]
    quotas = quotas_with(quota_per_account="messagesIn=200", quota_burst_ms=burst_ms, clock=lambda: now[0])
    for _ in range(2):
        assert sum(passes(quotas) for _ in range(burst_ms)) == burst_ms // 5
        now[0] += 3600


def test_a_connection_counts_once_for_each_account_and_gives_back_all_of_its_places() -> None:
    """Others that come and go meanwhile count for themselves."""
    quotas = quotas_with(quota_per_account="connections=2")
    connections = [cast(Any, FakeConnection(f"10.0.0.1:{number}")) for number in range(4)]

    def may(number: int, account: str) -> bool:
        request = new_request(RequestCode.HEART_BEAT, ext_fields={ACCESS_KEY: account})
        try:
            quotas.check(connections[number], request)
        except QuotaExceeded:
            return False
        return True

    assert [may(0, account) for account in ("alice", "bob", "alice", "alice", "bob")] == [True] * 5
    assert [may(1, "alice"), may(2, "alice"), may(2, "bob"), may(3, "bob")] == [True, False, True, False]
    quotas.connection_closed(connections[0])
    assert [may(2, "alice"), may(3, "alice"), may(3, "bob"), may(1, "bob")] == [True, False, True, False]
    quotas.connection_closed(connections[0])
    assert not may(3, "alice"), "it had its places once"
    for connection in connections:
        quotas.connection_closed(connection)
    assert (len(quotas._connections), quotas._connections._numbers) == (0, {})


@pytest.mark.parametrize("prefix", ["%RETRY%", "%DLQ%"])
def test_the_topics_of_a_group_that_exists_count_for_nobody(prefix: str) -> None:
    quotas = quotas_with(quota_per_account="topicsPerHour=1")
    quotas._knows_group = lambda group: group == "G"
    assert passes(quotas, account="alice")
    for _ in range(3):
        quotas.topic_made(f"{prefix}G")
    quotas.topic_made(f"{prefix}unknown")
    with pytest.raises(QuotaExceeded, match="new topics an hour"):
        quotas.topic_made(f"{prefix}unknown")


def test_the_longest_wait_is_named() -> None:
    quotas = quotas_with(quota_per_group="bytesIn=1", quota_per_address="bytesIn=10")
    assert passes(quotas)
    with pytest.raises(QuotaExceeded, match="group P may have 1 bytes a second in; try again in 1000000 ms"):
        fields = {name: str(value) for name, value in send_fields("T").items()}
        quotas.check(cast(Any, FakeConnection()), new_request(RequestCode.SEND_MESSAGE, ext_fields=fields))


def test_as_many_names_are_remembered_as_there_is_room_for_and_the_idle_ones_go_first() -> None:
    quotas = quotas_with(quota_per_group="bytesIn=1", max_peers=10)
    assert passes(quotas, group="busy")
    for number in range(100):
        passes(quotas, group=f"{number:1000}")  # longer than a name may be: all but the first characters are cut
        passes(quotas, group=f"g{number}")
        assert not passes(quotas, group="busy")
        assert len(quotas._peers["group"]) <= 10
    assert passes(quotas, group="g0"), "forgotten, so it begins with a full bucket"


def test_a_name_without_a_limit_takes_no_room() -> None:
    quotas = quotas_with("group G bytesIn=1")
    assert all(passes(quotas, group=f"g{number}") for number in range(50))
    assert len(quotas._peers["group"]) == 0


def test_changed_quotas_apply_to_those_who_are_known_already() -> None:
    quotas = quotas_with(quota_per_group="bytesIn=1")
    assert [passes(quotas), passes(quotas)] == [True, False]
    quotas.overrides.change("group P bytesIn=100000")
    quotas.settings_changed()
    assert [passes(quotas), passes(quotas)] == [True, True]


def test_a_connection_that_closed_before_its_request_is_handled_takes_no_place() -> None:
    quotas = quotas_with(quota_per_address="connections=1")
    connection = FakeConnection()
    connection.is_open = False
    quotas.check(cast(Any, connection), new_request(RequestCode.HEART_BEAT))
    quotas.check(cast(Any, FakeConnection()), new_request(RequestCode.HEART_BEAT))


async def send(guarded: Guarded, who: str) -> RemotingCommand:
    return await guarded.ask("main", who, RequestCode.SEND_MESSAGE, send_fields("Orders"), BIG)


async def test_only_an_account_whose_signature_is_right_is_charged(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path, quotaPerAccount="bytesIn=1") as broker:
        guarded = Guarded(broker)
        await guarded.admin(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("Orders"))
        for _ in range(3):
            assert "Check signature failed" in ((await send(guarded, "wrong signature")).remark or "")
        assert (await send(guarded, "with permission")).code == 0
        refused = await send(guarded, "with permission")
        assert refused.code == BUSY
        assert "account permitted may have 1 bytes a second in" in (refused.remark or "")
        assert (await send(guarded, "administrator")).code == 0, "another account"


async def test_a_white_address_proves_no_account(tmp_path: Path) -> None:
    accounts = "globalWhiteRemoteAddresses: ['127.0.0.1']\n" + ACCOUNTS
    async with guarded_broker(tmp_path, accounts, quotaPerAccount="bytesIn=1") as broker:
        guarded = Guarded(broker)
        await guarded.admin(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("Orders"))
        assert (await send(guarded, "wrong signature")).code == 0
        refused = await send(guarded, "with permission")
        assert "clients without an account may have 1 bytes" in (refused.remark or "")


def test_refusals_are_logged_in_one_line_that_has_their_number_and_the_last(
    log_output: list[dict[str, Any]],
) -> None:
    quotas = quotas_with(quota_per_group="bytesIn=1")
    assert passes(quotas)
    quotas.refusals.log_refusals()
    assert log_output == []
    for _ in range(1000):
        assert not passes(quotas)
    quotas.refusals.log_refusals()
    quotas.refusals.log_refusals()
    [line] = log_output
    assert line["requests"] == 1000
    assert line["last"].endswith("group P may have 1 bytes a second in; try again in 1000000 ms (from 10.0.0.1:1)")


@pytest.fixture
def log_output() -> Iterator[list[dict[str, Any]]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


@pytest.mark.parametrize("key", ["quotaPerAccount", "quotaPerAddress", "quotaPerGroup"])
def test_a_default_that_cannot_be_read_ends_the_start_with_its_key(key: str) -> None:
    with pytest.raises(SettingError, match=f"{key}: 'bytes' is not a quota of this kind"):
        Configuration.from_values({key: "bytes=1"})
