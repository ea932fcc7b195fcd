"""Numbers in a remoting frame: request codes, response codes, languages and versions.

Source of the facts: RequestCode, ResponseCode, LanguageCode and MQVersion of RocketMQ 4.9.7.
Numbers read from a frame stay plain `int`: a peer may send one that is not listed here.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class RequestCode(IntEnum):
    """The operation that a request names. Comments: sender and receiver; "unused" codes have no handler."""

    SEND_MESSAGE = 10  # client to broker
    PULL_MESSAGE = 11  # client to broker
    QUERY_MESSAGE = 12  # client to broker
    QUERY_BROKER_OFFSET = 13  # unused
    QUERY_CONSUMER_OFFSET = 14  # client to broker
    UPDATE_CONSUMER_OFFSET = 15  # client to broker
    UPDATE_AND_CREATE_TOPIC = 17  # admin to broker
    GET_ALL_TOPIC_CONFIG = 21  # slave/admin to broker
    GET_TOPIC_CONFIG_LIST = 22  # unused
    GET_TOPIC_NAME_LIST = 23  # unused
    UPDATE_BROKER_CONFIG = 25  # admin to broker
    GET_BROKER_CONFIG = 26  # admin to broker
    TRIGGER_DELETE_FILES = 27  # unused
    GET_BROKER_RUNTIME_INFO = 28  # admin to broker
    SEARCH_OFFSET_BY_TIMESTAMP = 29  # client to broker
    GET_MAX_OFFSET = 30  # client to broker
    GET_MIN_OFFSET = 31  # client to broker
    GET_EARLIEST_MSG_STORETIME = 32  # client to broker
    VIEW_MESSAGE_BY_ID = 33  # client to broker
    HEART_BEAT = 34  # client to broker
    UNREGISTER_CLIENT = 35  # client to broker
    CONSUMER_SEND_MSG_BACK = 36  # client to broker
    END_TRANSACTION = 37  # client to broker
    GET_CONSUMER_LIST_BY_GROUP = 38  # client to broker
    CHECK_TRANSACTION_STATE = 39  # broker to client
    NOTIFY_CONSUMER_IDS_CHANGED = 40  # broker to client
    LOCK_BATCH_MQ = 41  # client to broker
    UNLOCK_BATCH_MQ = 42  # client to broker
    GET_ALL_CONSUMER_OFFSET = 43  # slave/admin to broker
    GET_ALL_DELAY_OFFSET = 45  # slave to broker
    CHECK_CLIENT_CONFIG = 46  # client to broker
    UPDATE_AND_CREATE_ACL_CONFIG = 50  # admin to broker
    DELETE_ACL_CONFIG = 51  # admin to broker
    GET_BROKER_CLUSTER_ACL_INFO = 52  # admin to broker
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG = 53  # admin to broker
    GET_BROKER_CLUSTER_ACL_CONFIG = 54  # admin to broker
    PUT_KV_CONFIG = 100  # admin to NameServer
    GET_KV_CONFIG = 101  # admin to NameServer
    DELETE_KV_CONFIG = 102  # admin to NameServer
    REGISTER_BROKER = 103  # broker to NameServer
    UNREGISTER_BROKER = 104  # broker to NameServer
    GET_ROUTEINFO_BY_TOPIC = 105  # client to NameServer
    GET_BROKER_CLUSTER_INFO = 106  # client to NameServer
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200  # admin to broker
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201  # slave/admin to broker
    GET_TOPIC_STATS_INFO = 202  # admin to broker
    GET_CONSUMER_CONNECTION_LIST = 203  # admin to broker
    GET_PRODUCER_CONNECTION_LIST = 204  # admin to broker
    WIPE_WRITE_PERM_OF_BROKER = 205  # admin to NameServer
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206  # admin to NameServer
    DELETE_SUBSCRIPTIONGROUP = 207  # admin to broker
    GET_CONSUME_STATS = 208  # admin to broker
    SUSPEND_CONSUMER = 209  # unused
    RESUME_CONSUMER = 210  # unused
    RESET_CONSUMER_OFFSET_IN_CONSUMER = 211  # unused
    RESET_CONSUMER_OFFSET_IN_BROKER = 212  # unused
    ADJUST_CONSUMER_THREAD_POOL = 213  # unused
    WHO_CONSUME_THE_MESSAGE = 214  # unused
    DELETE_TOPIC_IN_BROKER = 215  # admin to broker
    DELETE_TOPIC_IN_NAMESRV = 216  # admin to NameServer
    GET_KVLIST_BY_NAMESPACE = 219  # admin to NameServer
    RESET_CONSUMER_CLIENT_OFFSET = 220  # broker to client
    GET_CONSUMER_STATUS_FROM_CLIENT = 221  # broker to client
    INVOKE_BROKER_TO_RESET_OFFSET = 222  # admin to broker
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS = 223  # admin to broker
    GET_TOPICS_BY_CLUSTER = 224  # admin to NameServer
    QUERY_TOPIC_CONSUME_BY_WHO = 300  # admin to broker
    REGISTER_FILTER_SERVER = 301  # unused
    REGISTER_MESSAGE_FILTER_CLASS = 302  # unused
    QUERY_CONSUME_TIME_SPAN = 303  # admin to broker
    GET_SYSTEM_TOPIC_LIST_FROM_NS = 304  # admin to NameServer
    GET_SYSTEM_TOPIC_LIST_FROM_BROKER = 305  # admin to broker
    CLEAN_EXPIRED_CONSUMEQUEUE = 306  # admin to broker
    GET_CONSUMER_RUNNING_INFO = 307  # admin to broker and broker to client
    QUERY_CORRECTION_OFFSET = 308  # admin to broker
    CONSUME_MESSAGE_DIRECTLY = 309  # admin to broker and broker to client
    SEND_MESSAGE_V2 = 310  # client to broker
    GET_UNIT_TOPIC_LIST = 311  # admin to NameServer
    GET_HAS_UNIT_SUB_TOPIC_LIST = 312  # admin to NameServer
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST = 313  # admin to NameServer
    CLONE_GROUP_OFFSET = 314  # admin to broker
    VIEW_BROKER_STATS_DATA = 315  # admin to broker
    CLEAN_UNUSED_TOPIC = 316  # admin to broker
    GET_BROKER_CONSUME_STATS = 317  # admin to broker
    UPDATE_NAMESRV_CONFIG = 318  # admin to NameServer
    GET_NAMESRV_CONFIG = 319  # admin to NameServer
    SEND_BATCH_MESSAGE = 320  # client to broker
    QUERY_CONSUME_QUEUE = 321  # admin to broker
    QUERY_DATA_VERSION = 322  # broker to NameServer
    RESUME_CHECK_HALF_MESSAGE = 323  # admin to broker
    SEND_REPLY_MESSAGE = 324  # client to broker
    SEND_REPLY_MESSAGE_V2 = 325  # client to broker
    PUSH_REPLY_MESSAGE_TO_CLIENT = 326  # broker to client
    ADD_WRITE_PERM_OF_BROKER = 327  # admin to NameServer
    GET_ALL_PRODUCER_INFO = 328  # admin to broker
    DELETE_EXPIRED_COMMITLOG = 329  # admin to broker
    GET_TOPIC_CONFIG = 351  # admin to broker, since RocketMQ 5
    GET_SUBSCRIPTIONGROUP_CONFIG = 352  # admin to broker, since RocketMQ 5
    QUERY_ASSIGNMENT = 400  # client to broker, since RocketMQ 5
    SET_MESSAGE_REQUEST_MODE = 401  # admin to broker, since RocketMQ 5
    QUERY_IN_FLIGHT = 30_001  # admin to broker, TrioMQ only
    RELEASE_IN_FLIGHT = 30_002  # admin to broker, TrioMQ only
    QUERY_GRPC_ENDPOINT = 30_003  # broker to broker, TrioMQ only
    QUERY_DEPARTED_BROKERS = 30_004  # admin to NameServer, TrioMQ only
    QUERY_BROKER_TOTALS = 30_005  # broker to broker, TrioMQ only
    POP_MESSAGE = 200_050  # client to broker, since RocketMQ 5
    ACK_MESSAGE = 200_051  # client to broker, since RocketMQ 5
    PEEK_MESSAGE = 200_052  # client to broker, since RocketMQ 5
    CHANGE_MESSAGE_INVISIBLETIME = 200_053  # client to broker, since RocketMQ 5
    NOTIFICATION = 200_054  # client to broker, since RocketMQ 5
    POLLING_INFO = 200_055  # client to broker, since RocketMQ 5
    BATCH_ACK_MESSAGE = 200_151  # client to broker, since RocketMQ 5


class ResponseCode(IntEnum):
    """The outcome that a response carries in its `code` field. Codes marked "declared" are never sent by 4.9.7."""

    SUCCESS = 0
    SYSTEM_ERROR = 1  # any failure without a code of its own, including exceptions in a processor
    SYSTEM_BUSY = 2  # flow control
    REQUEST_CODE_NOT_SUPPORTED = 3  # no processor for the request code
    TRANSACTION_FAILED = 4  # declared
    FLUSH_DISK_TIMEOUT = 10  # message stored, synchronous flush not confirmed in time
    SLAVE_NOT_AVAILABLE = 11  # message stored, no usable slave; END_TRANSACTION sent to a slave
    FLUSH_SLAVE_TIMEOUT = 12  # message stored, no slave confirmed in time
    MESSAGE_ILLEGAL = 13  # message or properties too long or malformed
    SERVICE_NOT_AVAILABLE = 14  # store not writable: disk full, slave, shut down
    VERSION_NOT_SUPPORTED = 15  # declared
    NO_PERMISSION = 16  # broker, topic or group lacks the permission; protected names
    TOPIC_NOT_EXIST = 17  # unknown topic (broker), no route (NameServer)
    TOPIC_EXIST_ALREADY = 18  # declared
    PULL_NOT_FOUND = 19  # no new message
    PULL_RETRY_IMMEDIATELY = 20  # no message matched the filter; continue at nextBeginOffset
    PULL_OFFSET_MOVED = 21  # offset outside the queue; continue at nextBeginOffset
    QUERY_NOT_FOUND = 22  # offset, key, message or config item not found
    SUBSCRIPTION_PARSE_FAILED = 23  # filter expression does not parse
    SUBSCRIPTION_NOT_EXIST = 24  # group or topic subscription not registered
    SUBSCRIPTION_NOT_LATEST = 25  # registered subscription is older than that of the request
    SUBSCRIPTION_GROUP_NOT_EXIST = 26  # no subscription group config
    FILTER_DATA_NOT_EXIST = 27  # no compiled SQL92 filter
    FILTER_DATA_NOT_LATEST = 28  # compiled SQL92 filter is outdated
    TRANSACTION_SHOULD_COMMIT = 200  # declared
    TRANSACTION_SHOULD_ROLLBACK = 201  # declared
    TRANSACTION_STATE_UNKNOW = 202  # declared
    TRANSACTION_STATE_GROUP_WRONG = 203  # declared
    NO_BUYER_ID = 204  # declared; producers retry on it
    NOT_IN_CURRENT_UNIT = 205  # declared; producers retry on it
    CONSUMER_NOT_ONLINE = 206  # no connected consumer of the group
    CONSUME_MSG_TIMEOUT = 207  # the consumer did not respond to a forwarded request in time
    NO_MESSAGE = 208  # inside clients only
    UPDATE_AND_CREATE_ACL_CONFIG_FAILED = 209
    DELETE_ACL_CONFIG_FAILED = 210
    UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED = 211
    FLOW_CONTROL = 215  # declared; a consumer that receives it pulls again after 20 ms


INVALID_PARAMETER: Final = 29  # a request of POP asks for what it may not; since RocketMQ 5
POLLING_FULL: Final = 209  # too many receives wait, or too much is in flight; since RocketMQ 5
POLLING_TIMEOUT: Final = 210  # a receive waited without success; since RocketMQ 5


class LanguageCode(IntEnum):
    """The language of the process that made a frame: a name in JSON headers, this number in binary ones."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12


def _version_names() -> tuple[str, ...]:
    # The order of MQVersion.Version. Up to 3.0.0 the names follow no rule. From then on every release x.y.z follows
    # x.y.z_SNAPSHOT. 3.3 to 3.9 have no x.y.0. The known ordinals 28, 37, 62, 121, 393..413 and 612 pin the rest.
    names = ["V3_0_0_SNAPSHOT", "V3_0_0_ALPHA1"]
    names += [f"V3_0_0_BETA{number}" for number in range(1, 6)]
    for number in range(6, 10):
        names += [f"V3_0_0_BETA{number}_SNAPSHOT", f"V3_0_0_BETA{number}"]
    names.append("V3_0_0_FINAL")
    releases = [(3, 0, range(1, 16)), (3, 1, range(10)), (3, 2, range(10))]
    releases += [(3, minor, range(1, 10)) for minor in range(3, 10)]
    releases += [(major, minor, range(10)) for major in (4, 5) for minor in range(10)]
    for major, minor, patches in releases:
        for patch in patches:
            names += [f"V{major}_{minor}_{patch}_SNAPSHOT", f"V{major}_{minor}_{patch}"]
    names.append("HIGHER_VERSION")
    return tuple(names)


_VERSION_NAMES: Final = _version_names()

# Ordinals from which peers send or expect something else.
V3_0_7_SNAPSHOT: Final = 28  # clients from here on can reset offsets and report consumer status
V3_0_11: Final = 37  # REGISTER_BROKER bodies are RegisterBrokerBody from here on
V3_1_8_SNAPSHOT: Final = 62  # clients from here on report running info and handle CONSUME_MESSAGE_DIRECTLY
V3_4_9: Final = 121  # maxReconsumeTimes of requests is respected from here on
V4_9_4: Final = 401  # clients from here on receive route data as standard JSON
V4_9_7: Final = 407  # what this implementation reports
HIGHER_VERSION: Final = len(_VERSION_NAMES) - 1


def version_name(ordinal: int) -> str:
    """Return the name of a version ordinal as Java prints it ("V4_9_7"). Ordinals above the table: HIGHER_VERSION."""
    if ordinal < 0:
        # MQVersion.getVersionDesc throws here. In a log line or a listing a name is more useful.
        return f"UNKNOWN({ordinal})"
    return _VERSION_NAMES[min(ordinal, HIGHER_VERSION)]
