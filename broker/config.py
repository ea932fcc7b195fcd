"""BrokerSettings: every key of RocketMQ's BrokerConfig, under its own name, with its default and meaning.

Keys marked changeable may be changed by UPDATE_BROKER_CONFIG while the broker runs. As in RocketMQ, those that are read
only at the start (sizes of pools, built-in topics, the bloom filter) take effect at the next start. All others are
refused: the broker's identity, addresses and paths, and whatever loads code or decides who may do what. Keys that
RocketMQ 4.9.7 declares but never reads are kept, so that its configuration files pass without a warning.
"""

from __future__ import annotations

import os

from triomq.broker.local_address import host_name, local_address
from triomq.protocol.settings import SettingsRecord, changeable_setting, ignored_setting, setting

_CPU_COUNT = os.cpu_count() or 1
_POOL_SIZE = "no effect: one event loop handles all requests; the ...QueueCapacity keys bound them"


def _environment(name: str) -> str | None:
    return os.environ.get(name) or None


def _rocketmq_home() -> str | None:
    return _environment("ROCKETMQ_HOME")


def _namesrv_addr() -> str | None:
    return _environment("NAMESRV_ADDR")


class BrokerSettings(SettingsRecord, frozen=True, kw_only=True):
    """BrokerConfig of RocketMQ 4.9.7. Times are milliseconds unless the name says otherwise."""

    rocketmq_home: str | None = setting(
        "rocketmqHome", _rocketmq_home, meaning="installation directory; ACL files lie under its conf/"
    )
    namesrv_addr: str | None = changeable_setting(
        "namesrvAddr",
        _namesrv_addr,
        meaning='NameServer list "host:port;host:port"; the option -n overrides it',
        important=True,
    )
    broker_ip1: str = setting(
        "brokerIP1",
        local_address,
        meaning="address registered at the NameServers and stored as storeHost; set it in containers and behind NAT",
        important=True,
    )
    broker_ip2: str = setting("brokerIP2", local_address, meaning="address slaves replicate from")
    broker_name: str = setting("brokerName", host_name, meaning="name of the broker set", important=True)
    broker_cluster_name: str = setting(
        "brokerClusterName", "DefaultCluster", meaning="name of the cluster", important=True
    )
    broker_id: int = setting(
        "brokerId", 0, meaning="0 master, above 0 slave; masters always use 0", important=True, minimum=-1
    )
    broker_permission: int = changeable_setting(
        "brokerPermission",
        6,
        meaning="bits: 4 read, 2 write; when one is missing every topic is registered with this permission",
        minimum=0,
        maximum=7,
    )
    default_topic_queue_nums: int = changeable_setting(
        "defaultTopicQueueNums",
        8,
        meaning="queues of the TBW102 template, the upper limit for auto-created topics",
        minimum=1,
        maximum=65536,
    )
    auto_create_topic_enable: bool = changeable_setting(
        "autoCreateTopicEnable", True, meaning="unknown topics are created on the first send", important=True
    )
    cluster_topic_enable: bool = changeable_setting(
        "clusterTopicEnable", True, meaning="the topic named like the cluster gets permission 7, else 1"
    )
    broker_topic_enable: bool = changeable_setting(
        "brokerTopicEnable", True, meaning="the topic named like the broker gets permission 7, else 1"
    )
    auto_create_subscription_group: bool = changeable_setting(
        "autoCreateSubscriptionGroup", True, meaning="subscription groups are created on first use", important=True
    )
    message_store_plug_in: str = setting(
        "messageStorePlugIn",
        "",
        meaning="comma list of stores in front of the store, first one outermost (entry points triomq.message_stores)",
    )
    msg_trace_topic_name: str = changeable_setting(
        "msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", meaning="topic of message traces", important=True
    )
    trace_topic_enable: bool = changeable_setting(
        "traceTopicEnable", False, meaning="create the trace topic with one queue", important=True
    )
    send_message_thread_pool_nums: int = ignored_setting(
        "sendMessageThreadPoolNums", min(_CPU_COUNT, 4), meaning=_POOL_SIZE, minimum=1
    )
    put_message_future_thread_pool_nums: int = ignored_setting(
        "putMessageFutureThreadPoolNums", min(_CPU_COUNT, 4), minimum=1
    )
    pull_message_thread_pool_nums: int = ignored_setting(
        "pullMessageThreadPoolNums", 16 + 2 * _CPU_COUNT, meaning=_POOL_SIZE, minimum=1
    )
    process_reply_message_thread_pool_nums: int = ignored_setting(
        "processReplyMessageThreadPoolNums", 16 + 2 * _CPU_COUNT, meaning=_POOL_SIZE, minimum=1
    )
    query_message_thread_pool_nums: int = ignored_setting(
        "queryMessageThreadPoolNums", 8 + _CPU_COUNT, meaning=_POOL_SIZE, minimum=1
    )
    admin_broker_thread_pool_nums: int = ignored_setting("adminBrokerThreadPoolNums", 16, meaning=_POOL_SIZE, minimum=1)
    client_manage_thread_pool_nums: int = ignored_setting(
        "clientManageThreadPoolNums", 32, meaning=_POOL_SIZE, minimum=1
    )
    consumer_manage_thread_pool_nums: int = ignored_setting(
        "consumerManageThreadPoolNums", 32, meaning=_POOL_SIZE, minimum=1
    )
    heartbeat_thread_pool_nums: int = ignored_setting(
        "heartbeatThreadPoolNums", min(32, _CPU_COUNT), meaning=_POOL_SIZE, minimum=1
    )
    end_transaction_thread_pool_nums: int = ignored_setting(
        "endTransactionThreadPoolNums", max(8 + 2 * _CPU_COUNT, 4 * min(_CPU_COUNT, 4)), meaning=_POOL_SIZE, minimum=1
    )
    flush_consumer_offset_interval_ms: int = changeable_setting(
        "flushConsumerOffsetInterval", 5000, meaning="ms between writes of consumerOffset.json", minimum=1
    )
    flush_consumer_offset_history_interval_ms: int = ignored_setting("flushConsumerOffsetHistoryInterval", 60000)
    reject_transaction_message: bool = changeable_setting(
        "rejectTransactionMessage", False, meaning="refuse half messages with code 16", important=True
    )
    fetch_namesrv_addr_by_address_server: bool = changeable_setting(
        "fetchNamesrvAddrByAddressServer",
        False,
        meaning="fetch the NameServer list over HTTP every 2 min when namesrvAddr is unset",
        important=True,
    )
    send_thread_pool_queue_capacity: int = changeable_setting(
        "sendThreadPoolQueueCapacity", 10000, meaning="requests that may wait in the send pool", minimum=1
    )
    put_thread_pool_queue_capacity: int = changeable_setting(
        "putThreadPoolQueueCapacity", 10000, meaning="sends that may wait for flush or replication", minimum=1
    )
    pull_thread_pool_queue_capacity: int = changeable_setting(
        "pullThreadPoolQueueCapacity", 100000, meaning="requests that may wait in the pull pool", minimum=1
    )
    reply_thread_pool_queue_capacity: int = changeable_setting(
        "replyThreadPoolQueueCapacity", 10000, meaning="requests that may wait in the reply pool", minimum=1
    )
    query_thread_pool_queue_capacity: int = changeable_setting(
        "queryThreadPoolQueueCapacity", 20000, meaning="requests that may wait in the query pool", minimum=1
    )
    client_manager_thread_pool_queue_capacity: int = changeable_setting(
        "clientManagerThreadPoolQueueCapacity", 1000000, meaning="requests that may wait in the client pool", minimum=1
    )
    consumer_manager_thread_pool_queue_capacity: int = changeable_setting(
        "consumerManagerThreadPoolQueueCapacity",
        1000000,
        meaning="requests that may wait in the consumer pool",
        minimum=1,
    )
    heartbeat_thread_pool_queue_capacity: int = changeable_setting(
        "heartbeatThreadPoolQueueCapacity", 50000, meaning="heartbeats that may wait", minimum=1
    )
    end_transaction_pool_queue_capacity: int = changeable_setting(
        "endTransactionPoolQueueCapacity", 100000, meaning="requests that may wait in the transaction pool", minimum=1
    )
    filter_server_nums: int = ignored_setting("filterServerNums", 0)
    long_polling_enable: bool = changeable_setting(
        "longPollingEnable",
        True,
        meaning="hold empty pulls for the time they ask for; false: for shortPollingTimeMills",
    )
    short_polling_time_ms: int = changeable_setting(
        "shortPollingTimeMills", 1000, meaning="ms of hold with longPollingEnable=false", minimum=0
    )
    notify_consumer_ids_changed_enable: bool = changeable_setting(
        "notifyConsumerIdsChangedEnable", True, meaning="notify the members of a group when it changed"
    )
    high_speed_mode: bool = ignored_setting("highSpeedMode", False)
    commercial_enable: bool = ignored_setting("commercialEnable", True)
    commercial_timer_count: int = ignored_setting("commercialTimerCount", 1)
    commercial_trans_count: int = ignored_setting("commercialTransCount", 1)
    commercial_big_count: int = ignored_setting("commercialBigCount", 1)
    commercial_base_count: int = ignored_setting("commercialBaseCount", 1, minimum=0)
    transfer_msg_by_heap: bool = ignored_setting("transferMsgByHeap", True)
    max_delay_time: int = ignored_setting("maxDelayTime", 40)
    region_id: str = changeable_setting("regionId", "DefaultRegion", meaning="value of MSG_REGION in send responses")
    register_broker_timeout_ms: int = changeable_setting(
        "registerBrokerTimeoutMills", 6000, meaning="ms to register at all NameServers", minimum=1
    )
    slave_read_enable: bool = changeable_setting(
        "slaveReadEnable", False, meaning="direct consumers of old messages to the slave that their group names"
    )
    disable_consume_if_consumer_read_slowly: bool = changeable_setting(
        "disableConsumeIfConsumerReadSlowly",
        False,
        meaning="stop groups that fall behind by more than consumerFallbehindThreshold, checked every 3 min",
    )
    consumer_fallbehind_threshold_bytes: int = changeable_setting(
        "consumerFallbehindThreshold",
        16 * 1024**3,
        meaning="bytes of lag above which disableConsumeIfConsumerReadSlowly stops a group",
        minimum=0,
    )
    broker_fast_failure_enable: bool = changeable_setting(
        "brokerFastFailureEnable", True, meaning="answer requests that waited too long in a pool with SYSTEM_BUSY"
    )
    wait_time_in_send_queue_ms: int = changeable_setting(
        "waitTimeMillsInSendQueue", 200, meaning="longest wait in the send pool", minimum=1
    )
    wait_time_in_pull_queue_ms: int = changeable_setting(
        "waitTimeMillsInPullQueue", 5000, meaning="longest wait in the pull pool", minimum=1
    )
    wait_time_in_heartbeat_queue_ms: int = changeable_setting(
        "waitTimeMillsInHeartbeatQueue", 31000, meaning="longest wait of a heartbeat", minimum=1
    )
    wait_time_in_transaction_queue_ms: int = changeable_setting(
        "waitTimeMillsInTransactionQueue", 3000, meaning="longest wait in the transaction pool", minimum=1
    )
    start_accept_send_request_time_stamp: int = changeable_setting(
        "startAcceptSendRequestTimeStamp", 0, meaning="sends are refused before this time (ms since 1970)", minimum=0
    )
    trace_on: bool = changeable_setting("traceOn", True, meaning="value of TRACE_ON in send responses")
    enable_calc_filter_bit_map: bool = changeable_setting(
        "enableCalcFilterBitMap",
        False,
        meaning="evaluate SQL92 filters when messages are dispatched (stored with enableConsumeQueueExt)",
    )
    expect_consumer_num_use_filter: int = changeable_setting(
        "expectConsumerNumUseFilter", 32, meaning="number of groups in the bloom filter", minimum=1, maximum=100000
    )
    max_error_rate_of_bloom_filter: int = changeable_setting(
        "maxErrorRateOfBloomFilter", 20, meaning="percent of false positives in the bloom filter", minimum=1, maximum=99
    )
    filter_data_clean_time_span_ms: int = changeable_setting(
        "filterDataCleanTimeSpan", 86400000, meaning="ms for which the SQL92 filter of an offline group is kept"
    )
    filter_support_retry: bool = changeable_setting(
        "filterSupportRetry", False, meaning="evaluate SQL92 filters on retry topics too"
    )
    enable_property_filter: bool = changeable_setting(
        "enablePropertyFilter", False, meaning="allow SQL92 subscriptions"
    )
    compressed_register: bool = changeable_setting(
        "compressedRegister", False, meaning="register in the compressed form"
    )
    force_register: bool = changeable_setting(
        "forceRegister",
        True,
        meaning="always register periodically; false: only when a NameServer says that something changed",
    )
    register_name_server_period_ms: int = changeable_setting(
        "registerNameServerPeriod", 30000, meaning="ms between registrations, kept within 10000..60000"
    )
    transaction_timeout_ms: int = changeable_setting(
        "transactionTimeOut",
        6000,
        meaning="ms before a half message is checked for the first time",
        important=True,
        minimum=0,
    )
    transaction_check_max: int = changeable_setting(
        "transactionCheckMax",
        15,
        meaning="checks before a half message goes to TRANS_CHECK_MAX_TIME_TOPIC",
        important=True,
        minimum=0,
    )
    transaction_check_interval_ms: int = changeable_setting(
        "transactionCheckInterval", 60000, meaning="ms between check runs", important=True, minimum=1
    )
    acl_enable: bool = setting("aclEnable", False, meaning="check access with the ACL files", important=True)
    acl_failures_per_minute: int = changeable_setting(
        "aclFailuresPerMinute",
        60,
        meaning="wrong signatures for one account from one address; more are refused unseen, 0: no limit",
        minimum=0,
        own=True,
    )
    acl_like_rocketmq: bool = setting(
        "aclLikeRocketMQ",
        False,
        meaning="with aclEnable, check only what RocketMQ 4.9.7 checks, so that any account becomes an administrator",
        own=True,
    )
    store_reply_message_enable: bool = changeable_setting(
        "storeReplyMessageEnable", True, meaning="store reply messages after they were pushed"
    )
    enable_detail_stat: bool = changeable_setting("enableDetailStat", True, meaning="keep statistics for each queue")
    auto_delete_unused_stats: bool = changeable_setting(
        "autoDeleteUnusedStats", False, meaning="drop the statistics of deleted topics and groups"
    )
    isolate_log_enable: bool = changeable_setting("isolateLogEnable", False, meaning="a log directory for each broker")
    config_update_without_acl: bool = setting(
        "configUpdateWithoutAcl",
        False,
        meaning="without aclEnable, let everybody change the configuration over the network",
        own=True,
    )

    max_topic_table_bytes: int = changeable_setting(
        "maxTopicTableBytes",
        12 * 1024**2,
        meaning="bytes of the topic table as NameServers and slaves receive it; new topics above are refused",
        minimum=65536,
        maximum=15 * 1024**2,
        own=True,
    )
    max_group_table_bytes: int = changeable_setting(
        "maxGroupTableBytes",
        12 * 1024**2,
        meaning="bytes of the table of groups as slaves receive it; new groups above are refused",
        minimum=65536,
        maximum=15 * 1024**2,
        own=True,
    )
    max_offset_table_bytes: int = changeable_setting(
        "maxOffsetTableBytes",
        15 * 1024**2,
        meaning="bytes of the table of consumer offsets, of which slaves receive 16 MiB; offsets of new groups and "
        "queues above are refused",
        minimum=65536,
        maximum=1024**3,
        own=True,
    )
    max_messages_per_batch: int = changeable_setting(
        "maxMessagesPerBatch",
        2**31 - 1,
        meaning="messages of one batch, whose bytes maxMessageSize bounds; larger ones are refused",
        minimum=1,
        own=True,
    )
    max_groups_per_client: int = changeable_setting(
        "maxGroupsPerClient",
        1000,
        meaning="producer and consumer groups of one heartbeat, and of one connection; more are refused",
        minimum=1,
        own=True,
    )

    quota_per_account: str = changeable_setting(
        "quotaPerAccount",
        "",
        meaning="what each account may use, such as bytesIn=1048576,messagesIn=1000; all clients without an account "
        "share one",
        own=True,
    )
    quota_per_address: str = changeable_setting(
        "quotaPerAddress", "", meaning="what the clients of each address may use", own=True
    )
    quota_per_group: str = changeable_setting(
        "quotaPerGroup", "", meaning="what each producer or consumer group may use", own=True
    )
    quota_burst_ms: int = changeable_setting(
        "quotaBurstMillis",
        1000,
        meaning="ms of a quota that may be used at once after a pause",
        minimum=1,
        maximum=3_600_000,
        own=True,
    )

    metrics_ask_clients: bool = setting(
        "metricsAskClients",
        True,
        meaning="with metricsPort, ask each push consumer once a minute for its rates, as rocketmq-exporter does; of "
        "several brokers with the same consumers one is enough",
        own=True,
    )

    grpc_server_port: int = setting(
        "grpcServerPort",
        0,
        meaning="TCP port for the gRPC clients of RocketMQ 5, plain and TLS; 0 = none. mqbroker takes 8081, which "
        "RocketMQ's proxy has, if this is not set and the port is free",
        minimum=0,
        maximum=65535,
        own=True,
    )
    grpc_advertised_endpoint: str = changeable_setting(
        "grpcAdvertisedEndpoint",
        "",
        meaning="host:port at which gRPC clients connect, as routes name it; empty = the one by which each has come",
        own=True,
    )
    grpc_proxy_protocol_from: str = setting(
        "grpcProxyProtocolFrom",
        "",
        meaning="addresses and networks (10.0.0.0/24), separated by commas, of load balancers in front of "
        "grpcServerPort: their connections begin with a header of the PROXY protocol, which names the client",
        own=True,
    )
    traces_endpoint: str = setting(
        "tracesEndpoint",
        "",
        meaning="OTLP/HTTP collector of the broker's own spans, such as http://127.0.0.1:4318/v1/traces; needs "
        "the extra otel",
        own=True,
    )

    extensions: str = setting(
        "extensions",
        "",
        meaning="comma list of installed extensions to load, * for all: hooks, validators, transactions",
        own=True,
    )

    start_without_unreadable_tables: bool = setting(
        "startWithoutUnreadableTables",
        False,
        meaning="begin with an empty table if neither its file in config/ nor the .bak can be read, and put these "
        "aside; without it the start ends with code 253, since an empty table skips messages or repeats them",
        own=True,
    )

    queue_lock_lifetime_ms: int = setting(
        "rebalanceLockMaxLiveTime",
        60_000,
        meaning="ms after which a consumer loses a queue lock that it did not renew (RocketMQ: a system property)",
        minimum=1,
    )

    pop_max_in_flight: int = changeable_setting(
        "popMaxInFlight",
        1_000_000,
        meaning="messages that were received (POP) and not acknowledged, of all groups: a receive beyond is refused",
        own=True,
        minimum=32,
    )

    pop_max_in_flight_of_group: int = changeable_setting(
        "popMaxInFlightOfGroup",
        200_000,
        meaning="messages that were received (POP) and not acknowledged, of one group: a receive beyond is refused",
        own=True,
        minimum=32,
    )

    @property
    def registration_period_ms(self) -> int:
        """Return registerNameServerPeriod, limited so that NameServers do not expire the broker."""
        return max(10_000, min(self.register_name_server_period_ms, 60_000))
