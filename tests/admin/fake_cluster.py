"""A NameServer and broker in one: one address that answers what commands ask, and records every request."""

from __future__ import annotations

import json
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stored_records import encoded

from triomq.protocol.frame import FrameDecoder

NOW = 1_795_240_620_967
MESSAGE_ID = "7F0000010000000100000000000000AB"
TEXTS = {"brokerVersionDesc": "V4_9_7", "putTps": "0.0 0.0", "getTransferedTps": "0.0 0.0", "commitLogDiskRatio": "0.1"}
GROUP = {
    "groupName": "G",
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeBroadcastEnable": True,
    "retryQueueNums": 1,
    "retryMaxTimes": 16,
    "brokerId": 0,
    "whichBrokerWhenConsumeSlowly": 1,
    "notifyConsumerIdsChangedEnable": True,
}
TOPIC = {
    "topicName": "T",
    "readQueueNums": 2,
    "writeQueueNums": 2,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": 0,
    "order": False,
}


def by_queue(value: dict[str, int]) -> dict[str, dict[str, int]]:
    return {json.dumps({"topic": "T", "brokerName": "b", "queueId": number}): value for number in (0, 1)}


class FakeCluster:
    """`requests` are (code, fields, body) in order of arrival. `refusals` maps a code to (response code, remark); codes
    that are `silent` get no response."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, dict[str, str], bytes]] = []
        self.refusals: dict[int, tuple[int, str]] = {}
        self.silent: set[int] = set()
        self.address = ""

    @property
    def offset_id(self) -> str:
        """The offset message id of a message at this address."""
        return f"7F000001{int(self.address.rpartition(':')[2]):08X}{0:016X}"

    @property
    def codes(self) -> set[int]:
        return {code for code, _, _ in self.requests}

    def answer(self, code: int, fields: dict[str, str], body: bytes) -> tuple[int, str, dict[str, str], bytes]:
        """Return (code, remark, fields, body) of the response."""
        self.requests.append((code, fields, body))
        if code in self.refusals:
            return (*self.refusals[code], {}, b"")
        if code == 11:
            return 19, "no new message", {"nextBeginOffset": "5", "minOffset": "0", "maxOffset": "5"}, b""
        if code in (12, 33):
            key = MESSAGE_ID.encode()
            properties = b"UNIQ_KEY\x01" + key + b"\x02KEYS\x01k " + key + b"\x02"
            topic = fields.get("topic", "T").encode()
            return 0, "", {}, bytes(encoded(topic, b"hello", properties, store_timestamp=NOW))
        if code in (26, 319):
            return 0, "", {}, b"brokerName=b\nkey=old\n"
        return 0, "", self._fields(code), json.dumps(self._bodies().get(code, {})).encode()

    def _fields(self, code: int) -> dict[str, str]:
        accounts = json.dumps({"plain_acl.yml": {"counter": 1, "timestamp": NOW}})
        return {
            14: {"offset": "2"},
            29: {"offset": "1"},
            30: {"offset": "5"},
            31: {"offset": "0"},
            52: {"clusterName": "C", "brokerName": "b", "brokerAddr": self.address, "allAclFileVersion": accounts},
            101: {"value": "old"},
            310: {"msgId": MESSAGE_ID, "queueId": "0", "queueOffset": "5"},
        }.get(code, {})

    def _bodies(self) -> dict[int, Any]:
        broker = {"brokerName": "b", "cluster": "C", "brokerAddrs": {"0": self.address}}
        queues = {"brokerName": "b", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicSysFlag": 0}
        member = {"clientId": "1@m", "clientAddr": "127.0.0.1:1", "language": "JAVA", "version": 407}
        rate = {"sum": 1, "tps": 1.0, "avgpt": 1.0}
        progress = {"brokerOffset": 5, "consumerOffset": 2, "lastTimestamp": NOW}
        stats = {"consumeTps": 1.0, "offsetTable": by_queue(progress)}
        subscription = {"topic": "T", "subString": "*", "tagsSet": [], "codeSet": [], "subVersion": 1}
        return {
            21: {"topicConfigTable": {"T": TOPIC}, "dataVersion": {"counter": 1, "timestamp": 1}},
            28: {"table": TEXTS},
            54: {
                "globalWhiteAddrs": ["10.0.0.1"],
                "plainAccessConfigs": [{"accessKey": "a", "secretKey": "hush-hush", "admin": True}],
            },
            105: {"brokerDatas": [broker], "queueDatas": [queues], "filterServerTable": {}},
            106: {"brokerAddrTable": {"b": broker}, "clusterAddrTable": {"C": ["b"]}},
            201: {"subscriptionGroupTable": {"G": GROUP}, "dataVersion": {"counter": 1, "timestamp": 1}},
            202: {"offsetTable": by_queue({"minOffset": 0, "maxOffset": 5, "lastUpdateTimestamp": NOW})},
            203: {
                "connectionSet": [member],
                "subscriptionTable": {"T": subscription},
                "messageModel": "CLUSTERING",
                "consumeType": "CONSUME_PASSIVELY",
                "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            },
            204: {"connectionSet": [member]},
            206: {"topicList": ["T", "%RETRY%G"]},
            208: stats,
            222: {"offsetTable": dict.fromkeys(by_queue({}), 5)},
            300: {"groupList": ["G"]},
            305: {"topicList": ["TBW102"]},
            307: {"mqTable": by_queue({"commitOffset": 2}), "properties": {}, "statusTable": {}, "subscriptionSet": []},
            309: {"consumeResult": "CR_SUCCESS"},
            315: {"statsMinute": rate, "statsHour": rate, "statsDay": rate},
            317: {"consumeStatsList": [{"G": [stats]}]},
            321: {"minQueueIndex": 0, "maxQueueIndex": 5, "queueData": []},
            328: {
                "data": {
                    "P": [
                        {
                            "clientId": "1@m",
                            "language": "JAVA",
                            "lastUpdateTimestamp": NOW,
                            "remoteIP": "i",
                            "version": 407,
                        }
                    ]
                }
            },
        }


@contextmanager
def fake_cluster(cluster: FakeCluster | None = None) -> Iterator[FakeCluster]:
    """Listen until the block ends."""
    cluster = cluster or FakeCluster()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            decoder = FrameDecoder()
            while data := self.request.recv(65536):
                for command in decoder.feed(data):
                    if command.code in cluster.silent:
                        continue
                    code, remark, fields, body = cluster.answer(
                        command.code, dict(command.ext_fields or {}), bytes(command.body)
                    )
                    self.request.sendall(_frame(command.opaque, code, remark, fields, body))

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as server:
        cluster.address = f"127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield cluster
        server.shutdown()
        thread.join()


def _frame(opaque: int, code: int, remark: str, fields: dict[str, str], body: bytes) -> bytes:
    header = json.dumps(
        {
            "code": code,
            "opaque": opaque,
            "flag": 1,
            "language": "JAVA",
            "version": 407,
            "remark": remark,
            "extFields": fields,
        }
    ).encode()
    return struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body
