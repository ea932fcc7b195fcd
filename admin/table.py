"""Every command of RocketMQ 4.9.7's mqadmin: names, options, one line of help (MQAdminStartup, SubCommand).

Command lines, help, completion and documentation are made from this table. It is plain data: `mqadmin help` must not
import anything else.

    (name, alias, SubCommand class, one line of help, options, options of which exactly one is required)
    an option: (letter, long name, takes a value, is required, help)

A long name that ends in a blank, or has one inside, is so in RocketMQ; only the letter is of use there.
"""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[tuple[str, str, bool, bool, str], ...], str]

ROWS: tuple[Row, ...] = (
    ("updateTopic", "", "UpdateTopicSubCommand", "Update or create topic",
        (
            ("b", "brokerAddr", True, False, "create topic to which broker"),
            ("c", "clusterName", True, False, "create topic to which cluster"),
            ("o", "order", True, False, "set topic's order(true|false)"),
            ("p", "perm", True, False, "set topic's permission(2|4|6), intro[2:W 4:R; 6:RW]"),
            ("r", "readQueueNums", True, False, "set read queue nums"),
            ("s", "hasUnitSub", True, False, "has unit sub (true|false)"),
            ("t", "topic", True, True, "topic name"),
            ("u", "unit", True, False, "is unit topic (true|false)"),
            ("w", "writeQueueNums", True, False, "set write queue nums"),
        ), "bc"),
    ("deleteTopic", "", "DeleteTopicSubCommand", "Delete topic from broker and NameServer.",
        (
            ("c", "clusterName", True, True, "delete topic from which cluster"),
            ("t", "topic", True, True, "topic name"),
        ), ""),
    ("updateSubGroup", "", "UpdateSubGroupSubCommand", "Update or create subscription group",
        (
            ("a", "notifyConsumerIdsChanged", True, False, "notify consumerId changed"),
            ("b", "brokerAddr", True, False, "create subscription group to which broker"),
            ("c", "clusterName", True, False, "create subscription group to which cluster"),
            ("d", "consumeBroadcastEnable", True, False, "broadcast"),
            ("g", "groupName", True, True, "consumer group name"),
            ("i", "brokerId", True, False, "consumer from which broker id"),
            ("m", "consumeFromMinEnable", True, False, "from min offset"),
            ("q", "retryQueueNums", True, False, "retry queue nums"),
            ("r", "retryMaxTimes", True, False, "retry max times"),
            ("s", "consumeEnable", True, False, "consume enable"),
            ("w", "whichBrokerWhenConsumeSlowly", True, False, "which broker id when consume slowly"),
        ), ""),
    ("deleteSubGroup", "", "DeleteSubscriptionGroupCommand", "Delete subscription group from broker.",
        (
            ("b", "brokerAddr", True, False, "delete subscription group from which broker"),
            ("c", "clusterName", True, False, "delete subscription group from which cluster"),
            ("g", "groupName", True, True, "subscription group name"),
            ("r", "removeOffset", True, False, "remove offset"),
        ), ""),
    ("updateBrokerConfig", "", "UpdateBrokerConfigSubCommand", "Update broker's config",
        (
            ("b", "brokerAddr", True, False, "update which broker"),
            ("c", "clusterName", True, False, "update which cluster"),
            ("k", "key", True, True, "config key"),
            ("v", "value", True, True, "config value"),
        ), ""),
    ("updateTopicPerm", "", "UpdateTopicPermSubCommand", "Update topic perm",
        (
            ("b", "brokerAddr", True, False, "create topic to which broker"),
            ("c", "clusterName", True, False, "create topic to which cluster"),
            ("p", "perm", True, True, "set topic's permission(2|4|6), intro[2:W; 4:R; 6:RW]"),
            ("t", "topic", True, True, "topic name"),
        ), ""),
    ("topicRoute", "", "TopicRouteSubCommand", "Examine topic route info",
        (
            ("l", "list", False, False, "Use list format to print data"),
            ("t", "topic", True, True, "topic name"),
        ), ""),
    ("topicStatus", "", "TopicStatusSubCommand", "Examine topic Status info",
        (
            ("t", "topic", True, True, "topic name"),
        ), ""),
    ("topicClusterList", "", "TopicClusterSubCommand", "get cluster info for topic",
        (
            ("t", "topic", True, True, "topic name"),
        ), ""),
    ("brokerStatus", "", "BrokerStatusSubCommand", "Fetch broker runtime status data",
        (
            ("b", "brokerAddr", True, False, "Broker address"),
            ("c", "clusterName", True, False, "which cluster"),
        ), ""),
    ("queryMsgById", "", "QueryMsgByIdSubCommand", "Query Message by Id",
        (
            ("d", "clientId", True, False, "The consumer's client id"),
            ("g", "consumerGroup", True, False, "consumer group name"),
            ("i", "msgId", True, True, "Message Id"),
            ("s", "sendMessage", True, False, "resend message"),
            ("u", "unitName", True, False, "unit name"),
        ), ""),
    ("queryMsgByKey", "", "QueryMsgByKeySubCommand", "Query Message by Key",
        (
            ("k", "msgKey", True, True, "Message Key"),
            ("t", "topic", True, True, "topic name"),
        ), ""),
    ("queryMsgByUniqueKey", "", "QueryMsgByUniqueKeySubCommand", "Query Message by Unique key",
        (
            ("a", "showAll", False, False, "Print all message, the limit is 32"),
            ("d", "clientId", True, False, "The consumer's client id"),
            ("g", "consumerGroup", True, False, "consumer group name"),
            ("i", "msgId", True, True, "Message Id"),
            ("t", "topic", True, True, "The topic of msg"),
        ), ""),
    ("queryMsgByOffset", "", "QueryMsgByOffsetSubCommand", "Query Message by offset",
        (
            ("b", "brokerName", True, True, "Broker Name"),
            ("i", "queueId", True, True, "Queue Id"),
            ("o", "offset", True, True, "Queue Offset"),
            ("t", "topic", True, True, "topic name"),
        ), ""),
    ("queryMsgTraceById", "QueryMsgTraceById", "QueryMsgTraceByIdSubCommand", "query a message trace",
        (
            ("i", "msgId", True, True, "Message Id"),
            ("t", "traceTopic", True, False, "The name value of message trace topic"),
        ), ""),
    ("printMsg", "", "PrintMessageSubCommand", "Print Message Detail",
        (
            ("b", "beginTimestamp ", True, False, "Begin timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"),
            ("c", "charsetName ", True, False, "CharsetName(eg: UTF-8,GBK)"),
            ("d", "printBody ", True, False, "print body"),
            ("e", "endTimestamp ", True, False, "End timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"),
            ("s", "subExpression ", True, False, "Subscribe Expression(eg: TagA || TagB)"),
            ("t", "topic", True, True, "topic name"),
        ), ""),
    ("printMsgByQueue", "", "PrintMessageByQueueCommand", "Print Message Detail",
        (
            ("a", "brokerName ", True, True, "broker name"),
            ("b", "beginTimestamp ", True, False, "Begin timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"),
            ("c", "charsetName ", True, False, "CharsetName(eg: UTF-8,GBK)"),
            ("d", "printBody ", True, False, "print body. eg: true | false(default)"),
            ("e", "endTimestamp ", True, False, "End timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"),
            ("f", "calculate", True, False, "calculate by tag. eg: true | false(default)"),
            ("i", "queueId ", True, True, "queue id"),
            ("p", "print msg", True, False, "print msg. eg: true | false(default)"),
            ("s", "subExpression ", True, False, "Subscribe Expression(eg: TagA || TagB)"),
            ("t", "topic", True, True, "topic name"),
        ), ""),
    ("sendMsgStatus", "", "SendMsgStatusCommand", "send msg to broker.",
        (
            ("b", "brokerName", True, True, "Broker Name"),
            ("c", "count", True, False, "send message count, Default: 50"),
            ("s", "messageSize", True, False, "Message Size, Default: 128"),
        ), ""),
    ("brokerConsumeStats", "", "BrokerConsumeStatsSubCommad", "Fetch broker consume stats data",
        (
            ("b", "brokerAddr", True, True, "Broker address"),
            ("l", "level", True, False, "threshold of print diff"),
            ("o", "order", True, False, "order topic"),
            ("t", "timeoutMillis", True, False, "request timeout Millis"),
        ), ""),
    (
        "producerConnection", "", "ProducerConnectionSubCommand",
        "Query producer's socket connection and client version",
        (
            ("g", "producerGroup", True, True, "producer group name"),
            ("t", "topic", True, True, "topic name"),
        ), ""),
    (
        "consumerConnection", "", "ConsumerConnectionSubCommand",
        "Query consumer's socket connection, client version and subscription",
        (
            ("b", "brokerAddr", True, False, "broker address"),
            ("g", "consumerGroup", True, True, "consumer group name"),
        ), ""),
    ("consumerProgress", "", "ConsumerProgressSubCommand", "Query consumers's progress, speed",
        (
            ("g", "groupName", True, False, "consumer group name"),
            ("s", "showClientIP", True, False, "Show Client IP per Queue"),
        ), ""),
    ("consumerStatus", "", "ConsumerStatusSubCommand", "Query consumer's internal data structure",
        (
            ("b", "brokerAddr", True, False, "broker address"),
            ("g", "consumerGroup", True, True, "consumer group name"),
            ("i", "clientId", True, False, "The consumer's client id"),
            ("s", "jstack", False, False, "Run jstack command in the consumer progress"),
        ), ""),
    ("cloneGroupOffset", "", "CloneGroupOffsetCommand", "clone offset from other group.",
        (
            ("d", "destGroup", True, True, "set destination consumer group"),
            ("o", "offline", True, False, "the group or the topic is offline"),
            ("s", "srcGroup", True, True, "set source consumer group"),
            ("t", "topic", True, True, "set the topic"),
        ), ""),
    ("producer", "", "ProducerSubCommand", "Query producer's instances, connection, status, etc.",
        (
            ("b", "broker", True, True, "broker address"),
        ), ""),
    ("clusterList", "", "ClusterListSubCommand", "List all of clusters",
        (
            ("i", "interval", True, False, "specify intervals numbers, it is in seconds"),
            ("m", "moreStats", False, False, "Print more stats"),
        ), ""),
    ("topicList", "", "TopicListSubCommand", "Fetch all topic list from name server",
        (
            ("c", "clusterModel", False, False, "clusterModel"),
        ), ""),
    ("updateKvConfig", "", "UpdateKvConfigCommand", "Create or update KV config.",
        (
            ("k", "key", True, True, "set the key name"),
            ("s", "namespace", True, True, "set the namespace"),
            ("v", "value", True, True, "set the key value"),
        ), ""),
    ("deleteKvConfig", "", "DeleteKvConfigCommand", "Delete KV config.",
        (
            ("k", "key", True, True, "set the key name"),
            ("s", "namespace", True, True, "set the namespace"),
        ), ""),
    (
        "wipeWritePerm", "", "WipeWritePermSubCommand",
        "Wipe write perm of broker in all name server you defined in the -n param",
        (
            ("b", "brokerName", True, True, "broker name"),
        ), ""),
    (
        "addWritePerm", "", "AddWritePermSubCommand",
        "Add write perm of broker in all name server you defined in the -n param",
        (
            ("b", "brokerName", True, True, "broker name"),
        ), ""),
    (
        "resetOffsetByTime", "", "ResetOffsetByTimeCommand",
        "Reset consumer offset by timestamp(without client restart).",
        (
            ("c", "cplus", False, False, "reset c++ client offset"),
            ("f", "force", True, False, "set the force rollback by timestamp switch[true|false]"),
            ("g", "group", True, True, "set the consumer group"),
            ("s", "timestamp", True, True, "set the timestamp[now|currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"),
            ("t", "topic", True, True, "set the topic"),
        ), ""),
    (
        "skipAccumulatedMessage", "", "SkipAccumulationSubCommand",
        "Skip all messages that are accumulated (not consumed) currently",
        (
            ("f", "force", True, False, "set the force rollback by timestamp switch[true|false]"),
            ("g", "group", True, True, "set the consumer group"),
            ("t", "topic", True, True, "set the topic"),
        ), ""),
    ("updateOrderConf", "", "UpdateOrderConfCommand", "Create or update or delete order conf",
        (
            ("m", "method", True, True, "option type [eg. put|get|delete"),
            ("t", "topic", True, True, "topic name"),
            ("v", "orderConf", True, False, "set order conf [eg. brokerName1:num;brokerName2:num]"),
        ), ""),
    ("cleanExpiredCQ", "", "CleanExpiredCQSubCommand", "Clean expired ConsumeQueue on broker.",
        (
            ("b", "brokerAddr", True, False, "Broker address"),
            ("c", "cluster", True, False, "clustername"),
        ), ""),
    ("deleteExpiredCommitLog", "", "DeleteExpiredCommitLogSubCommand", "Delete expired CommitLog files",
        (
            ("b", "brokerAddr", True, False, "Broker address"),
            ("c", "cluster", True, False, "clustername"),
            ("n", "namesrvAddr", True, False, "Name server address"),
        ), ""),
    ("cleanUnusedTopic", "", "CleanUnusedTopicCommand", "Clean unused topic on broker.",
        (
            ("b", "brokerAddr", True, False, "Broker address"),
            ("c", "cluster", True, False, "cluster name"),
        ), ""),
    ("startMonitoring", "", "StartMonitoringSubCommand", "Start Monitoring",
        (
        ), ""),
    ("statsAll", "", "StatsAllSubCommand", "Topic and Consumer tps stats",
        (
            ("a", "activeTopic", False, False, "print active topic only"),
            ("t", "topic", True, False, "print select topic only"),
        ), ""),
    ("allocateMQ", "", "AllocateMQSubCommand", "Allocate MQ",
        (
            ("i", "ipList", True, True, "ipList"),
            ("t", "topic", True, True, "topic name"),
        ), ""),
    ("checkMsgSendRT", "", "CheckMsgSendRTCommand", "check message send response time",
        (
            ("a", "amount", True, False, "message amount | default 100"),
            ("s", "size", True, False, "message size | default 128 Byte"),
            ("t", "topic", True, True, "topic name"),
        ), ""),
    ("clusterRT", "", "CLusterSendMsgRTCommand", "List All clusters Message Send RT",
        (
            ("a", "amount", True, False, "message amount | default 100"),
            ("c", "cluster", True, False, "cluster name | default display all cluster"),
            ("i", "interval", True, False, "print interval | default 10 seconds"),
            ("m", "machine room", True, False, "machine room name | default noname"),
            ("p", "print log", True, False, "print as tlog | default false"),
            ("s", "size", True, False, "message size | default 128 Byte"),
        ), ""),
    ("getNamesrvConfig", "", "GetNamesrvConfigCommand", "Get configs of name server.",
        (
        ), ""),
    ("updateNamesrvConfig", "", "UpdateNamesrvConfigCommand", "Update configs of name server.",
        (
            ("k", "key", True, True, "config key"),
            ("v", "value", True, True, "config value"),
        ), ""),
    ("getBrokerConfig", "", "GetBrokerConfigCommand", "Get broker config by cluster or special broker!",
        (
            ("b", "brokerAddr", True, False, "get which broker"),
            ("c", "clusterName", True, False, "get which cluster"),
        ), ""),
    ("getConsumerConfig", "", "GetConsumerConfigSubCommand", "Get consumer config by subscription group name!",
        (
            ("g", "groupName", True, True, "subscription group name"),
        ), ""),
    ("queryCq", "", "QueryConsumeQueueCommand", "Query cq command.",
        (
            ("b", "broker", True, False, "broker addr."),
            ("c", "count", True, False, "how many."),
            ("g", "consumer", True, False, "consumer group."),
            ("i", "index", True, True, "start queue index."),
            ("q", "queue", True, True, "queue num, ie. 1"),
            ("t", "topic", True, True, "topic name"),
        ), ""),
    ("sendMessage", "", "SendMessageCommand", "Send a message",
        (
            ("b", "broker", True, False, "Send message to target broker"),
            ("c", "tags", True, False, "Message tags"),
            ("i", "qid", True, False, "Send message to target queue"),
            ("k", "key", True, False, "Message keys"),
            ("m", "msgTraceEnable", True, False, "Message Trace Enable, Default: false"),
            ("p", "body", True, True, "UTF-8 string format of the message body"),
            ("t", "topic", True, True, "Topic name"),
        ), ""),
    ("consumeMessage", "", "ConsumeMessageCommand", "Consume message",
        (
            ("b", "brokerName", True, False, "Broker name"),
            ("c", "MessageNumber", True, False, "Number of message to be consumed"),
            ("e", "endTimestamp ", True, False, "End timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"),
            ("g", "consumerGroup", True, False, "Consumer group name"),
            ("i", "queueId", True, False, "Queue Id"),
            ("o", "offset", True, False, "Queue offset"),
            ("s", "beginTimestamp ", True, False, "Begin timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"),
            ("t", "topic", True, True, "Topic name"),
        ), ""),
    ("updateAclConfig", "", "UpdateAccessConfigSubCommand", "Update acl config yaml file in broker",
        (
            ("a", "accessKey", True, True, "set accessKey in acl config file"),
            ("b", "brokerAddr", True, False, "update acl config file to which broker"),
            ("c", "clusterName", True, False, "update acl config file to which cluster"),
            ("g", "groupPerms", True, False, "set groupPerms list,eg: groupD=DENY,groupD=SUB"),
            ("i", "defaultTopicPerm", True, False, "set default topicPerm in acl config file"),
            ("m", "admin", True, False, "set admin flag in acl config file"),
            ("s", "secretKey", True, True, "set secretKey in acl config file"),
            ("t", "topicPerms", True, False, "set topicPerms list,eg: topicA=DENY,topicD=SUB"),
            ("u", "defaultGroupPerm", True, False, "set default GroupPerm in acl config file"),
            ("w", "whiteRemoteAddress", True, False, "set white ip Address for account in acl config file"),
        ), "bc"),
    ("deleteAclConfig", "deleteAccessConfig", "DeleteAccessConfigSubCommand", "Delete Acl Config Account in broker",
        (
            ("a", "accessKey", True, True, "set accessKey in acl config file for deleting which account"),
            ("b", "brokerAddr", True, False, "delete acl config account from which broker"),
            ("c", "clusterName", True, False, "delete acl config account from which cluster"),
        ), "bc"),
    (
        "clusterAclConfigVersion", "", "ClusterAclConfigVersionListSubCommand",
        "List all of acl config version information in cluster",
        (
            ("b", "brokerAddr", True, False, "query acl config version for which broker"),
            ("c", "clusterName", True, False, "query acl config version for specified cluster"),
        ), "bc"),
    (
        "updateGlobalWhiteAddr", "", "UpdateGlobalWhiteAddrSubCommand",
        "Update global white address for acl Config File in broker",
        (
            ("b", "brokerAddr", True, False, "update global white address to which broker"),
            ("c", "clusterName", True, False, "update global white address to which cluster"),
            ("g", "globalWhiteRemoteAddresses", True, True,
             "set globalWhiteRemoteAddress list,eg: "
             "10.10.103.*,192.168.0.*"),
            ("p", "aclFileFullPath", True, False,
             "update global white address of specified acl file,eg: "
             "/xxx/plain_test.yml"),
        ), "bc"),
    (
        "getAclConfig", "getAccessConfigSubCommand", "GetAccessConfigSubCommand",
        "List all of acl config information in cluster",
        (
            ("b", "brokerAddr", True, False, "query acl config version for which broker"),
            ("c", "clusterName", True, False, "query acl config version for specified cluster"),
        ), "bc"),
    ("exportMetadata", "", "ExportMetadataCommand", "export metadata",
        (
            ("b", "brokerAddr", True, False, "choose a broker to export"),
            ("c", "clusterName", True, False, "choose a cluster to export"),
            ("f", "filePath", True, False, "export metadata.json path | default /tmp/rocketmq/export"),
            ("g", "subscriptionGroup", False, False, "only export subscriptionGroup metadata"),
            ("s", "specialTopic", False, False, "need retryTopic and dlqTopic"),
            ("t", "topic", False, False, "only export topic metadata"),
        ), ""),
    ("exportConfigs", "", "ExportConfigsCommand", "export configs",
        (
            ("c", "clusterName", True, True, "choose a cluster to export"),
            ("f", "filePath", True, False, "export configs.json path | default /tmp/rocketmq/export"),
        ), ""),
    ("exportMetrics", "", "ExportMetricsCommand", "export metrics",
        (
            ("c", "clusterName", True, True, "choose a cluster to export"),
            ("f", "filePath", True, False, "export metrics.json path | default /tmp/rocketmq/export"),
        ), ""),
)
