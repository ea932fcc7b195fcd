"""The commands: one module per subject, one function per command, found by name when it runs."""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from triomq.admin.run import Run

# Module -> its commands; the function of `topicRoute` is `topic_route`.
MODULES: dict[str, tuple[str, ...]] = {
    "topics": (
        "updateTopic",
        "deleteTopic",
        "updateTopicPerm",
        "topicRoute",
        "topicStatus",
        "topicClusterList",
        "topicList",
        "updateOrderConf",
        "allocateMQ",
    ),
    "rates": ("statsAll",),
    "groups": ("updateSubGroup", "deleteSubGroup", "getConsumerConfig"),
    "progress": ("consumerProgress", "brokerConsumeStats", "consumerConnection", "producerConnection", "producer"),
    "consumer_status": ("consumerStatus", "startMonitoring"),
    "offsets": ("cloneGroupOffset", "resetOffsetByTime", "skipAccumulatedMessage"),
    "brokers": (
        "clusterList",
        "brokerStatus",
        "getBrokerConfig",
        "updateBrokerConfig",
        "cleanExpiredCQ",
        "deleteExpiredCommitLog",
        "cleanUnusedTopic",
    ),
    "name_servers": (
        "updateKvConfig",
        "deleteKvConfig",
        "wipeWritePerm",
        "addWritePerm",
        "getNamesrvConfig",
        "updateNamesrvConfig",
    ),
    "messages": ("queryMsgById", "queryMsgByKey", "queryMsgByUniqueKey", "queryMsgByOffset"),
    "printing": ("printMsg", "printMsgByQueue", "consumeMessage"),
    "queue_entries": ("queryCq",),
    "traces": ("queryMsgTraceById",),
    "sending": ("sendMessage", "sendMsgStatus", "checkMsgSendRT", "clusterRT"),
    "acl": (
        "updateAclConfig",
        "deleteAclConfig",
        "clusterAclConfigVersion",
        "updateGlobalWhiteAddr",
        "getAclConfig",
    ),
    "exports": ("exportMetadata", "exportConfigs", "exportMetrics"),
}

_SPECIAL = {
    "allocateMQ": "allocate_mq",
    "cleanExpiredCQ": "clean_expired_cq",
    "checkMsgSendRT": "check_msg_send_rt",
    "clusterRT": "cluster_rt",
}


def function_name(command: str) -> str:
    """Return `topic_route` for `topicRoute`."""
    return _SPECIAL.get(command) or "".join([f"_{each.lower()}" if each.isupper() else each for each in command])


def function_of(command: str) -> Callable[[Run], None]:
    """Return the function that runs a command of the table."""
    for module, commands in MODULES.items():
        if command in commands:
            function: Callable[[Run], None] = getattr(
                import_module(f"triomq.admin.commands.{module}"), function_name(command)
            )
            return function
    raise LookupError(command)
