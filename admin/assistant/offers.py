"""What is offered to an assistant, as plain data: every command and verb is in READING, CHANGING or LEFT_OUT."""

from __future__ import annotations

READING: tuple[str, ...] = (
    "lag",
    "tail",
    "offsets show",
    "pop show",
    "dlq list",
    "dlq show",
    "config get",
    "config diff",
    "message",
    "trace",
    "health",
    "version",
    "dledger members",
    "check lag",
    "check disk",
    "check replication",
    "check registration",
    "doctor",
    "top",
    "explain",
    "quota list",
    "topicList",
    "topicRoute",
    "topicStatus",
    "clusterList",
    "brokerStatus",
    "consumerConnection",
    "producerConnection",
    "producer",
    "consumerStatus",
    "getConsumerConfig",
    "getNamesrvConfig",
    "getAclConfig",
    "statsAll",
    "queryMsgByKey",
)

CHANGING: tuple[str, ...] = (
    "send",
    "offsets reset",
    "offsets copy",
    "pop release",
    "dlq resend",
    "config set",
    "dledger transfer",
    "quota set",
    "quota remove",
    "updateTopic",
    "updateTopicPerm",
    "deleteTopic",
    "updateSubGroup",
    "deleteSubGroup",
    "updateOrderConf",
    "updateKvConfig",
    "deleteKvConfig",
    "updateNamesrvConfig",
    "wipeWritePerm",
    "addWritePerm",
)

_FILES = "it reads or writes files of this machine"
_LOAD = "it is a load or a measurement that takes long"
_SECRETS = "accounts and their secrets are no matter for an assistant"
_BY_ITSELF = "brokers do it by themselves"

# Why the others are not offered; "as X" where X does the same.
LEFT_OUT: dict[str, str] = {
    "offsets export": "as offsets show",
    "offsets import": _FILES,
    "dlq export": "as dlq show",
    "dledger replace": "it takes up to an hour, with steps that a person does by hand",
    "backup": _FILES,
    "restore": _FILES,
    "bench": _LOAD,
    "store verify": _FILES,
    "store dump": _FILES,
    "store rebuild": _FILES,
    "completion": "it is for shells",
    "context add": _SECRETS,
    "context use": "a server stays at one cluster",
    "context list": "a server stays at one cluster",
    "context remove": "a server stays at one cluster",
    "selftest": _FILES,
    "mcp": "it is this server",
    "topicClusterList": "as topicRoute",
    "updateBrokerConfig": "as config set",
    "getBrokerConfig": "as config get",
    "queryMsgById": "as message",
    "queryMsgByUniqueKey": "as message",
    "queryMsgByOffset": "as tail",
    "queryMsgTraceById": "as trace",
    "printMsg": "as tail",
    "printMsgByQueue": "as tail",
    "consumeMessage": "as tail",
    "queryCq": "it shows entries of queues as the store keeps them",
    "brokerConsumeStats": "as lag",
    "consumerProgress": "as lag",
    "cloneGroupOffset": "as offsets copy",
    "resetOffsetByTime": "as offsets reset",
    "skipAccumulatedMessage": "as offsets reset",
    "allocateMQ": "it calculates what consumers would do",
    "startMonitoring": "it never ends",
    "sendMessage": "as send",
    "sendMsgStatus": _LOAD,
    "checkMsgSendRT": _LOAD,
    "clusterRT": _LOAD,
    "cleanExpiredCQ": _BY_ITSELF,
    "deleteExpiredCommitLog": _BY_ITSELF,
    "cleanUnusedTopic": _BY_ITSELF,
    "updateAclConfig": _SECRETS,
    "deleteAclConfig": _SECRETS,
    "updateGlobalWhiteAddr": _SECRETS,
    "clusterAclConfigVersion": "as getAclConfig",
    "exportMetadata": _FILES,
    "exportConfigs": _FILES,
    "exportMetrics": _FILES,
}

# Options that a tool does not have, by their long names: those that never end, that read files, or only shape text. A
# regular expression may take any time for one body, and nothing interrupts it.
HIDDEN: dict[str, frozenset[str]] = {
    "tail": frozenset({"follow", "format", "grep"}),
    "top": frozenset({"once"}),
    "health": frozenset({"quiet"}),
    "send": frozenset({"file", "lines", "count", "rate"}),
    "clusterList": frozenset({"interval"}),
    "topicRoute": frozenset({"list"}),
}
# Words that every call has.
FIXED: dict[str, tuple[str, ...]] = {"top": ("--once",)}
# Arguments that a tool needs, although the command line does not.
NEEDED: dict[str, frozenset[str]] = {"send": frozenset({"BODY"})}
