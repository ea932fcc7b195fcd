"""The JSON that each verb writes; see `shapes`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CONTEXT = {
    "name": "string", "current": "boolean", "nameServers": "string", "accessKey": "string?", "tls": "boolean",
    "caFile": "string?",
}  # fmt: skip

QUEUE = {"topic": "string", "brokerName": "string", "queueId": "integer"}
MESSAGE = {
    **QUEUE, "brokerName": "string?", "queueOffset": "integer", "commitLogOffset": "integer", "msgId": "string",
    "offsetMsgId": "string", "tags": "string?", "keys": "string?", "reconsumeTimes": "integer",
    "bornTimestamp": "integer", "bornTime": "time?", "storeTimestamp": "integer", "storeTime": "time?",
    "bornHost": "string", "storeHost": "string", "sysFlag": "integer", "flag": "integer", "properties": "{string}",
    "body?": "string", "bodyBase64?": "string",
}  # fmt: skip
DEAD = {**MESSAGE, "originTopic": "string?", "originMsgId": "string?"}
SENT = {"sendStatus": "string", "msgId": "string", "offsetMsgId": "string", **QUEUE, "queueOffset": "integer"}
MOVED = {"group": "string", **QUEUE, "before": "integer?", "offset": "integer"}
SETTING = {"brokerName": "string", "key": "string", "value": "string"}
CHECK = {
    "check": "string", "status": "string", "value": "number?", "subject": "string", "warn": "number",
    "crit": "number", "values": "{number}",
}  # fmt: skip
STORE = {"directory": "string", "passed": "boolean", "report": "[string]"}
QUOTA = {"address": "string", "kind": "string", "name": "string", "quotas": "string"}

VERB_SHAPES: dict[str, dict[str, Any]] = {
    "lag": {
        "group": "string", "backlog": "integer", "behindMs": "integer", "members?": "integer", "topics?": "[string]",
        "topic?": "string", "brokerName?": "string", "queueId?": "integer", "brokerOffset?": "integer",
        "consumerOffset?": "integer", "lastTimestamp?": "integer", "lastTime?": "time?",
    },
    "tail": MESSAGE,
    "send": SENT,
    "offsets show": {
        "group": "string", **QUEUE, "first": "integer?", "offset": "integer", "end": "integer", "backlog": "integer",
    },
    "offsets reset": MOVED,
    "offsets copy": MOVED,
    "offsets export": {"group": "string", **QUEUE, "offset": "integer"},
    "offsets import": MOVED,
    "dlq list": {"group": "string", "topic": "string", "messages": "integer"},
    "dlq show": DEAD,
    "dlq resend": {"originMsgId": "string", **SENT},
    "dlq export": DEAD,
    "config get": SETTING,
    "config set": {**SETTING, "before": "string"},
    "config diff": {"key": "string", "values": "{string?}"},
    "message": MESSAGE,
    "trace": {
        "msgId": "string", "timestamp": "integer", "time": "time?", "event": "string", "subject": "string",
        "host": "string", "status": "string", "costMs": "integer?",
    },
    "health": {
        "kind": "string", "name": "string", "address": "string", "ok": "boolean", "milliseconds": "number",
        "error": "string?",
    },
    "dledger members": {
        "group": "string", "member": "string", "address": "string", "broker": "string?", "reachable": "boolean",
        "role": "string?", "leader": "string?", "term": "integer?", "first": "integer?", "last": "integer?",
        "committed": "integer?", "lag": "integer?",
    },
    "check lag": CHECK,
    "check disk": CHECK,
    "check replication": CHECK,
    "check registration": CHECK,
    "doctor": {
        "severity": "string", "code": "string", "subject": "string", "what": "string", "why": "string",
        "mend": "string",
    },
    "top": {
        "kind": "string", "name": "string", "brokerId?": "integer", "address?": "string", "responds?": "boolean",
        "inTps?": "number?", "outTps?": "number?", "messages?": "integer", "sendQueue?": "integer",
        "pullQueue?": "integer", "writeMs?": "integer", "writeP99Ms?": "integer?",
        "syncP99Ms?": "number?", "loopLagMs?": "number?",
        "diskPercent?": "number", "backlog?": "integer",
        "behindMs?": "integer", "grew?": "integer?",
    },
    "bench": {
        "kind": "string", "connections": "integer", "window": "integer", "size": "integer", "messages": "integer",
        "seconds": "number",
        "messagesPerSecond": "number", "mebibytesPerSecond": "number", "p50Ms": "number?", "p90Ms": "number?",
        "p99Ms": "number?", "maxMs": "number?", "errors": "integer",
    },
    "backup": {
        "path": "string", "brokerName": "string", "topics": "integer", "groups": "integer", "offsets": "integer",
        "accounts": "integer",
    },
    "restore": {
        "kind": "string", "name": "string", "brokerName": "string?", "result": "string", "before": "any",
        "after": "any",
    },
    "store verify": STORE,
    "store dump": {"directory": "string", "line": "string"},
    "store rebuild": STORE,
    "explain": {"code": "integer", "name": "string", "meaning": "string", "action": "string"},
    "completion": {"shell": "string", "script": "string"},
    "context add": CONTEXT,
    "context use": CONTEXT,
    "context list": CONTEXT,
    "context remove": CONTEXT,
    "quota set": QUOTA,
    "quota remove": QUOTA,
    "quota list": QUOTA,
    "selftest": {"directory": "string", "passed": "boolean", "report": ["string"]},
}  # fmt: skip
