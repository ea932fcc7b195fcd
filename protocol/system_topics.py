"""Topic and group names with a special meaning, and the rules for names that users may choose.

Sources: TopicValidator, MixAll, TransactionalMessageUtil, TopicConfigManager, SubscriptionGroupManager of 4.9.7.
A broker's own topics (cluster name, broker name, trace topic, reply topic) depend on its configuration. They are not in
`SYSTEM_TOPICS`; the caller passes them as `more_system_topics`.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Final

from triomq.protocol.errors import RequestRefused

AUTO_CREATE_TOPIC: Final = "TBW102"  # the template for automatic creation
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
TRANS_HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANS_OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
UNDELIVERABLE_TOPIC: Final = "%DLQ%CID_RMQ_SYS_UNDELIVERABLE"  # TrioMQ's own
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT: Final = "OFFSET_MOVED_EVENT"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
LMQ_PREFIX: Final = "%LMQ%"
REPLY_TOPIC_POSTFIX: Final = "REPLY_TOPIC"

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANS_HALF_TOPIC,
        TRACE_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        UNDELIVERABLE_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)
NOT_ALLOWED_SEND_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANS_HALF_TOPIC,
        TRANS_OP_HALF_TOPIC,
        TRANS_CHECK_MAX_TIME_TOPIC,
        UNDELIVERABLE_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT,
    }
)

TOOLS_CONSUMER_GROUP: Final = "TOOLS_CONSUMER"
FILTERSRV_CONSUMER_GROUP: Final = "FILTERSRV_CONSUMER"
SELF_TEST_CONSUMER_GROUP: Final = "SELF_TEST_C_GROUP"
ONS_HTTP_PROXY_GROUP: Final = "CID_ONS-HTTP-PROXY"
ONS_PULL_GROUP: Final = "CID_ONSAPI_PULL"
ONS_PERMISSION_GROUP: Final = "CID_ONSAPI_PERMISSION"
ONS_OWNER_GROUP: Final = "CID_ONSAPI_OWNER"
TRANS_CONSUMER_GROUP: Final = "CID_RMQ_SYS_TRANS"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"  # created on use even without autoCreateSubscriptionGroup
DEFAULT_CONSUMER_GROUP: Final = "DEFAULT_CONSUMER"
CLIENT_INNER_PRODUCER_GROUP: Final = "CLIENT_INNER_PRODUCER"
SYSTEM_GROUPS: Final[tuple[str, ...]] = (
    TOOLS_CONSUMER_GROUP,
    FILTERSRV_CONSUMER_GROUP,
    SELF_TEST_CONSUMER_GROUP,
    ONS_HTTP_PROXY_GROUP,
    ONS_PULL_GROUP,
    ONS_PERMISSION_GROUP,
    ONS_OWNER_GROUP,
)

TOPIC_MAX_LENGTH: Final = 127
GROUP_MAX_LENGTH: Final = 255
_LEGAL_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")


class TopicRefused(RequestRefused, ValueError):
    """A topic name that a request must not use. `code` and `remark` are exactly those of RocketMQ."""

    def __init__(self, remark: str, code: int = 1) -> None:
        super().__init__(code, remark)


class TopicBlank(TopicRefused):
    """The name is missing or blank."""


class TopicIllegal(TopicRefused):
    """The name contains a character outside `%|a-zA-Z0-9_-`."""


class TopicTooLong(TopicRefused):
    """The name has more than 127 characters."""


class GroupTooLong(RequestRefused, ValueError):
    """The name has more than 255 characters."""

    def __init__(self, remark: str) -> None:
        super().__init__(1, remark)


class TopicReserved(TopicRefused):
    """The name is that of a system topic, which clients cannot create, change or delete."""


class TopicNotForSending(TopicRefused):
    """The topic is one that only the broker writes."""


def is_legal_name(name: str) -> bool:
    """Return whether the name has only characters that names of topics may have."""
    return _LEGAL_NAME.fullmatch(name) is not None


def check_topic_name(topic: str | None) -> None:
    """Raise a `TopicRefused` if the name is blank, has an illegal character or is longer than 127 characters."""
    if topic is None or not topic.strip():
        raise TopicBlank("The specified topic is blank.")
    if not is_legal_name(topic):
        raise TopicIllegal("The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$")
    if len(topic) > TOPIC_MAX_LENGTH:
        raise TopicTooLong("The specified topic is longer than topic max length.")


def check_group_length(group: str) -> None:
    """Raise `GroupTooLong` for a name of more than 255 characters (RocketMQ: Validators.checkGroup, which only clients
    call)."""
    if len(group) > GROUP_MAX_LENGTH:
        raise GroupTooLong(f"the group {group[:40]}... has {len(group)} characters, the longest is {GROUP_MAX_LENGTH}")


def check_topic_length(topic: str) -> None:
    """Raise `TopicTooLong` for a name of more than 127 characters; in a retry or dead letter topic the group may have
    255. Consumers choose the names of those, so nothing else looks at them."""
    if len(topic) <= TOPIC_MAX_LENGTH:
        return
    prefix = RETRY_PREFIX if topic.startswith(RETRY_PREFIX) else DLQ_PREFIX if topic.startswith(DLQ_PREFIX) else ""
    if not prefix or len(topic) > len(prefix) + GROUP_MAX_LENGTH:
        raise TopicTooLong(f"the topic {topic[:40]}... has {len(topic)} characters, the longest is {TOPIC_MAX_LENGTH}")


def is_system_topic(topic: str, more_system_topics: Container[str] = ()) -> bool:
    """Return True for the fixed system topics, for names with the system prefix, and for `more_system_topics`."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX) or topic in more_system_topics


def needs_no_config(topic: str) -> bool:
    """Return whether a topic lives although no table of topics has it: a system topic, or a light one (%LMQ%)."""
    return is_lmq(topic) or is_system_topic(topic)


def is_system_group(group: str) -> bool:
    """Return True for the groups of the broker and of RocketMQ's tools."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def check_not_system_topic(topic: str, more_system_topics: Container[str] = ()) -> None:
    """Raise `TopicReserved` for a system topic. Processors call this before they create, change or delete a topic."""
    if is_system_topic(topic, more_system_topics):
        raise TopicReserved(f"The topic[{topic}] is conflict with system topic.")


def check_may_send(topic: str) -> None:
    """Raise `TopicNotForSending` (code 16) for topics that only the broker writes."""
    if topic in NOT_ALLOWED_SEND_TOPICS:
        raise TopicNotForSending(f"Sending message to topic[{topic}] is forbidden.", code=16)


def retry_topic(group: str) -> str:
    """Return `%RETRY%<group>`, the topic of messages that the group failed to consume and will retry."""
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    """Return `%DLQ%<group>`, the topic of messages that the group will not retry any more (dead letters)."""
    return DLQ_PREFIX + group


def reply_topic(cluster: str) -> str:
    """Return `<cluster>_REPLY_TOPIC`, the topic of replies in the request-reply pattern."""
    return f"{cluster}_{REPLY_TOPIC_POSTFIX}"


def is_retry_topic(topic: str) -> bool:
    """Return whether `topic` is a `%RETRY%<group>` topic."""
    return topic.startswith(RETRY_PREFIX)


def is_lmq(name: str | None) -> bool:
    """Return whether `name` is that of a light message queue or of its group, `%LMQ%<name>`."""
    return name is not None and name.startswith(LMQ_PREFIX)


def group_of_retry_topic(topic: str) -> str:
    """Return the group of a `%RETRY%<group>` topic."""
    return topic[len(RETRY_PREFIX) :]
