"""Access control: address patterns, files, the checks in RocketMQ's order and words, administration, hot reload."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import struct
from pathlib import Path
from typing import Any, cast

import pytest
import structlog.testing
import trio
import trio.testing
import yaml
from broker_fakes import FakeConnection
from fake_clock import FakeClock
from golden_data import golden_frames
from hypothesis import assume, given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from triomq.broker.acl import acl_file
from triomq.broker.acl.access_control import AccessControl
from triomq.broker.acl.access_table import AccessTable
from triomq.broker.acl.addresses import MAX_ADDRESSES_IN_LIST, AddressPattern
from triomq.broker.acl.errors import AclFileError
from triomq.broker.acl.names import PUB, SUB
from triomq.broker.acl.refusal_log import LINES_PER_SECOND, REASON_CHARACTERS
from triomq.broker.acl.resources import needed_resources
from triomq.broker.config import BrokerSettings
from triomq.broker.configuration import Configuration
from triomq.broker.errors import AccessDenied
from triomq.broker.processors.acl import AclProcessor
from triomq.protocol import signature
from triomq.protocol.address import HostPort
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.errors import BodyError, RequestRefused
from triomq.protocol.frame import decode_frame

SHOP, OPERATOR = "shopService", "operator"
SHOP_SECRET, OPERATOR_SECRET = "a-long-secret-1", "a-long-secret-2"
FILE = """
globalWhiteRemoteAddresses:
- 10.1.0.*
- 127.0.0.1
accounts:
- accessKey: shopService
  secretKey: a-long-secret-1
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - orders=PUB|SUB
  - invoices=SUB
  - closed=DENY
  groupPerms:
  - billing=SUB
  - audit=DENY
- accessKey: operator
  secretKey: a-long-secret-2
  whiteRemoteAddress: 10.2.0.*
  admin: true
dataVersion:
- counter: 1
  timestamp: 1700000000000
"""
STRANGER = "192.0.2.7:4000"


# -- addresses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("", [], ["1.2.3.4", "::1"]),
        ("*", ["1.2.3.4", "::1"], []),
        ("*.*.*.*", ["1.2.3.4", "::1"], []),
        ("*:*:*:*:*:*:*:*", ["1.2.3.4", "::1"], []),
        ("1.2.3.4", ["1.2.3.4"], ["1.2.3.5", "11.2.3.4", "::1"]),
        ("1.2.3.4,1.2.3.5", ["1.2.3.4", "1.2.3.5"], ["1.2.3.6"]),
        ("1.2.3.{4,5, 6}", ["1.2.3.4", "1.2.3.6"], ["1.2.3.7", "1.2.4.4"]),
        ("1.2.3.*", ["1.2.3.0", "1.2.3.255"], ["1.2.4.0"]),
        ("1.2.*.*", ["1.2.0.0", "1.2.255.255"], ["1.3.0.0"]),
        ("1.2.3.5-20", ["1.2.3.5", "1.2.3.20"], ["1.2.3.4", "1.2.3.21"]),
        ("1.2.5-20.*", ["1.2.5.0", "1.2.20.255"], ["1.2.4.255", "1.2.21.0"]),
        ("::1", ["::1", "0:0:0:0:0:0:0:1"], ["::2", "1.2.3.4"]),
        ("AAAA:BB::1", ["aaaa:bb::1"], ["aaaa:bb::2"]),
        ("aaaa:bbbb::{1,2}", ["aaaa:bbbb::1", "aaaa:bbbb::2"], ["aaaa:bbbb::3"]),
        ("aaaa::5-200", ["aaaa::5", "aaaa::200"], ["aaaa::4", "aaaa::201", "aaaa::1:5"]),
        ("aaaa:bb::*", ["aaaa:bb::", "aaaa:bb::ffff"], ["aaaa:bb::1:0", "aaaa:bc::1"]),
        ("aaaa::1-200:*", ["aaaa::1:0", "aaaa::200:ffff"], ["aaaa::0:1", "aaaa::201:0"]),
    ],
)
def test_address_patterns(pattern: str, inside: list[str], outside: list[str]) -> None:
    compiled = AddressPattern(pattern)
    assert [ip for ip in inside if not compiled.matches(HostPort(ip, 1))] == []
    assert [ip for ip in outside if compiled.matches(HostPort(ip, 1))] == []


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "1.2.3",
            "1.2.3.4.5",
            "1.2.3.256",
            "1.2.3.-1",
            "*.2.3.4",
            "1.2.3.x",
            "1.2.3.9-5",
            "1.2.3.4,,5.6.7.8",
            "localhost",
        ),
        *(
            "1.2.3.{4,5",
            "1.2.3.{4,}",
            "{1.2.3.4}",
            "1.2.{3,4}.5",
            "a::b::c",
            "1:2:3:4:5:6:7",
            "1:2:3:4:5:6:7::8:9",
            "::g",
        ),
        *("1.2.3. 4", "1.2.3.\u0661", "1.2.3.1_0"),
    ],
)
def test_what_is_no_pattern(pattern: str) -> None:
    with pytest.raises(AclFileError):
        AddressPattern(pattern)


def test_a_list_of_addresses_has_its_longest() -> None:
    longest = ",".join(["1.2.3.4"] * MAX_ADDRESSES_IN_LIST)
    assert AddressPattern(longest).matches(HostPort("1.2.3.4", 1))
    with pytest.raises(AclFileError, match=f"the limit is {MAX_ADDRESSES_IN_LIST}"):
        AddressPattern(longest + ",1.2.3.4")


@given(st.ip_addresses(v=4), st.ip_addresses(v=4), st.integers(0, 255), st.integers(0, 255))
def test_ranges_agree_with_arithmetic(
    base: ipaddress.IPv4Address, asked: ipaddress.IPv4Address, low: int, high: int
) -> None:
    if low > high:
        low, high = high, low
    prefix = ".".join(str(base).split(".")[:2])
    groups = [int(part) for part in str(asked).split(".")]
    expected = str(asked).startswith(prefix + ".") and low <= groups[2] <= high
    assert AddressPattern(f"{prefix}.{low}-{high}.*").matches(HostPort(str(asked), 1)) == expected


@given(st.ip_addresses(v=6))
def test_an_address_is_a_pattern_of_itself(address: ipaddress.IPv6Address) -> None:
    assume(address.ipv4_mapped is None)  # Python 3.13 ends the message with dots
    for text in (str(address), address.exploded.upper()):
        assert AddressPattern(text).matches(HostPort(str(address), 1))


@given(st.text(alphabet="0123456789abcdef.:*-{},", max_size=30))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    with contextlib.suppress(AclFileError):
        AddressPattern(text).matches(HostPort("1.2.3.4", 1))


# -- files -------------------------------------------------------------------------------------------------------------


def home_with(tmp_path: Path, text: str | None = FILE, **further: str) -> Path:
    conf = tmp_path / "conf"
    conf.mkdir(parents=True)
    if text is not None:
        (conf / "plain_acl.yml").write_text(text)
    for name, content in further.items():
        path = conf / name.replace("__", "/").replace("_yml", ".yml").replace("_yaml", ".yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path


def loaded(home: Path) -> AccessTable:
    table = AccessTable(home, now_ms=FakeClock())
    table.load()
    return table


def account_text(access_key: str, secret_key: str = "secretsecret") -> str:
    return f"accounts:\n- accessKey: {access_key}\n  secretKey: {secret_key}\n"


def test_a_file_is_read(tmp_path: Path) -> None:
    table = loaded(home_with(tmp_path))
    shop = table.account(SHOP)
    assert shop is not None
    assert shop.may("orders", PUB)
    assert shop.may("orders", PUB | SUB)
    assert not shop.may("invoices", PUB)
    assert not shop.may("anything", SUB)
    assert shop.may("%RETRY%anything", SUB)
    assert not shop.may("%RETRY%audit", SUB)
    assert SHOP_SECRET not in repr(shop)
    assert table.versions() == {str(tmp_path / "conf/plain_acl.yml"): table.default_version()}
    assert table.default_version().counter == 1


def test_a_missing_file_is_made(tmp_path: Path) -> None:
    table = loaded(tmp_path)
    assert table.account(SHOP) is None
    path = tmp_path / "conf/plain_acl.yml"
    assert path.read_bytes() == b""
    assert path.stat().st_mode & 0o077 == 0
    assert table.default_version().counter == 0


def test_values_are_read_as_they_are_written(tmp_path: Path) -> None:
    text = "accounts:\n- accessKey: 0123456789\n  secretKey: 00000001\n  admin: Yes\n  topicPerms:\n  - T=SUB|PUB\n"
    account = loaded(home_with(tmp_path, text)).account("0123456789")
    assert account is not None
    assert account.secret_key == "00000001"
    assert account.is_admin
    assert account.permissions == {"T": PUB | SUB}


def test_strange_permissions_deny(tmp_path: Path) -> None:
    text = account_text("strangely") + "  topicPerms:\n  - T=ALL\n  defaultGroupPerm: sub\n"
    account = loaded(home_with(tmp_path, text)).account("strangely")
    assert account is not None
    assert account.permissions == {"T": 0}
    assert account.default_group_permission == 0


def test_further_files_come_first_in_order(tmp_path: Path) -> None:
    home = home_with(
        tmp_path,
        account_text("shared-key", "from-default") + "globalWhiteRemoteAddresses: [1.1.1.1]\n",
        acl__b_yml=account_text("shared-key", "from-b-file"),
        acl__sub__a_yaml=account_text("another-key"),
        acl__note="accounts: [broken",
        tools_yml=account_text("tools-file-key"),
    )
    table = loaded(home)
    account = table.account("shared-key")
    assert account is not None
    assert account.secret_key == "from-b-file"
    assert table.account("another-key") is not None
    assert table.account("tools-file-key") is None
    assert [Path(path).name for path in table.versions()] == ["b.yml", "a.yaml", "plain_acl.yml"]


@pytest.mark.parametrize(
    "text",
    [
        "accounts: {a: b}",
        "accounts: [text]",
        "[1, 2]",
        "a: [",
        "\x00",
        "accounts:\n- accessKey: short\n  secretKey: longenough\n",
        "accounts:\n- accessKey: longenough\n",
        "accounts:\n- accessKey: longenough\n  secretKey: [a]\n",
        account_text("longenough") + "  whiteRemoteAddress: 1.2.3\n",
        account_text("longenough") + "  topicPerms:\n  - T\n",
        account_text("longenough") + "  topicPerms: T=PUB\n",
        "globalWhiteRemoteAddresses:\n- 1.2.3.400\n",
        account_text("longenough").replace("accounts", "acounts"),
        "globalWhiteRemoteAdresses:\n- 1.2.3.4\n",
        account_text("longenough") + "  defaultTopicPrem: DENY\n",
        account_text("longenough") + "  topicperms:\n  - T=SUB\n",
        "!!python/object/apply:os.system [ls]",
    ],
)
def test_a_file_that_cannot_be_used_is_named_without_its_secrets(tmp_path: Path, text: str) -> None:
    with pytest.raises(AclFileError, match=r"plain_acl\.yml") as error:
        loaded(home_with(tmp_path, text))
    assert "secretsecret" not in str(error.value)


def test_a_misspelt_key_is_named_with_the_one_that_is_meant(tmp_path: Path) -> None:
    with pytest.raises(AclFileError, match=r"the key 'acounts' is unknown; did you mean 'accounts'\?"):
        loaded(home_with(tmp_path, account_text("longenough").replace("accounts", "acounts")))


DENIED = "is not one of DENY, PUB, SUB, PUB|SUB; it counts as DENY"


@pytest.mark.parametrize(
    ("lines", "remark"),
    [
        ("  defaultTopicPerm: PUBB\n", "defaultTopicPerm: 'PUBB' " + DENIED),
        ("  defaultGroupPerm: sub\n", "defaultGroupPerm: 'sub' " + DENIED),
        ("  topicPerms:\n  - T=ALL\n", "topicPerms: T: 'ALL' " + DENIED),
        ("  groupPerms:\n  - G=PUBSUB\n", "groupPerms: G: 'PUBSUB' " + DENIED),
        ("  admin: ture\n", "admin: 'ture' is neither true nor false; it counts as false"),
        ("  comment: the shop\n", "the key 'comment' is unknown"),
    ],
)
def test_what_counts_as_something_else_than_it_shows_is_said(tmp_path: Path, lines: str, remark: str) -> None:
    with capture_logs() as captured:
        account = loaded(home_with(tmp_path, account_text("longenough") + lines)).account("longenough")
    said = [entry for entry in captured if entry["event"] == "doubtful entry found in an ACL file"]
    assert [entry["remark"] for entry in said] == [f"account 'longenough': {remark}"]
    assert said[0]["log_level"] == "warning"
    assert account is not None
    assert not account.is_admin
    assert not account.may("T", PUB)
    assert not account.may("%RETRY%G", SUB)


def test_a_sound_file_is_read_without_a_remark(tmp_path: Path) -> None:
    with capture_logs() as captured:
        loaded(home_with(tmp_path))
    assert [entry["event"] for entry in captured] == ["ACL files loaded"]


def test_access_control_without_any_account_is_said(tmp_path: Path) -> None:
    with capture_logs() as captured:
        loaded(tmp_path)
    (said,) = [entry for entry in captured if entry["log_level"] == "warning"]
    assert said["event"].startswith("accounts not defined although aclEnable=true")
    assert said["path"] == str(tmp_path / "conf/plain_acl.yml")


@given(st.binary(max_size=300))
def test_any_bytes_are_a_file_or_refused(data: bytes) -> None:
    with contextlib.suppress(AclFileError):
        acl_file.parse(Path("x.yml"), data, 1)


# -- hot reload --------------------------------------------------------------------------------------------------------


async def test_changes_are_in_force_within_half_a_second(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    home = home_with(tmp_path)
    table = loaded(home)
    default = home / "conf/plain_acl.yml"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.run)
        default.write_text(account_text("new-account"))
        await trio.sleep(0.5)
        assert table.account(SHOP) is None
        assert table.account("new-account") is not None

        (home / "conf/acl/team").mkdir(parents=True)
        (home / "conf/acl/team/x.yml").write_text(account_text("team-account"))
        await trio.sleep(0.5)
        assert table.account("team-account") is not None

        (home / "conf/acl/team/x.yml").unlink()
        await trio.sleep(0.5)
        assert table.account("team-account") is None
        assert table.account("new-account") is not None

        with structlog.testing.capture_logs() as logs:
            default.write_text("accounts: [broken")
            await trio.sleep(5)
        assert table.account("new-account") is not None, "a broken file leaves its former content in force"
        assert len([entry for entry in logs if entry["log_level"] == "error"]) == 1
        nursery.cancel_scope.cancel()


async def test_watching_costs_no_reading(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = loaded(home_with(tmp_path))

    def nobody_reads(*_: object) -> None:
        raise AssertionError("an unchanged file was read")

    monkeypatch.setattr(acl_file, "read", nobody_reads)
    with trio.move_on_after(60):
        await table.run()
    assert table.account(SHOP) is not None
    assert not table.refresh()


# -- checks ------------------------------------------------------------------------------------------------------------


def signed(
    code: int,
    fields: dict[str, str] | None = None,
    body: bytes = b"",
    *,
    access_key: str = SHOP,
    secret_key: str = SHOP_SECRET,
    token: str | None = None,
) -> RemotingCommand:
    return new_request(
        code, body=body, ext_fields=signature.sign_fields(fields or {}, body, access_key, secret_key, token)
    )


@pytest.fixture
def control(tmp_path: Path) -> AccessControl:
    return AccessControl(loaded(home_with(tmp_path)))


def refusal(control: AccessControl, request: RemotingCommand, remote: str = STRANGER) -> str | None:
    """Return RocketMQ's sentence, or None if the request may pass."""
    try:
        control(cast(Any, FakeConnection(remote)), request)
    except AccessDenied as denied:
        assert denied.code == 1
        text = (denied.remark or "").removeprefix("org.apache.rocketmq.acl.common.AclException: ")
        sentence, _, place = text.partition(", org.apache.rocketmq.acl.plain.PlainPermissionManager.")
        assert place
        return sentence
    return None


SEND = RequestCode.SEND_MESSAGE_V2


@pytest.mark.parametrize(
    ("request_", "remote", "sentence"),
    [
        (new_request(SEND, ext_fields={"b": "any"}), "10.1.0.9:1", None),
        (new_request(SEND), STRANGER, "No accessKey is configured"),
        (new_request(SEND, ext_fields={"b": "any"}), STRANGER, "No accessKey is configured"),
        (signed(SEND, access_key="nobody1"), STRANGER, "No acl config for nobody1"),
        (signed(SEND, {"b": "any"}, access_key=OPERATOR, secret_key="wrong"), "10.2.0.4:9", None),
        (signed(SEND, secret_key="wrong"), STRANGER, f"Check signature failed for accessKey={SHOP}"),
        (new_request(SEND, ext_fields={"AccessKey": SHOP}), STRANGER, f"Check signature failed for accessKey={SHOP}"),
        (signed(SEND, {"b": "orders"}, b"body"), STRANGER, None),
        (signed(SEND, {"b": "orders"}, token="t"), STRANGER, None),
        (signed(SEND, {"b": "invoices"}), STRANGER, "No default permission for topic:invoices"),
        (signed(SEND, {"b": "closed"}), STRANGER, "No default permission for topic:closed"),
        (signed(SEND, {"b": "unknown"}), STRANGER, "No default permission for topic:unknown"),
        (signed(SEND, {"b": "RMQ_SYS_TRACE_TOPIC"}), STRANGER, None),
        (signed(SEND, {"b": "%RETRY%audit", "a": "audit"}), STRANGER, "No default permission for group:audit"),
        (signed(SEND, {"b": "%RETRY%billing", "a": "billing"}), STRANGER, None),
        (signed(10, {"topic": "orders"}), STRANGER, None),
        (signed(10, {"topic": "%RETRY%audit"}), STRANGER, "No default permission for group:audit"),
        (signed(10, {"topic": "%RETRY%audit", "group": "billing"}), STRANGER, "No default permission for group:audit"),
        (signed(SEND, {"b": "%RETRY%audit", "a": "billing"}), STRANGER, "No default permission for group:audit"),
        (signed(10, {"topic": "%RETRY%audit", "group": "audit"}), STRANGER, "No default permission for group:audit"),
        (signed(11, {"topic": "invoices", "consumerGroup": "g"}), STRANGER, None),
        (signed(11, {"topic": "orders", "consumerGroup": "audit"}), STRANGER, "No default permission for group:audit"),
        (signed(11, {"topic": "no", "consumerGroup": "g"}), STRANGER, "No default permission for topic:no"),
        (signed(12, {"topic": "no"}), STRANGER, "No default permission for topic:no"),
        (signed(15, {"topic": "orders", "consumerGroup": "audit"}), STRANGER, "No default permission for group:audit"),
        (signed(35, {"clientID": "c"}), STRANGER, None),
        (signed(35, {"consumerGroup": "audit"}), STRANGER, "No default permission for group:audit"),
        (signed(36, {"group": "audit"}), STRANGER, "No default permission for group:audit"),
        (signed(38, {"consumerGroup": "audit"}), STRANGER, "No default permission for group:audit"),
        (signed(320, {"b": "closed"}), STRANGER, "No default permission for topic:closed"),
        (signed(320, {"b": "orders"}), STRANGER, None),
        (signed(26), STRANGER, f"Need admin permission for request code=26, but accessKey={SHOP} is not"),
        (signed(4711), STRANGER, f"Need admin permission for request code=4711, but accessKey={SHOP} is not"),
        (
            signed(17, {"topic": "new"}),
            STRANGER,
            f"Need admin permission for request code=17, but accessKey={SHOP} is not",
        ),
        (signed(17, {"topic": "new"}, access_key=OPERATOR, secret_key=OPERATOR_SECRET), STRANGER, None),
        (signed(SEND, {"b": "any"}, access_key=OPERATOR, secret_key=OPERATOR_SECRET), STRANGER, None),
    ],
)
def test_each_request_is_checked_in_rocketmqs_order_and_words(
    control: AccessControl, request_: RemotingCommand, remote: str, sentence: str | None
) -> None:
    assert refusal(control, request_, remote) == sentence


def test_an_admin_with_listed_permissions_is_checked(tmp_path: Path) -> None:
    text = account_text("the-admin") + "  admin: true\n  topicPerms:\n  - T=PUB\n"
    control = AccessControl(loaded(home_with(tmp_path, text)))
    request = signed(SEND, {"b": "other"}, access_key="the-admin", secret_key="secretsecret")
    assert refusal(control, request) == "No default permission for topic:other"


@pytest.mark.parametrize("code", [17, 25, 215, 200, 207])
def test_admin_codes(control: AccessControl, code: int) -> None:
    assert "Need admin permission" in (refusal(control, signed(code)) or "")
    assert refusal(control, signed(code, access_key=OPERATOR, secret_key=OPERATOR_SECRET)) is None


MULTI = "INNER_MULTI_DISPATCH\x01"
MISSING = "Need field {} for request code={}, whose permission is to be checked"


@pytest.mark.parametrize(
    ("code", "fields", "missing"),
    [
        (10, {}, "topic"),
        (10, {"topic": " "}, "topic"),
        (SEND, {"topic": "orders"}, "b"),
        (11, {"consumerGroup": "g"}, "topic"),
        (11, {"topic": "orders"}, "consumerGroup"),
        (12, {}, "topic"),
        (14, {"topic": "orders"}, "consumerGroup"),
        (36, {}, "group"),
        (38, {}, "consumerGroup"),
        (208, {"consumerGroup": "g", "topic": ""}, "topic"),
        (324, {}, "topic"),
    ],
)
def test_a_request_that_names_nothing_is_not_unchecked(
    control: AccessControl, code: int, fields: dict[str, str], missing: str
) -> None:
    assert refusal(control, signed(code, fields)) == MISSING.format(missing, int(code))


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (signed(15, {"topic": "orders", "consumerGroup": "audit"}), "No default permission for group:audit"),
        (signed(30, {"topic": "invoices"}), None),
        (signed(30, {"topic": "sends"}), None),
        (signed(30, {"topic": "closed"}), "No default permission for topic:closed"),
        (signed(324, {"topic": "C_REPLY_TOPIC"}), None),
        (signed(325, {"b": "C_REPLY_TOPIC"}), None),
        (signed(325, {"b": "Other_REPLY_TOPIC"}), "No default permission for topic:Other_REPLY_TOPIC"),
        (signed(325, {"b": "invoices"}), "No default permission for topic:invoices"),
        (signed(SEND, {"b": "C_REPLY_TOPIC"}), "No default permission for topic:C_REPLY_TOPIC"),
        (signed(11, {"topic": "orders", "consumerGroup": "g"}), None),
        (signed(321, {"topic": "orders"}), None),
        (signed(321, {"topic": "orders", "consumerGroup": "audit"}), "No default permission for group:audit"),
        (signed(SEND, {"b": "orders", "i": f"{MULTI}sends,closed"}), "No default permission for topic:closed"),
        (signed(SEND, {"b": "orders", "i": f"{MULTI}sends,orders"}), None),
        (signed(SEND, {"b": "RMQ_SYS_TRACE_TOPIC", "i": f"{MULTI}no"}), "No default permission for topic:no"),
        (signed(41, body=b'{"clientId":"c","mqSet":[]}'), MISSING.format("consumerGroup", 41)),
    ],
)
def test_every_resource_that_a_request_touches_is_checked(
    tmp_path: Path, request_: RemotingCommand, sentence: str | None
) -> None:
    text = FILE.replace("  - closed=DENY", "  - closed=DENY\n  - sends=PUB")
    assert refusal(AccessControl(loaded(home_with(tmp_path, text)), cluster="C"), request_) == sentence


def batch_unit(properties: bytes) -> bytes:
    head = struct.pack(">iiiii", 22 + len(properties) + 1, 0, 0, 0, 1)
    return head + b"x" + struct.pack(">h", len(properties)) + properties


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (batch_unit(b"") + batch_unit(b"INNER_MULTI_DISPATCH\x01closed"), "No default permission for topic:closed"),
        (batch_unit(b"INNER_MULTI_DISPATCH\x01orders"), None),
        (b"INNER_MULTI_DISPATCH is no batch", None),
    ],
)
def test_the_queues_that_a_part_of_a_batch_names_are_checked(
    control: AccessControl, body: bytes, sentence: str | None
) -> None:
    assert refusal(control, signed(320, {"b": "orders", "m": "true"}, body)) == sentence


@pytest.mark.parametrize(
    ("mq_set", "sentence"),
    [
        (b'[{"topic":"orders","brokerName":"b","queueId":0}]', None),
        (b'[{"topic":"no","brokerName":"b","queueId":0}]', "No default permission for topic:no"),
    ],
)
@pytest.mark.parametrize("code", [41, 42])
def test_locks_need_permission_for_their_queues(
    control: AccessControl, code: int, mq_set: bytes, sentence: str | None
) -> None:
    body = b'{"clientId":"c","consumerGroup":"%s","mqSet":' + mq_set + b"}"
    assert refusal(control, signed(code, body=body % b"billing")) == sentence
    assert refusal(control, signed(code, body=body % b"audit")) == "No default permission for group:audit"


INTERNAL = ["SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"]


@pytest.mark.parametrize("topic", [*INTERNAL, "TRANS_CHECK_MAX_TIME_TOPIC"])
def test_default_permissions_do_not_cover_the_messages_of_all_topics(tmp_path: Path, topic: str) -> None:
    """The account may read everything but `secret`, whose delayed and half messages lie in these topics."""
    text = account_text("the-reader") + "  defaultTopicPerm: SUB\n  defaultGroupPerm: SUB\n"
    text += "  topicPerms:\n  - secret=DENY\n"
    (tmp_path / "listed").mkdir()
    control = AccessControl(loaded(home_with(tmp_path, text)))
    listed = AccessControl(loaded(home_with(tmp_path / "listed", text + f"  - {topic}=SUB\n")))
    pull = {"topic": topic, "consumerGroup": "g"}
    request = signed(11, pull, access_key="the-reader", secret_key="secretsecret")
    assert refusal(control, request) == f"No default permission for topic:{topic}"
    assert refusal(listed, request) is None
    other = signed(11, {**pull, "topic": "any"}, access_key="the-reader", secret_key="secretsecret")
    assert refusal(control, other) is None


def test_who_may_send_is_known_of_connections_that_passed(tmp_path: Path) -> None:
    control = AccessControl(loaded(home_with(tmp_path)))
    shop, operator = cast(Any, FakeConnection(STRANGER)), cast(Any, FakeConnection(STRANGER))
    assert not control.may_send(shop, "orders"), "nobody has passed here"
    with pytest.raises(AccessDenied):
        control(shop, signed(SEND, {"b": "orders"}, secret_key="wrong"))
    assert not control.may_send(shop, "orders")
    control(shop, signed(SEND, {"b": "orders"}))
    assert control.may_send(shop, "orders")
    assert not control.may_send(shop, "invoices")
    control(operator, signed(26, access_key=OPERATOR, secret_key=OPERATOR_SECRET))
    assert control.may_send(operator, "invoices")
    assert control.may_send(cast(Any, FakeConnection("10.1.0.9:1")), "invoices"), "a white address"
    like_rocketmq = AccessControl(loaded(tmp_path), like_rocketmq=True)
    assert like_rocketmq.may_send(shop, "invoices")


def test_an_account_s_white_address_replaces_its_signature_and_nothing_else(tmp_path: Path) -> None:
    text = FILE.replace("  whiteRemoteAddress:\n", "  whiteRemoteAddress: 10.3.0.1\n")
    control = AccessControl(loaded(home_with(tmp_path, text)))
    unsigned = {"AccessKey": SHOP}
    assert refusal(control, new_request(SEND, ext_fields={**unsigned, "b": "orders"}), "10.3.0.1:5") is None
    assert refusal(control, new_request(SEND, ext_fields={**unsigned, "b": "closed"}), "10.3.0.1:5") is not None
    assert refusal(control, new_request(50, ext_fields=unsigned), "10.3.0.1:5") is not None


@pytest.mark.parametrize(
    ("request_", "remote"),
    [
        (signed(50), STRANGER),
        (signed(54), STRANGER),
        (signed(320, {"b": "closed"}), STRANGER),
        (signed(10, {"topic": "%RETRY%audit", "group": "billing"}), STRANGER),
        (signed(11, {}), STRANGER),
        (signed(14, {"topic": "no", "consumerGroup": "audit"}), STRANGER),
        (new_request(17, ext_fields={"AccessKey": SHOP}), "10.3.0.1:5"),
    ],
)
def test_the_gaps_of_rocketmq_are_open_for_those_who_need_them(
    tmp_path: Path, request_: RemotingCommand, remote: str
) -> None:
    text = FILE.replace("  whiteRemoteAddress:\n", "  whiteRemoteAddress: 10.3.0.1\n")
    table = loaded(home_with(tmp_path, text))
    assert refusal(AccessControl(table, like_rocketmq=True), request_, remote) is None
    assert refusal(AccessControl(table), request_, remote) is not None


def test_with_the_gaps_what_rocketmq_checks_is_checked(tmp_path: Path) -> None:
    control = AccessControl(loaded(home_with(tmp_path)), like_rocketmq=True)
    assert "Need admin permission" in (refusal(control, signed(17)) or "")
    assert refusal(control, signed(SEND, {"b": "closed"})) == "No default permission for topic:closed"
    assert refusal(control, signed(50, secret_key="wrong")) == f"Check signature failed for accessKey={SHOP}"
    assert refusal(control, signed(SEND, {"b": "RMQ_SYS_TRACE_TOPIC"})) is None


def test_both_contents_of_queries_are_taken(control: AccessControl) -> None:
    """Clients sign _UNIQUE_KEY_QUERY; RocketMQ's broker excludes it."""
    fields = {"topic": "orders", "_UNIQUE_KEY_QUERY": "true", "AccessKey": SHOP}
    for unsigned in ({"Signature"}, {"Signature", "_UNIQUE_KEY_QUERY"}):
        content = signature.content(fields, leave_out=unsigned)
        request = new_request(12, ext_fields={**fields, "Signature": signature.sign(content, SHOP_SECRET)})
        assert refusal(control, request) is None


HEARTBEAT = (
    b'{"clientID":"c","consumerDataSet":[{"groupName":"%s","subscriptionDataSet":[{"topic":"%s","subString":"*"}]}]}'
)


@pytest.mark.parametrize(
    ("group", "topic", "sentence"),
    [
        (b"billing", b"orders", None),
        (b"audit", b"orders", "No default permission for group:audit"),
        (b"billing", b"no", "No default permission for topic:no"),
        (b"billing", b"%RETRY%billing", None),
    ],
)
def test_a_heartbeat_needs_permission_for_all_it_subscribes_to(
    control: AccessControl, group: bytes, topic: bytes, sentence: str | None
) -> None:
    assert refusal(control, signed(34, body=HEARTBEAT % (group, topic))) == sentence


def test_a_heartbeat_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(BodyError):
        needed_resources(new_request(34, body=b"{"))


def test_many_refusals_are_few_lines(control: AccessControl) -> None:
    with structlog.testing.capture_logs() as logs:
        for _ in range(10 * LINES_PER_SECOND):
            refusal(control, new_request(SEND))
    assert LINES_PER_SECOND <= len(logs) < 5 * LINES_PER_SECOND, "a slow machine may need several seconds"


def test_refusals_are_counted_by_their_reason(control: AccessControl) -> None:
    requests = [
        new_request(SEND),
        signed(SEND, access_key="nobody1"),
        signed(SEND, secret_key="wrong"),
        signed(SEND, {"b": "closed"}),
        signed(SEND, {"b": "unknown"}),
        signed(17, {"topic": "new"}),
        signed(SEND, {"b": "orders"}),
    ]
    assert [refusal(control, request) is None for request in requests] == [False] * 6 + [True]
    assert control.refused == {"no_access_key": 1, "unknown_access_key": 1, "bad_signature": 1, "no_permission": 3}


def test_the_audit_names_the_account_and_whether_an_address_stood_for_its_signature(control: AccessControl) -> None:
    def who(access_key: str, remote: str) -> str:
        return control.who(cast(Any, FakeConnection(remote)), signed(17, access_key=access_key))

    assert who(OPERATOR, STRANGER) == OPERATOR
    assert who(OPERATOR, "10.2.0.4:9") == f"{OPERATOR} (white address)"
    assert who("deleted-meanwhile", "10.2.0.4:9") == "deleted-meanwhile"
    assert who(OPERATOR, "10.1.0.9:1") == "(white address)"


def test_the_deletion_of_an_account_is_in_the_audit(admin: Admin) -> None:
    with structlog.testing.capture_logs() as logs:
        admin.ask(51, accessKey=SHOP)
    (line,) = [line for line in logs if line["event"] == "account deleted"]
    assert (line["key"], line["before"]["accessKey"], line["after"]) == (SHOP, SHOP, None)
    assert SHOP_SECRET not in str(line)


def test_a_refusal_is_a_line_of_bounded_length(control: AccessControl) -> None:
    """The reason names the account, which a stranger chooses."""
    with structlog.testing.capture_logs() as logs:
        refusal(control, new_request(SEND, ext_fields={"AccessKey": "k" * 100_000, "Signature": "s"}))
    assert [len(line["reason"]) for line in logs if line["event"] == "access refused"] == [REASON_CHARACTERS]


def test_refusals_show_no_secret(control: AccessControl) -> None:
    with structlog.testing.capture_logs() as logs:
        refusal(control, signed(SEND, secret_key="wrong"))
    text = str(logs)
    assert "Check signature failed" in text
    assert SHOP_SECRET not in text
    assert "Signature=" not in text


@pytest.mark.parametrize("like_rocketmq", [True, False])
async def test_the_frames_of_the_real_broker(tmp_path: Path, like_rocketmq: bool) -> None:
    """Every recorded request to the broker with ACL is let through or refused as it was, word for word. Of those that
    are refused here only, the recording has one."""
    text = """
globalWhiteRemoteAddresses: [10.10.103.*]
accounts:
- {accessKey: RocketMQ, secretKey: 1234567890, admin: false, defaultTopicPerm: DENY, defaultGroupPerm: PUB|SUB,
   topicPerms: [WireAcl=PUB|SUB, WireAclDeny=DENY], groupPerms: [GID_Wire_denied=DENY]}
- {accessKey: rocketmq2, secretKey: 12345678, admin: true}
"""
    control = AccessControl(loaded(home_with(tmp_path, text)), like_rocketmq=like_rocketmq)
    frames = golden_frames("acl_json")
    answers = {
        (frame["conn"], frame["header"]["opaque"]): frame["header"] for frame in frames if frame["type"] == "response"
    }
    refused = 0
    here_only = []
    for frame in frames:
        if frame["type"] == "response" or frame["from"] != "client" or frame["to"] != "broker":
            continue
        answer = answers.get((frame["conn"], frame["header"]["opaque"]), {})
        theirs = answer.get("remark") or ""
        theirs = theirs if theirs.startswith("org.apache.rocketmq.acl") else None
        try:
            control(cast(Any, FakeConnection(STRANGER)), decode_frame(bytes.fromhex(frame["frame_hex"])))
            ours = None
        except AccessDenied as denied:
            ours = denied.remark
            refused += 1
        if theirs is None and ours is not None:
            here_only.append((frame["scenario"], frame["code"]))
            continue
        assert ours == theirs, frame["scenario"]
    assert refused >= 10
    assert here_only == ([] if like_rocketmq else [("admin:not_admin_getBrokerConfig", 26)])


# -- administration ----------------------------------------------------------------------------------------------------


class Admin:
    def __init__(self, home: Path) -> None:
        self.clock = FakeClock()
        self.path = home / "conf/plain_acl.yml"
        self.table = AccessTable(home, now_ms=self.clock)
        self.table.load()
        settings = BrokerSettings(broker_name="b-a", broker_cluster_name="C")
        self.processor = AclProcessor(Configuration(broker=settings), self.table, address=lambda: "10.0.0.1:10911")

    def ask(self, code: int, **fields: str) -> RemotingCommand:
        request = new_request(code, ext_fields=fields)
        request.serialize_type = 1
        response = self.processor(cast(Any, FakeConnection()), request)
        assert response is not None
        return response

    def document(self) -> Any:
        return yaml.safe_load(self.path.read_text())


@pytest.fixture
def admin(tmp_path: Path) -> Admin:
    return Admin(home_with(tmp_path))


def test_a_new_account(admin: Admin) -> None:
    response = admin.ask(
        50,
        accessKey="newaccount",
        secretKey="12345678",
        admin="false",
        defaultTopicPerm="DENY",
        topicPerms="A=PUB,B=SUB",
    )
    assert (response.code, response.remark, response.serialize_type) == (0, None, 0)
    account = admin.table.account("newaccount")
    assert account is not None
    assert account.permissions == {"A": PUB, "B": SUB}
    document = admin.document()
    assert document["accounts"][-1] == {
        "accessKey": "newaccount",
        "secretKey": "12345678",
        "admin": False,
        "defaultTopicPerm": "DENY",
        "topicPerms": ["A=PUB", "B=SUB"],
    }
    assert document["dataVersion"] == [{"counter": 2, "timestamp": admin.clock.now_ms}]
    assert [entry["accessKey"] for entry in document["accounts"]] == [SHOP, OPERATOR, "newaccount"]
    assert document["accounts"][0]["admin"] is False


def test_an_account_keeps_what_is_not_given_and_moves_to_the_end(admin: Admin) -> None:
    admin.ask(50, accessKey=SHOP, secretKey="another-secret", topicPerms="x=PUB")
    entry = admin.document()["accounts"][-1]
    assert entry["accessKey"] == SHOP
    assert entry["secretKey"] == "another-secret"
    assert entry["defaultGroupPerm"] == "SUB"
    assert entry["topicPerms"] == ["x=PUB"]
    assert entry["groupPerms"] == ["billing=SUB", "audit=DENY"]
    assert entry["admin"] is False


def test_an_account_stays_in_its_file(tmp_path: Path) -> None:
    home = home_with(tmp_path, acl__team_yml=account_text("team-account"))
    admin = Admin(home)
    before = admin.path.read_bytes()
    admin.ask(50, accessKey="team-account", secretKey="another-secret", admin="true")
    assert admin.path.read_bytes() == before
    assert "another-secret" in (home / "conf/acl/team.yml").read_text()
    assert admin.table.versions()[str(home / "conf/acl/team.yml")].counter == 1


def test_the_file_keeps_its_mode_and_what_it_had_besides(admin: Admin) -> None:
    admin.path.write_text(FILE + "ours: [kept]\n")
    os.chmod(admin.path, 0o640)
    admin.ask(51, accessKey=SHOP)
    assert admin.path.stat().st_mode & 0o777 == 0o640
    assert admin.document()["ours"] == ["kept"]
    assert list(admin.path.parent.glob("*.tmp")) == []


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        (
            {"accessKey": "abc", "secretKey": "x"},
            "The accessKey=abc and secretKey=x cannot be null and length should longer than 6",
        ),
        (
            {"accessKey": "longenough"},
            "The accessKey=longenough and secretKey=null cannot be null and length should longer than 6",
        ),
        ({"topicPerms": "T"}, None),
        ({"topicPerms": "T=ALL"}, None),
        ({"groupPerms": "G=PUB=SUB"}, None),
        ({"defaultTopicPerm": "ALL"}, None),
        ({"whiteRemoteAddress": "1.2.3"}, None),
    ],
)
def test_an_account_that_cannot_be_used_is_refused_and_nothing_is_written(
    admin: Admin, fields: dict[str, str], remark: str | None
) -> None:
    if remark is None:
        fields = {"accessKey": "longenough", "secretKey": "longenough", **fields}
    before = admin.path.read_bytes()
    with structlog.testing.capture_logs() as logs, pytest.raises(RequestRefused) as refused:
        admin.ask(50, **fields)
    assert refused.value.code == 209
    assert remark is None or refused.value.remark == remark
    assert admin.path.read_bytes() == before
    assert "secretKey" not in str(logs)


def test_an_account_can_be_deleted_and_one_that_is_not_there_cannot(admin: Admin) -> None:
    response = admin.ask(51, accessKey=SHOP)
    assert (response.code, response.serialize_type) == (0, 0)
    assert admin.table.account(SHOP) is None
    with pytest.raises(RequestRefused) as refused:
        admin.ask(51, accessKey="nobody12")
    assert refused.value.code == 210
    assert refused.value.remark == "The accesskey[nobody12] corresponding to accessConfig has been deleted failed."


def test_white_addresses(admin: Admin) -> None:
    response = admin.ask(53, globalWhiteAddrs="10.10.15.1,192.168.0.*,1.2.3.{4,5}")
    assert (response.code, response.serialize_type) == (0, 0)
    assert admin.document()["globalWhiteRemoteAddresses"] == ["10.10.15.1", "192.168.0.*", "1.2.3.{4,5}"]
    assert [pattern.text for pattern in admin.table.white_addresses] == ["10.10.15.1", "192.168.0.*", "1.2.3.{4,5}"]
    response = admin.ask(53, globalWhiteAddrs="10.10.15.1", aclFileFullPath=str(admin.path))
    assert response.code == 0


@pytest.mark.parametrize("path", ["/etc/passwd", "{home}/conf/none.yml", "{home}/conf/acl/x.yaml", "{home}/broker.yml"])
def test_white_addresses_of_other_files_are_refused(tmp_path: Path, path: str) -> None:
    home = home_with(tmp_path, acl__x_yaml=account_text("team-account"))
    (home / "broker.yml").write_text("brokerName: a")
    admin = Admin(home)
    with pytest.raises(RequestRefused) as refused:
        admin.ask(53, globalWhiteAddrs="1.2.3.4", aclFileFullPath=path.format(home=home))
    assert refused.value.code == 211
    assert refused.value.remark == "The globalWhiteAddresses[1.2.3.4] has been updated failed."
    assert (home / "broker.yml").read_text() == "brokerName: a"


def test_bad_white_addresses_are_refused(admin: Admin) -> None:
    with pytest.raises(RequestRefused) as refused:
        admin.ask(53, globalWhiteAddrs="1.2.3")
    assert refused.value.code == 211


def test_a_broken_file_is_not_overwritten(admin: Admin) -> None:
    admin.path.write_text("accounts: [broken")
    with pytest.raises(RequestRefused) as refused:
        admin.ask(51, accessKey=SHOP)
    assert refused.value.code == 210
    assert admin.path.read_text() == "accounts: [broken"


def test_listings_are_those_of_the_real_broker(tmp_path: Path) -> None:
    text = """
globalWhiteRemoteAddresses: [10.10.103.*]
accounts:
- {accessKey: RocketMQ, secretKey: 1234567890, whiteRemoteAddress: , admin: false, defaultTopicPerm: DENY,
   defaultGroupPerm: PUB|SUB, topicPerms: [WireAcl=PUB|SUB, WireAclDeny=DENY], groupPerms: [GID_Wire_denied=DENY]}
- {accessKey: rocketmq2, secretKey: 12345678, whiteRemoteAddress: , admin: true}
"""
    admin = Admin(home_with(tmp_path, text))
    recorded = golden_frames("acl_json", scenario="admin:getAclConfig", answers="GET_BROKER_CLUSTER_ACL_CONFIG")[0]
    assert admin.ask(54).body.decode() == recorded["body"]
    fields = admin.ask(52).ext_fields or {}
    version = '{"counter":0,"timestamp":1700000000000}'
    assert fields == {
        "version": version,
        "allAclFileVersion": f'{{"{admin.path}":{version}}}',
        "brokerName": "b-a",
        "brokerAddr": "10.0.0.1:10911",
        "clusterName": "C",
    }


def test_administration_like_the_real_broker(tmp_path: Path) -> None:
    """Replay the recorded requests of mqadmin in order: responses and accounts are those of the real broker."""
    text = """
globalWhiteRemoteAddresses: [10.10.103.*]
accounts:
- {accessKey: RocketMQ, secretKey: 1234567890, whiteRemoteAddress: , admin: false, defaultTopicPerm: DENY,
   defaultGroupPerm: PUB|SUB, topicPerms: [WireAcl=PUB|SUB, WireAclDeny=DENY], groupPerms: [GID_Wire_denied=DENY]}
- {accessKey: rocketmq2, secretKey: 12345678, whiteRemoteAddress: , admin: true}
"""
    admin = Admin(home_with(tmp_path, text))
    frames = golden_frames("acl_json")
    answers = {(frame["conn"], frame["header"]["opaque"]): frame for frame in frames if frame["type"] == "response"}
    replayed = []
    for frame in frames:
        if frame["type"] != "request" or frame["to"] != "broker" or frame["code"] not in (50, 51, 53, 54):
            continue
        theirs = answers[frame["conn"], frame["header"]["opaque"]]
        request = decode_frame(bytes.fromhex(frame["frame_hex"]))
        try:
            ours = admin.processor(cast(Any, FakeConnection()), request)
            assert ours is not None
            answer = (ours.code, ours.remark, ours.body.decode())
        except RequestRefused as refused:
            answer = (refused.code, refused.remark, "")
        header = theirs["header"]
        assert answer == (header["code"], header.get("remark"), theirs["body"] or ""), frame["scenario"]
        replayed.append(frame["code"])
    assert set(replayed) == {50, 51, 53, 54}
    assert admin.table.default_version().counter == 3


def test_without_acl() -> None:
    processor = AclProcessor(Configuration(), None, address=lambda: "a:1")
    connection = cast(Any, FakeConnection())
    for code, refused_code, fields in (
        (52, 1, {}),  # RocketMQ does not respond to these two
        (54, 1, {}),
        (50, 209, {"accessKey": "a"}),
        (51, 210, {"accessKey": "a"}),
        (53, 211, {"globalWhiteAddrs": "a"}),
    ):
        with pytest.raises(RequestRefused) as refused:
            processor(connection, new_request(code, ext_fields=fields))
        assert refused.value.code == refused_code
        assert "aclEnable" in (refused.value.remark or "")


def test_yaml_is_not_loaded_without_access_control() -> None:
    import subprocess
    import sys

    code = "import sys, broker.processors.acl, broker.assembly.processors; print('yaml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
