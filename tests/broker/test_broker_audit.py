"""The audit of administration: who, from where, what, before and after, and no secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from broker_whole import pull_fields, send_fields, whole_broker
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs
from test_broker_access_matrix import ACCOUNTS, Guarded, guarded_broker, send, topic_fields

from triomq.broker.audit import members
from triomq.daemon.audit import differences
from triomq.daemon.environment import Environment
from triomq.daemon.logs import BROKER_LOG_FILES, configure_logs
from triomq.protocol.bodies.acl import PlainAccessConfig
from triomq.protocol.codes import RequestCode
from triomq.protocol.message_id import offset_message_id

CODE = RequestCode
GROUP = b'{"groupName":"Buyers","retryMaxTimes":%d}'
HALF = "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01U"


def audited(logs: list[Any]) -> list[dict[str, Any]]:
    """The audit lines, without what is the same in all of them here."""
    lines = []
    for entry in logs:
        if "account" in entry and "code" in entry and entry["event"] != "access refused":
            line = dict(entry)
            assert line.pop("log_level") == "info"
            assert line.pop("remote").startswith("127.0.0.1:")
            lines.append(line)
    return lines


async def test_changes_of_topics_and_groups_are_noted(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path) as broker:
        guarded = Guarded(broker)
        with capture_logs() as logs:
            await guarded.admin(CODE.UPDATE_AND_CREATE_TOPIC, topic_fields("Orders"))
            await guarded.admin(CODE.UPDATE_AND_CREATE_TOPIC, {**topic_fields("Orders"), "perm": 4})
            await guarded.admin(CODE.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"})
            await guarded.admin(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, GROUP % 3)
            await guarded.admin(CODE.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, GROUP % 4)
            await guarded.admin(CODE.DELETE_SUBSCRIPTIONGROUP, {"groupName": "Buyers", "cleanOffset": "true"})
    created, changed, deleted, made, widened, removed = audited(logs)
    assert (created["event"], created["code"], created["account"]) == ("topic created", 17, "operator")
    assert created["before"] is None
    assert created["after"]["topicName"] == "Orders"
    assert changed == {
        "event": "topic changed",
        "code": 17,
        "account": "operator",
        "topic": "Orders",
        "before": {"perm": 6},
        "after": {"perm": 4},
    }
    assert (deleted["event"], deleted["topic"], deleted["after"]) == ("topic deleted", "Orders", None)
    assert deleted["before"]["perm"] == 4
    assert (made["event"], made["group"], made["after"]["retryMaxTimes"]) == ("group created", "Buyers", 3)
    assert (widened["before"], widened["after"]) == ({"retryMaxTimes": 3}, {"retryMaxTimes": 4})
    assert (removed["event"], removed["before"]["retryMaxTimes"]) == ("group deleted", 4)


async def test_changes_of_accounts_are_noted_without_their_secrets(tmp_path: Path) -> None:
    account = {"accessKey": "another", "secretKey": "secretOfAnother", "admin": "false", "topicPerms": "A=PUB"}
    async with guarded_broker(tmp_path) as broker:
        guarded = Guarded(broker)
        with capture_logs() as logs:
            await guarded.admin(CODE.UPDATE_AND_CREATE_ACL_CONFIG, account)
            changed = {**account, "secretKey": "secretOfAnother2", "topicPerms": "A=SUB"}
            await guarded.admin(CODE.UPDATE_AND_CREATE_ACL_CONFIG, changed)
            await guarded.admin(CODE.GET_BROKER_CLUSTER_ACL_CONFIG, {})
            await guarded.admin(CODE.DELETE_ACL_CONFIG, {"accessKey": "another"})
            await guarded.admin(CODE.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, {"globalWhiteAddrs": "10.0.0.1"})
            refused = await guarded.ask("main", "with permission", CODE.UPDATE_AND_CREATE_ACL_CONFIG, account)
            assert refused.code == 1
            await guarded.admin(CODE.DELETE_ACL_CONFIG, {"accessKey": "operator"})
    lines = audited(logs)
    assert [line["event"] for line in lines] == [
        "account created",
        "account changed",
        "accounts read with their secret keys",
        "account deleted",
        "white addresses changed",
        "administration refused",
        "account deleted",
    ]
    assert [line["account"] for line in lines] == ["operator"] * 5 + ["permitted", "operator"]
    assert lines[1]["key"] == "another"
    assert lines[1]["before"] == {"secretKey": "***", "topicPerms": ["A=PUB"]}
    assert lines[1]["after"] == {"secretKey": "***", "topicPerms": ["A=SUB"]}
    assert lines[3]["after"] is None
    assert lines[4]["before"] == {"globalWhiteRemoteAddresses": []}
    assert lines[4]["after"] == {"globalWhiteRemoteAddresses": ["10.0.0.1"]}
    assert "secretOf" in ACCOUNTS
    assert "secretOf" not in str(logs)


async def test_changes_of_the_configuration_are_noted(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path) as broker:
        guarded = Guarded(broker)
        with capture_logs() as logs:
            body = b"traceOn=false\nnobodyKnows=1\n"
            await guarded.admin(CODE.UPDATE_BROKER_CONFIG, {}, body)
            await guarded.admin(CODE.UPDATE_BROKER_CONFIG, {}, body)
    (line,) = audited(logs)
    assert line == {
        "event": "configuration changed",
        "code": 25,
        "account": "operator",
        "before": {"traceOn": "true"},
        "after": {"traceOn": "false"},
    }


async def test_changes_of_offsets_and_files_are_noted(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path) as broker:
        guarded = Guarded(broker)
        await guarded.admin(CODE.UPDATE_AND_CREATE_TOPIC, topic_fields("Orders"))
        half = await send(guarded, "Orders", HALF)
        offset = {"topic": "Orders", "queueId": 0, "consumerGroup": "Buyers", "commitOffset": 7}
        await guarded.admin(CODE.UPDATE_CONSUMER_OFFSET, offset)
        with capture_logs() as logs:
            clone = {"srcGroup": "Buyers", "destGroup": "Copies", "topic": "Orders", "offline": "true"}
            await guarded.admin(CODE.CLONE_GROUP_OFFSET, clone)
            message_id = offset_message_id(b"\x7f\0\0\1\0\0\0\1", half[0])
            await guarded.admin(CODE.RESUME_CHECK_HALF_MESSAGE, {"msgId": message_id})
            for code in (CODE.CLEAN_EXPIRED_CONSUMEQUEUE, CODE.CLEAN_UNUSED_TOPIC, CODE.DELETE_EXPIRED_COMMITLOG):
                await guarded.admin(code, {})
    lines = audited(logs)
    assert [line["event"] for line in lines] == [
        "offsets cloned",
        "checks of a half message resumed",
        "expired queues removed",
        "queues of unused topics removed",
        "deletion of expired files requested",
    ]
    assert (lines[0]["before"], lines[0]["after"], lines[0]["source"]) == ({}, {"0": 7}, "Buyers")
    assert lines[1]["message_id"] == message_id


async def test_what_clients_do_is_no_administration(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path) as broker:
        guarded = Guarded(broker)
        await guarded.admin(CODE.UPDATE_AND_CREATE_TOPIC, topic_fields("Orders"))
        with capture_logs() as logs:
            await guarded.ask("main", "with permission", CODE.SEND_MESSAGE, send_fields("Orders"), b"x")
            pull = pull_fields("Orders", consumerGroup="Buyers")
            await guarded.ask("main", "with permission", CODE.PULL_MESSAGE, pull)
            await guarded.ask("main", "without permission", CODE.PULL_MESSAGE, pull)
    assert audited(logs) == []


async def test_without_access_control_the_address_is_all_that_is_known(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        with capture_logs() as logs:
            fields = {**topic_fields("Orders"), "AccessKey": "anybody"}
            assert (await broker.ask(CODE.UPDATE_AND_CREATE_TOPIC, fields)).code == 0
    (line,) = audited(logs)
    assert (line["event"], line["account"]) == ("topic created", "(no access control)")


@pytest.mark.parametrize(
    ("old", "new", "account"),
    [
        ("accounts:", "globalWhiteRemoteAddresses: [127.0.0.1]\naccounts:", "(white address)"),
        ("  admin: true", "  admin: true\n  whiteRemoteAddress: 127.0.0.1", "operator (white address)"),
    ],
)
async def test_an_address_that_stood_for_a_signature_is_said(tmp_path: Path, old: str, new: str, account: str) -> None:
    async with guarded_broker(tmp_path, ACCOUNTS.replace(old, new)) as broker:
        with capture_logs() as logs:
            await Guarded(broker).admin(CODE.UPDATE_AND_CREATE_TOPIC, topic_fields("Orders"))
    (line,) = audited(logs)
    assert line["account"] == account


def test_the_audit_has_a_file_of_its_own(tmp_path: Path) -> None:
    files = configure_logs(Environment({"TRIOMQ_LOG_DIR": str(tmp_path)}, {}, {}), BROKER_LOG_FILES)
    try:
        import structlog

        structlog.get_logger("triomq.broker.audit").info("topic deleted", after=None, before={"perm": 6})
    finally:
        files.close()
    text = (tmp_path / "audit.log").read_text()
    assert text.endswith("triomq.broker.audit - topic deleted after=None before=\"{'perm': 6}\"\n")


def test_differences_of_records_have_the_names_of_the_wire() -> None:
    old = PlainAccessConfig(access_key="key", secret_key="first", default_topic_perm="PUB")
    new = PlainAccessConfig(access_key="key", secret_key="second", default_topic_perm="SUB")
    assert differences(members(old), members(new)) == (
        {"secretKey": "***", "defaultTopicPerm": "PUB"},
        {"secretKey": "***", "defaultTopicPerm": "SUB"},
    )
    assert differences(None, {"password": "x", "other": ""}) == (None, {"password": "***", "other": ""})


STATES = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3))


@given(STATES, STATES)
def test_differences_lead_from_one_state_to_the_other(old: dict[str, int], new: dict[str, int]) -> None:
    before, after = differences(old, new)
    assert before is not None
    assert after is not None
    unchanged = {name: value for name, value in old.items() if name not in before}
    assert {**unchanged, **after} == new
    assert all(before.get(name) != after.get(name) for name in {**before, **after})
