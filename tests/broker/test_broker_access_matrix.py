"""Who may send which request to which port: every code of the protocol, with every kind of credentials, to a broker
with access control. The rows are written down here, apart from the broker's table, and have to cover the protocol's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker_whole import WholeBroker, pull_fields, send_fields, whole_broker

from triomq.broker.acl.needs import ADMIN, NEEDS, need_of
from triomq.protocol import signature
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request

ACCOUNTS = """
accounts:
- accessKey: permitted
  secretKey: secretOfPermitted
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [Orders=PUB|SUB]
  groupPerms: [Buyers=SUB]
- accessKey: forbidden
  secretKey: secretOfForbidden
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
- accessKey: operator
  secretKey: secretOfOperator
  admin: true
"""
CREDENTIALS = {
    "none": None,
    "wrong signature": ("permitted", "anotherSecret"),
    "without permission": ("forbidden", "secretOfForbidden"),
    "with permission": ("permitted", "secretOfPermitted"),
    "administrator": ("operator", "secretOfOperator"),
}
PASSES, ELSEWHERE = "passes", "not supported"
REASONS = {
    "No accessKey is configured": "no account",
    "Check signature failed": "bad signature",
    "Need admin permission": "no administrator",
    "No default permission": "no permission",
}
STRANGERS = ("no account", "bad signature")
BY_ADMIN = (*STRANGERS, "no administrator", "no administrator", PASSES)
BY_PERMISSION = (*STRANGERS, "no permission", PASSES, PASSES)
BY_ACCOUNT = (*STRANGERS, PASSES, PASSES, PASSES)
BY_NOBODY = (ELSEWHERE,) * 5


@dataclass(frozen=True)
class Row:
    """What each of CREDENTIALS gets, for a request with these fields."""

    outcomes: tuple[str, ...]
    fields: dict[str, Any] = field(default_factory=dict)
    body: bytes = b""
    is_on_fast_port: bool = True


V2 = dict(zip(send_fields("T"), "abcdefghijkm", strict=True))
QUEUE = {"topic": "Orders", "queueId": 0}
RECEIVE = {"queueId": 0, "maxMsgNums": 1, "invisibleTime": 1000, "pollTime": 0, "bornTime": 0, "initMode": 0}
HANDLE = {"queueId": 0, "extraInfo": "0 1 1000 0 0 broker-a 0 0", "offset": 0}
BATCH_ACK = json.dumps({"acks": [{"c": "Buyers", "t": "Orders", "q": 0, "so": 0, "pt": 1, "b": "AQ=="}]}).encode()
BOTH = {"topic": "Orders", "consumerGroup": "Buyers"}
ASSIGNMENT = json.dumps({**BOTH, "clientId": "c", "strategyName": "AVG"}).encode()
LOCKS = json.dumps(
    {"clientId": "c", "consumerGroup": "Buyers", "mqSet": [{"topic": "Orders", "brokerName": "b", "queueId": 0}]}
).encode()
HEARTBEAT = json.dumps(
    {
        "clientID": "c",
        "producerDataSet": [{"groupName": "Sellers"}],
        "consumerDataSet": [
            {"groupName": "Buyers", "subscriptionDataSet": [{"topic": "Orders", "subString": "*"}]},
        ],
    }
).encode()
CHECK = json.dumps(
    {"clientId": "c", "group": "Buyers", "subscriptionData": {"topic": "Orders", "subString": "*"}}
).encode()


def in_v2(fields: dict[str, Any]) -> dict[str, Any]:
    return {V2[name]: value for name, value in fields.items()}


def rows(plain_offset: int, half: tuple[int, int]) -> dict[int, Row]:
    """One row for each code; `plain_offset` is the place of a message of Orders, `half` those of one of its half
    messages in the log and in its queue."""
    code = RequestCode
    orders, replies = send_fields("Orders"), send_fields("DefaultCluster_REPLY_TOPIC")
    ending = {
        "producerGroup": "P",
        "commitLogOffset": half[0],
        "tranStateTableOffset": half[1],
        "commitOrRollback": 8,
        "msgId": "U",
        "transactionId": "U",
        "fromTransactionCheck": "false",
    }
    found: dict[int, Row] = {
        code.SEND_MESSAGE: Row(BY_PERMISSION, orders, b"x"),
        code.SEND_MESSAGE_V2: Row(BY_PERMISSION, in_v2(orders), b"x"),
        code.SEND_BATCH_MESSAGE: Row(BY_PERMISSION, in_v2(orders), b"x"),
        code.SEND_REPLY_MESSAGE: Row(BY_ACCOUNT, replies, b"x"),
        code.SEND_REPLY_MESSAGE_V2: Row(BY_ACCOUNT, in_v2(replies), b"x"),
        code.CONSUMER_SEND_MSG_BACK: Row(
            BY_PERMISSION, {"offset": plain_offset, "group": "Buyers", "delayLevel": 0, "originTopic": "Orders"}
        ),
        code.END_TRANSACTION: Row(BY_PERMISSION, ending),
        code.PULL_MESSAGE: Row(BY_PERMISSION, pull_fields("Orders", consumerGroup="Buyers"), is_on_fast_port=False),
        code.QUERY_MESSAGE: Row(
            BY_PERMISSION, {"topic": "Orders", "key": "k1", "maxNum": 1, "beginTimestamp": 0, "endTimestamp": 1}
        ),
        code.VIEW_MESSAGE_BY_ID: Row(BY_PERMISSION, {"offset": plain_offset}),
        code.HEART_BEAT: Row(BY_PERMISSION, {}, HEARTBEAT),
        code.UNREGISTER_CLIENT: Row(BY_PERMISSION, {"clientID": "c", "consumerGroup": "Buyers"}),
        code.CHECK_CLIENT_CONFIG: Row(BY_ACCOUNT, {}, CHECK),
        code.QUERY_GRPC_ENDPOINT: Row(BY_ACCOUNT),
        code.GET_CONSUMER_LIST_BY_GROUP: Row(BY_PERMISSION, {"consumerGroup": "Buyers"}),
        code.LOCK_BATCH_MQ: Row(BY_PERMISSION, {}, LOCKS),
        code.UNLOCK_BATCH_MQ: Row(BY_PERMISSION, {}, LOCKS),
        code.QUERY_CONSUMER_OFFSET: Row(BY_PERMISSION, {**BOTH, "queueId": 0}),
        code.UPDATE_CONSUMER_OFFSET: Row(BY_PERMISSION, {**BOTH, "queueId": 0, "commitOffset": 0}),
        code.SEARCH_OFFSET_BY_TIMESTAMP: Row(BY_PERMISSION, {**QUEUE, "timestamp": 0}),
        code.GET_MAX_OFFSET: Row(BY_PERMISSION, QUEUE),
        code.GET_MIN_OFFSET: Row(BY_PERMISSION, QUEUE),
        code.GET_EARLIEST_MSG_STORETIME: Row(BY_PERMISSION, QUEUE),
        code.GET_TOPIC_STATS_INFO: Row(BY_PERMISSION, {"topic": "Orders"}),
        code.GET_TOPIC_CONFIG: Row(BY_PERMISSION, {"topic": "Orders"}),
        code.GET_SUBSCRIPTIONGROUP_CONFIG: Row(BY_PERMISSION, {"group": "Buyers"}),
        code.GET_CONSUMER_CONNECTION_LIST: Row(BY_PERMISSION, {"consumerGroup": "Buyers"}),
        code.GET_CONSUME_STATS: Row(BY_PERMISSION, BOTH),
        code.QUERY_CONSUME_TIME_SPAN: Row(BY_PERMISSION, {"topic": "Orders", "group": "Buyers"}),
        code.QUERY_CONSUME_QUEUE: Row(BY_PERMISSION, {**BOTH, "queueId": 0, "index": 0, "count": 1}),
        code.QUERY_ASSIGNMENT: Row(BY_PERMISSION, {}, ASSIGNMENT),
        code.POP_MESSAGE: Row(BY_PERMISSION, {**BOTH, **RECEIVE}, is_on_fast_port=False),
        code.PEEK_MESSAGE: Row(BY_PERMISSION, {**BOTH, "queueId": 0, "maxMsgNums": 1}),
        code.NOTIFICATION: Row(BY_PERMISSION, {**BOTH, "queueId": 0, "pollTime": 0, "bornTime": 0}),
        code.POLLING_INFO: Row(BY_PERMISSION, {**BOTH, "queueId": 0}),
        code.ACK_MESSAGE: Row(BY_PERMISSION, {**BOTH, **HANDLE}),
        code.CHANGE_MESSAGE_INVISIBLETIME: Row(BY_PERMISSION, {**BOTH, **HANDLE, "invisibleTime": 1000}),
        code.BATCH_ACK_MESSAGE: Row(BY_PERMISSION, {}, BATCH_ACK),
    }
    found.update(dict.fromkeys(map(int, administration()), Row(BY_ADMIN)))
    found.update(dict.fromkeys(map(int, of_other_servers()), Row(BY_NOBODY)))
    return found


def administration() -> Iterator[RequestCode]:
    """Requests of administrators. They are sent without fields, so nothing happens where one passes."""
    code = RequestCode
    yield from (code.UPDATE_AND_CREATE_TOPIC, code.DELETE_TOPIC_IN_BROKER, code.GET_ALL_TOPIC_CONFIG)
    yield from (code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, code.DELETE_SUBSCRIPTIONGROUP)
    yield from (code.SET_MESSAGE_REQUEST_MODE, code.QUERY_IN_FLIGHT, code.RELEASE_IN_FLIGHT)
    yield from (code.QUERY_BROKER_TOTALS,)
    yield from (code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, code.GET_ALL_CONSUMER_OFFSET, code.GET_ALL_DELAY_OFFSET)
    yield from (code.UPDATE_BROKER_CONFIG, code.GET_BROKER_CONFIG, code.GET_BROKER_RUNTIME_INFO)
    yield from (code.UPDATE_AND_CREATE_ACL_CONFIG, code.DELETE_ACL_CONFIG, code.GET_BROKER_CLUSTER_ACL_INFO)
    yield from (code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, code.GET_BROKER_CLUSTER_ACL_CONFIG)
    yield from (code.GET_PRODUCER_CONNECTION_LIST, code.GET_ALL_PRODUCER_INFO, code.GET_CONSUMER_RUNNING_INFO)
    yield from (code.INVOKE_BROKER_TO_RESET_OFFSET, code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
    yield from (code.CONSUME_MESSAGE_DIRECTLY, code.CLONE_GROUP_OFFSET, code.QUERY_CORRECTION_OFFSET)
    yield from (code.QUERY_TOPIC_CONSUME_BY_WHO, code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
    yield from (code.CLEAN_EXPIRED_CONSUMEQUEUE, code.CLEAN_UNUSED_TOPIC, code.DELETE_EXPIRED_COMMITLOG)
    yield from (code.VIEW_BROKER_STATS_DATA, code.GET_BROKER_CONSUME_STATS, code.RESUME_CHECK_HALF_MESSAGE)


def of_other_servers() -> Iterator[RequestCode]:
    """Requests to NameServers and to clients, and those that nobody handles."""
    code = RequestCode
    yield from (code.PUT_KV_CONFIG, code.GET_KV_CONFIG, code.DELETE_KV_CONFIG, code.GET_KVLIST_BY_NAMESPACE)
    yield from (code.REGISTER_BROKER, code.UNREGISTER_BROKER, code.QUERY_DATA_VERSION)
    yield from (code.GET_ROUTEINFO_BY_TOPIC, code.GET_BROKER_CLUSTER_INFO, code.DELETE_TOPIC_IN_NAMESRV)
    yield from (code.WIPE_WRITE_PERM_OF_BROKER, code.ADD_WRITE_PERM_OF_BROKER)
    yield from (code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, code.GET_TOPICS_BY_CLUSTER)
    yield from (code.GET_SYSTEM_TOPIC_LIST_FROM_NS, code.GET_UNIT_TOPIC_LIST)
    yield from (code.GET_HAS_UNIT_SUB_TOPIC_LIST, code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)
    yield from (code.UPDATE_NAMESRV_CONFIG, code.GET_NAMESRV_CONFIG, code.QUERY_DEPARTED_BROKERS)
    yield from (code.CHECK_TRANSACTION_STATE, code.NOTIFY_CONSUMER_IDS_CHANGED, code.RESET_CONSUMER_CLIENT_OFFSET)
    yield from (code.GET_CONSUMER_STATUS_FROM_CLIENT, code.PUSH_REPLY_MESSAGE_TO_CLIENT)
    yield from (code.QUERY_BROKER_OFFSET, code.GET_TOPIC_CONFIG_LIST, code.GET_TOPIC_NAME_LIST)
    yield from (code.TRIGGER_DELETE_FILES, code.SUSPEND_CONSUMER, code.RESUME_CONSUMER)
    yield from (code.RESET_CONSUMER_OFFSET_IN_CONSUMER, code.RESET_CONSUMER_OFFSET_IN_BROKER)
    yield from (code.ADJUST_CONSUMER_THREAD_POOL, code.WHO_CONSUME_THE_MESSAGE)
    yield from (code.REGISTER_FILTER_SERVER, code.REGISTER_MESSAGE_FILTER_CLASS)


class Guarded:
    """A broker with access control, and requests to its two ports."""

    def __init__(self, broker: WholeBroker) -> None:
        self.broker = broker
        self.ports = {"main": broker.address, "fast": broker.fast_address}

    async def ask(
        self, port: str, who: str, code: int, fields: dict[str, Any] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        texts = {name: str(value) for name, value in (fields or {}).items()}
        credentials = CREDENTIALS[who]
        if credentials is not None:
            texts = signature.sign_fields(texts, body, *credentials)
        request = new_request(code, ext_fields=texts, body=body)
        return await self.broker.client.invoke(self.ports[port], request, 10)

    async def admin(self, code: int, fields: dict[str, Any], body: bytes = b"") -> RemotingCommand:
        response = await self.ask("main", "administrator", code, fields, body)
        assert response.code == 0, response.remark
        return response

    async def outcome(self, port: str, who: str, code: int, row: Row) -> str:
        response = await self.ask(port, who, code, row.fields, row.body)
        remark = response.remark or ""
        if response.code == 3:
            return ELSEWHERE
        if "AclException" not in remark:
            assert response.code != 2, remark
            return PASSES
        return next(reason for text, reason in REASONS.items() if text in remark)


def guarded_broker(folder: Path, accounts: str = ACCOUNTS, **settings: str) -> Any:
    (folder / "conf").mkdir()
    (folder / "conf/plain_acl.yml").write_text(accounts)
    return whole_broker(folder, **{"aclEnable": "true", "rocketmqHome": str(folder), **settings})


def topic_fields(topic: str) -> dict[str, Any]:
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
    }


def offset_of(response: RemotingCommand) -> int:
    return int((response.ext_fields or {})["msgId"][-16:], 16)


async def send(guarded: Guarded, topic: str, properties: str = "KEYS\x01k1", body: bytes = b"x") -> tuple[int, int]:
    """The place of a new message in the log and in its queue."""
    response = await guarded.admin(10, send_fields(topic, properties=properties), body)
    return offset_of(response), int((response.ext_fields or {})["queueOffset"])


async def test_every_code_with_all_credentials_on_both_ports(tmp_path: Path) -> None:
    async with guarded_broker(tmp_path, aclFailuresPerMinute="0") as broker:
        guarded = Guarded(broker)
        await guarded.admin(RequestCode.UPDATE_AND_CREATE_TOPIC, topic_fields("Orders"))
        plain_offset, _ = await send(guarded, "Orders")
        half = await send(guarded, "Orders", "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01U")
        matrix = rows(plain_offset, half)
        assert set(matrix) == set(RequestCode), "each code of the protocol has a row"
        served = {code for code, row in matrix.items() if row.outcomes != BY_NOBODY}
        assert served == set(NEEDS), "each code that a broker serves is in its table of needs"
        wrong = []
        for code, row in sorted(matrix.items()):
            for port in guarded.ports:
                is_served = port == "main" or row.is_on_fast_port
                for who, outcome in zip(CREDENTIALS, row.outcomes, strict=True):
                    expected = outcome if is_served else ELSEWHERE
                    found = await guarded.outcome(port, who, code, row)
                    if found != expected:
                        wrong.append(f"{RequestCode(code).name} ({code}), {port} port, {who}: {found}, not {expected}")
        assert not wrong, "\n".join(wrong)


def test_a_code_that_the_table_lacks_needs_an_administrator() -> None:
    assert all(code in NEEDS or need_of(code) is ADMIN for code in RequestCode)
    assert need_of(100_000) is ADMIN
