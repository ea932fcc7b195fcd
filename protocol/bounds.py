"""What a peer can choose, and how far: the types of the fields of header and body records.

A field of a request names one of these types instead of `str` or `int`. The type carries the bound that the decoder
enforces (`msgspec.Meta`) and a `Bound`, which says what the value is, what else bounds it (a setting, a processor),
what happens beyond and which test shows it. docs/internals/limits.md is made from them, and a field without one fails
the taste tests.

    topic: TopicName
    suspend_timeout_millis: HoldMillis

Texts have two kinds of bounds. The decoder refuses what no client sends, far above what is legal. What is legal is
checked by processors, which know RocketMQ's response for each case.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

NAME_CHARACTERS: Final = 1024
"""The longest name that a decoder takes. RocketMQ's clients make topics of 127 characters and groups of 255 at most."""
TEXT_CHARACTERS: Final = 65_536
"""The longest other text in a field: lists of names or addresses, values of the key-value table."""
TAGS: Final = 10_923
"""The most tags that fit an expression of 32,767 characters, with one character each and "||" between them."""

NUMBER: Final = "the format's own: a Java int or long holds no more"
NAME: Final = "far beyond the 127 characters of a topic and 255 of a group that Java's Validators pass"
WORD: Final = "far beyond the tens of characters that clients send: 10.0.0.1:10911, 10.0.0.1@4711#99, TAG"
BY_HAND: Final = "far beyond what an operator writes as an option of mqadmin"
PROPERTY: Final = "RocketMQ's own: the bytes of all properties of a message; Java makes ids of 32 characters"
SUBSCRIBED: Final = "far beyond a subscription written by hand: some tags, or a condition of SQL92"
IN_FRAME: Final = "RocketMQ's own: com.rocketmq.remoting.frameMaxLength is 16 MiB in brokers and clients"
CLAMPED: Final = "served: RocketMQ clamps, too, so clients pull, look or deliver in more steps"

BROKER: Final = "tests/broker/"
REFUSED: Final = "refused; the remark names the field"


FORMS: Final = ("far beyond ", "served: ", "RocketMQ's own: ", "the format's own: ")
"""How the reason begins for which no client that works is refused: it is far beyond a client and its default, or met by
slower service, clamping and forgetting; RocketMQ has the same bound or cannot carry more; or the bytes hold no more."""


class Bound(Struct, frozen=True):
    """The declaration of one bound. `limit`: in words, if it is not the one of the decoder; `key`: the setting that
    holds it; `beyond`: what happens to a value outside of it; `test`: the test that shows that, None for the systematic
    tests of the decoders; `clients`: why no client that works is refused, which begins with one of FORMS."""

    what: str
    limit: str = ""
    key: str = ""
    beyond: str = REFUSED
    test: str | None = None
    clients: str = ""


def in_frame(what: str) -> Bound:
    """Return the bound of what only the frame bounds: it is read once, and takes no more memory than its text."""
    return Bound(
        what,
        limit="what fits a frame",
        key="frameMaxLength",
        beyond="the connection is closed",
        test="tests/protocol/test_protocol_frame_decoder.py::test_what_is_no_frame_is_refused_with_the_reason",
        clients=IN_FRAME,
    )


def number(what: str, beyond: str) -> Bound:
    """Return the bound of what only the type of Java bounds."""
    return Bound(what, beyond=beyond, clients=NUMBER)


# -- whole numbers -----------------------------------------------------------------------------------------------------

Int32 = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
"""A Java int: decimal text of a signed 32 bit number."""
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
"""A Java long. Fields of requests use one of the types below instead."""

QueueId = Annotated[
    Int32, number("a queue of the topic", beyond="a queue that the topic lacks is refused or empty, and never made")
]
QueueCount = Annotated[
    Int32,
    Bound(
        "queues of a topic",
        limit="0 to 65,536",
        test=BROKER + "test_broker_admin_processors.py::test_topic_update_refusals",
        clients="far beyond 8 queues, the default of mqadmin updateTopic, and 4 of Java clients",
    ),
]
RetryQueueCount = Annotated[
    Int32,
    Bound(
        "queues of the retry topic of a group",
        limit="up to 65,536; none or fewer: no retries",
        test=BROKER + "test_broker_bounds.py::test_a_group_with_too_many_retry_queues_is_refused",
        clients="far beyond 1, the default of SubscriptionGroupConfig",
    ),
]
WantedQueueCount = Annotated[
    Int32,
    Bound(
        "queues of a topic that the send makes",
        limit="those of the template topic",
        key="defaultTopicQueueNums",
        beyond="clamped",
        test=BROKER + "test_broker_bounds.py::test_a_send_makes_no_more_queues_than_the_template_has",
        clients="served: RocketMQ makes no more, either, and the client learns the number from the route",
    ),
]
RegisteredQueueCount = Annotated[Int32, number("queues of a registered topic", beyond="refused")]
PullCount = Annotated[
    Int32,
    Bound(
        "messages of one pull",
        limit="by messages and bytes, in memory and on disk",
        key="maxTransferCountOnMessageInMemory",
        beyond="clamped",
        test="tests/store/test_store_reading.py::test_a_read_returns_as_many_messages_as_the_limit_and_no_more",
        clients=CLAMPED,
    ),
]
FoundCount = Annotated[
    Int32,
    Bound(
        "messages with one key",
        limit="64",
        key="maxMsgsNumBatch",
        beyond="clamped",
        test=BROKER + "test_broker_bounds.py::test_a_query_returns_no_more_messages_than_the_setting_says",
        clients="RocketMQ's own: maxMsgsNumBatch, and mqadmin queryMsgByKey asks for 64",
    ),
]
EntryCount = Annotated[
    Int32,
    Bound(
        "entries of a consume queue",
        limit="0 to 16,000",
        beyond="clamped",
        test=BROKER + "test_broker_bounds.py::test_a_query_for_queue_entries_is_clamped",
        clients="far beyond 10, the default of mqadmin queryCq",
    ),
]
ReconsumeTimes = Annotated[Int32, number("times a message was consumed", beyond="refused; compared with the limit")]
DelayLevel = Annotated[
    Int32,
    Bound(
        "level of delay",
        limit="levels of messageDelayLevel",
        key="messageDelayLevel",
        beyond="clamped to the last level; below 0: a dead letter",
        test=BROKER + "test_broker_bounds.py::test_a_delay_level_beyond_the_last_is_the_last",
        clients=CLAMPED,
    ),
]
Permission = Annotated[
    Int32,
    Bound(
        "permission bits",
        limit="0 to 7",
        test=BROKER + "test_broker_admin_processors.py::test_topic_update_refusals",
        clients="the format's own: three bits",
    ),
]
RegisteredPermission = Annotated[Int32, number("permission bits", beyond="refused; clients get them as they are")]
Flags = Annotated[Int32, number("flags", beyond="refused; unknown bits mean nothing and are stored as they are")]
Decision = Annotated[
    Int32,
    Bound(
        "the end of a transaction",
        limit="0, 8 or 12",
        test=BROKER + "test_broker_transactions.py::test_a_request_that_says_neither_commit_nor_rollback_is_refused",
        clients="the format's own: the three ends of a transaction",
    ),
]
Checksum = Annotated[Int32, number("a checksum", beyond="refused; one that does not match is refused, too")]

QueueOffset = Annotated[Int64, number("a place in a queue", beyond="refused; outside of the queue nothing is found")]
PhysicalOffset = Annotated[Int64, number("a place in the log", beyond="refused; outside of the log nothing is found")]
Timestamp = Annotated[Int64, number("a time", beyond="refused; any time is taken, and only compared or stored")]
HoldMillis = Annotated[
    Int64,
    Bound(
        "time for which a pull may be held",
        limit="0 to 120,000 ms",
        beyond="clamped",
        test=BROKER + "test_broker_long_polling.py::test_no_pull_is_held_longer_than_the_longest_hold",
        clients="far beyond 20,000 ms, the longest default of Java's consumers",
    ),
]
ReceiveCount = Annotated[
    Int32,
    Bound(
        "messages of one receive",
        limit="1 to 32",
        beyond="refused as INVALID_PARAMETER",
        test=BROKER + "test_broker_pop.py::test_a_receive_that_asks_for_what_it_may_not_is_refused",
        clients="RocketMQ's own: PopMessageProcessor takes no more",
    ),
]
InvisibleMillis = Annotated[
    Int64,
    Bound(
        "time for which a received message is invisible",
        limit="1 s to 12 h",
        beyond="refused as INVALID_PARAMETER",
        test=BROKER + "test_broker_pop.py::test_a_receive_that_asks_for_what_it_may_not_is_refused",
        clients="RocketMQ's own: its proxy takes 10 s to 12 h, and its push consumer 5 s to 300 s",
    ),
]
SubscriptionVersion = Annotated[Int64, number("version of a subscription", beyond="refused; the newest one counts")]
ShareCount = Annotated[Int32, number("clients with which one shares its queues (POP)", beyond="refused")]
BrokerId = Annotated[Int64, number("id of a broker", beyond="refused")]
TagCode = Annotated[Int64, number("the hash of a tag", beyond="refused")]
TableVersion = Annotated[Int64, number("version of a table", beyond="refused; only compared")]

# -- texts -------------------------------------------------------------------------------------------------------------

TopicName = Annotated[str, Meta(max_length=NAME_CHARACTERS), Bound("a topic", clients=NAME)]
GroupName = Annotated[str, Meta(max_length=NAME_CHARACTERS), Bound("a group", clients=NAME)]
BrokerName = Annotated[str, Meta(max_length=NAME_CHARACTERS), Bound("a broker", clients=NAME)]
ClusterName = Annotated[str, Meta(max_length=NAME_CHARACTERS), Bound("a cluster", clients=NAME)]
ClientId = Annotated[str, Meta(max_length=NAME_CHARACTERS), Bound("a client", clients=WORD)]
Address = Annotated[str, Meta(max_length=NAME_CHARACTERS), Bound("an address", clients=WORD)]
AccountName = Annotated[str, Meta(max_length=NAME_CHARACTERS), Bound("an account", clients=BY_HAND)]
Secret = Annotated[str, Meta(max_length=NAME_CHARACTERS), Bound("a secret key", clients=BY_HAND)]
Namespace = Annotated[
    str, Meta(max_length=NAME_CHARACTERS), Bound("a namespace of the key-value table", clients=BY_HAND)
]
TableKey = Annotated[str, Meta(max_length=NAME_CHARACTERS), Bound("a key of the key-value table", clients=NAME)]
ClassName = Annotated[str, Meta(max_length=NAME_CHARACTERS), Bound("a class", clients=BY_HAND)]
FilterType = Annotated[str, Meta(max_length=NAME_CHARACTERS), Bound("a kind of filter", clients=WORD)]
ExpressionType = Annotated[
    str, Meta(max_length=NAME_CHARACTERS), Bound("TAG, SQL92 or another kind of expression", clients=WORD)
]
PermissionText = Annotated[str, Meta(max_length=NAME_CHARACTERS), Bound("a permission", clients=BY_HAND)]
EnumName = Annotated[str, Meta(max_length=NAME_CHARACTERS), Bound("a member of an enumeration, by name", clients=WORD)]
EnumOrdinal = Annotated[
    Int64, number("a member of an enumeration, by number", beyond="refused; unknown ones count as the usual one")
]
FilePath = Annotated[
    str, Meta(max_length=4096), Bound("a file", beyond="refused; so are files that are not in use", clients=BY_HAND)
]

ReceiptText = Annotated[str, Meta(max_length=2048), Bound("a receipt handle", clients=WORD)]
AttemptId = Annotated[str, Meta(max_length=NAME_CHARACTERS), Bound("an attempt of an ordered receive", clients=WORD)]
AckBits = Annotated[
    str,
    Meta(max_length=64),
    Bound("bits of acknowledged messages", clients="far beyond 32 bits as base64: a receive returns 32 messages"),
]

MessageId = Annotated[str, Meta(max_length=32_767), Bound("a message", clients=PROPERTY)]
MessageKey = Annotated[str, Meta(max_length=32_767), Bound("a key of messages", clients=PROPERTY)]
StatsName = Annotated[
    str,
    Meta(max_length=4096),
    Bound("a counter", clients="far beyond topic@group, 383 characters with the longest names of Java's Validators"),
]
TableValue = Annotated[
    str,
    Meta(max_length=TEXT_CHARACTERS),
    Bound(
        "a value of the key-value table",
        clients="far beyond mqadmin updateOrderConf: broker-a:8;broker-b:8 of a thousand brokers",
    ),
]
GroupList = Annotated[str, Meta(max_length=TEXT_CHARACTERS), Bound("groups, separated by commas", clients=BY_HAND)]
AddressList = Annotated[str, Meta(max_length=TEXT_CHARACTERS), Bound("addresses, separated by commas", clients=BY_HAND)]
ResourceList = Annotated[
    str, Meta(max_length=TEXT_CHARACTERS), Bound("permissions, separated by commas", clients=BY_HAND)
]
Tag = Annotated[str, Meta(max_length=32_767), Bound("a tag", clients=SUBSCRIBED)]
PropertiesText = Annotated[
    str,
    Bound(
        "properties of a message",
        limit="32,767 bytes, stored",
        beyond="refused as MESSAGE_ILLEGAL",
        test=BROKER + "test_broker_bounds.py::test_properties_beyond_the_longest_are_refused",
        clients=PROPERTY,
    ),
]
Expression = Annotated[
    str,
    Bound(
        "an expression",
        limit="32,767 characters",
        beyond="refused",
        test=BROKER + "test_broker_filter_bounds.py::test_an_expression_that_is_too_long_is_refused",
        clients=SUBSCRIBED,
    ),
]
