"""Fields of messages, queues and send results, which commands and verbs write alike; see `shapes`."""

from __future__ import annotations

QUEUE = {"topic": "string", "brokerName": "string", "queueId": "integer"}
MESSAGE = {
    "topic": "string",
    "brokerName": "string?",
    "queueId": "integer",
    "queueOffset": "integer",
    "commitLogOffset": "integer",
    "msgId": "string",
    "offsetMsgId": "string",
    "tags": "string?",
    "keys": "string?",
    "reconsumeTimes": "integer",
    "bornTimestamp": "integer",
    "bornTime": "time?",
    "storeTimestamp": "integer",
    "storeTime": "time?",
    "bornHost": "string",
    "storeHost": "string",
    "sysFlag": "integer",
    "flag": "integer",
    "properties": "{string}",
    "body?": "string",
    "bodyBase64?": "string",
}
SENT = {
    "sendStatus": "string",
    "msgId": "string",
    "offsetMsgId": "string",
    **QUEUE,
    "queueOffset": "integer",
}
