"""The JSON that each command writes: the fields of one item, from which its schema file is made (`schema`).

    "name": kind      the field is always there; "name?" may be missing; "*" allows more fields of the protocol
    kinds             string, integer, number, boolean, object, any; time is ISO 8601 with zone; [kind] is a list,
                      {kind} is a map of texts to it; kind? may be null; a dict is an object with these fields

JSON is an interface: a field keeps its name and kind, and new ones may appear. Tests compare what commands write with
this.
"""

from __future__ import annotations

from triomq.admin.message_shapes import MESSAGE, QUEUE, SENT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

Shape = dict[str, "Any"]

OFFSET: Shape = {"group": "string", **QUEUE, "offset": "integer"}
PROGRESS: Shape = {
    "brokerOffset": "integer",
    "consumerOffset": "integer",
    "diff": "integer",
    "lastTimestamp": "integer",
    "lastTime": "time?",
}
TRACKS = [{"consumerGroup": "string", "trackType": "string", "exceptionDesc": "string?"}]
CONSUMED: Shape = {
    "order": "boolean",
    "autoCommit": "boolean",
    "consumeResult": "string?",
    "remark": "string?",
    "spentTimeMills": "integer",
}
GROUP: Shape = {
    "groupName": "string",
    "consumeEnable": "boolean",
    "consumeFromMinEnable": "boolean",
    "consumeBroadcastEnable": "boolean",
    "retryQueueNums": "integer",
    "retryMaxTimes": "integer",
    "brokerId": "integer",
    "whichBrokerWhenConsumeSlowly": "integer",
    "notifyConsumerIdsChangedEnable": "boolean",
}
RESET: Shape = {
    **{name: kind for name, kind in OFFSET.items() if name != "offset"},
    "offset?": "integer",
    "brokerOffset?": "integer",
    "consumerOffset?": "integer",
    "timestampOffset?": "integer",
    "rollbackOffset?": "integer",
}
KV: Shape = {"namespace": "string", "key": "string"}
CLEANED: Shape = {"brokers": "[string]", "success": "boolean"}
PERM: Shape = {"nameServer": "string", "brokerName": "string", "topics": "integer"}
FILE: Shape = {"path": "string"}
# What --dry-run writes, whatever the command.
PLAN: Shape = {
    "action": "string",
    "text": "string",
    "times": "integer",
    "address?": "string",
    "before?": "any",
    "after?": "any",
    "topic?": "string",
    "group?": "string",
    "broker?": "string",
    "queueId?": "integer",
    "queues?": "integer",
    "messages?": "integer",
    "groups?": "[string]",
    "members?": "integer",
    "key?": "string",
    "accessKey?": "string",
    "bytes?": "integer",
    "path?": "string",
    "confirm?": "string",
}


def optional(shape: Shape) -> Shape:
    return {name if name.endswith("?") else f"{name}?": kind for name, kind in shape.items()}


SHAPES: dict[str, Shape] = {
    "updateTopic": {
        "topicName": "string",
        "readQueueNums": "integer",
        "writeQueueNums": "integer",
        "perm": "integer",
        "topicFilterType": "string",
        "topicSysFlag": "integer",
        "order": "boolean",
    },
    "deleteTopic": {"topic": "string", "cluster": "string", "deleted": "boolean"},
    "updateSubGroup": GROUP,
    "deleteSubGroup": {"group": "string", "deleted": "boolean"},
    "updateBrokerConfig": {"address": "string", "key": "string", "value": "string"},
    "updateTopicPerm": {"topic": "string", "oldPerm": "integer", "newPerm": "integer"},
    "topicRoute": {
        "brokerDatas": [{"brokerName": "string", "cluster": "string", "brokerAddrs": "{string}", "*": "any"}],
        "queueDatas": [
            {
                "brokerName": "string",
                "readQueueNums": "integer",
                "writeQueueNums": "integer",
                "perm": "integer",
                "*": "any",
            }
        ],
        "filterServerTable?": "object?",
        "orderTopicConf?": "string?",
        "*": "any",
    },
    "topicStatus": {
        "brokerName": "string",
        "queueId": "integer",
        "minOffset": "integer",
        "maxOffset": "integer",
        "lastUpdateTimestamp": "integer",
        "lastUpdate": "time?",
    },
    "topicClusterList": {"topic": "string", "cluster": "string"},
    "brokerStatus": {"address": "string", "runtime": "{string}"},
    "queryMsgById": {
        **optional(MESSAGE),
        "tracks?": TRACKS,
        **optional(CONSUMED),
        "originalMsgId?": "string",
        "sendStatus?": "string",
    },
    "queryMsgByKey": MESSAGE,
    "queryMsgByUniqueKey": {**optional(MESSAGE), "tracks?": TRACKS, **optional(CONSUMED)},
    "queryMsgByOffset": {**MESSAGE, "tracks": TRACKS},
    "queryMsgTraceById": {
        "msgId": "string",
        "type": "string",
        "group": "string",
        "clientHost": "string",
        "timestamp": "integer",
        "time": "time?",
        "costTime": "integer",
        "status": "string",
    },
    "printMsg": MESSAGE,
    "printMsgByQueue": {**optional(MESSAGE), "tag?": "string", "count?": "integer"},
    "sendMsgStatus": {"rt": "integer", **SENT},
    "brokerConsumeStats": {
        "topic": "string",
        "group": "string",
        "brokerName": "string",
        "queueId": "integer",
        **PROGRESS,
    },
    "producerConnection": {
        "group": "string",
        "clientId": "string",
        "clientAddr": "string",
        "language": "string",
        "version": "string",
    },
    "consumerConnection": {
        "group": "string",
        "connectionSet": "[object]",
        "subscriptionTable": "{object}",
        "consumeType": "string?",
        "messageModel": "string?",
        "consumeFromWhere": "string?",
        "*": "any",
    },
    "consumerProgress": {
        "group": "string",
        "count?": "integer",
        "version?": "string",
        "type?": "string?",
        "model?": "string?",
        "tps?": "integer",
        "diffTotal?": "integer",
        **optional(QUEUE),
        **optional(PROGRESS),
        "clientIp?": "string?",
    },
    "consumerStatus": {
        "clientId": "string",
        "mqTable": "[object]",
        "properties": "{string}",
        "statusTable": "{object}",
        "subscriptionSet": "[object]",
        "jstack?": "string",
        "*": "any",
    },
    "cloneGroupOffset": OFFSET,
    "producer": {
        "group": "string",
        "clientId": "string",
        "language": "string",
        "lastUpdateTimestamp": "integer",
        "remoteIP": "string",
        "version": "integer",
    },
    "clusterList": {
        "cluster": "string",
        "brokerName": "string",
        "brokerId?": "integer",
        "address?": "string",
        "version?": "string",
        "inTps?": "number",
        "outTps?": "number",
        "pageCacheLockTimeMills?": "string",
        "hours?": "string",
        "space?": "string",
        "runtime?": "{string}?",
        "inTotalYest?": "integer",
        "outTotalYest?": "integer",
        "inTotalToday?": "integer",
        "outTotalToday?": "integer",
    },
    "topicList": {"topic": "string", "cluster?": "string", "groups?": "[string]"},
    "updateKvConfig": {**KV, "value": "string"},
    "deleteKvConfig": {**KV, "deleted": "boolean"},
    "wipeWritePerm": PERM,
    "addWritePerm": PERM,
    "resetOffsetByTime": RESET,
    "skipAccumulatedMessage": RESET,
    "updateOrderConf": {"topic": "string", "method": "string", "orderConf": "string"},
    "cleanExpiredCQ": CLEANED,
    "deleteExpiredCommitLog": CLEANED,
    "cleanUnusedTopic": CLEANED,
    "startMonitoring": {"group": "string", "diffTotal": "integer"},
    "statsAll": {
        "topic": "string",
        "group": "string?",
        "accumulation": "integer",
        "inTps": "number",
        "outTps": "number?",
        "inMsg24Hour": "integer",
        "outMsg24Hour": "integer?",
    },
    "allocateMQ": {"result": "{[object]}"},
    "checkMsgSendRT": {"brokerName": "string?", "queueId": "integer?", "success": "boolean", "rt": "integer"},
    "clusterRT": {
        "cluster": "string",
        "brokerName": "string",
        "rt": "number",
        "successCount": "integer",
        "failCount": "integer",
    },
    "getNamesrvConfig": {"nameServer": "string", "settings": "{string}"},
    "updateNamesrvConfig": {"nameServers": "[string]", "key": "string", "value": "string"},
    "getBrokerConfig": {"address": "string", "settings": "{string}"},
    "getConsumerConfig": {"cluster": "string", "brokerName": "string", **GROUP, "*": "any"},
    "queryCq": {
        "maxQueueIndex": "integer",
        "minQueueIndex": "integer",
        "queueData?": "[object]?",
        "filterData?": "string?",
        "subscriptionData?": "object?",
        "*": "any",
    },
    "sendMessage": SENT,
    "consumeMessage": MESSAGE,
    "updateAclConfig": {"accessKey": "string", "updated": "boolean"},
    "deleteAclConfig": {"accessKey": "string", "deleted": "boolean"},
    "clusterAclConfigVersion": {
        "cluster": "string",
        "brokerName": "string",
        "address": "string",
        "path": "string",
        "version": "integer?",
        "timestamp": "integer",
        "time": "time?",
    },
    "updateGlobalWhiteAddr": {"globalWhiteRemoteAddresses": "[string]", "updated": "boolean"},
    "getAclConfig": {
        "address": "string",
        "accessKey": "string",
        "whiteRemoteAddress": "string?",
        "admin": "boolean",
        "defaultTopicPerm": "string?",
        "defaultGroupPerm": "string?",
        "topicPerms": "[string]?",
        "groupPerms": "[string]?",
    },
    "exportMetadata": FILE,
    "exportConfigs": FILE,
    "exportMetrics": FILE,
}


def shape_of(name: str) -> Shape:
    """Return the fields of a command or a verb."""
    if name not in SHAPES:
        from triomq.admin.verb_shapes import VERB_SHAPES

        return VERB_SHAPES[name]
    return SHAPES[name]
