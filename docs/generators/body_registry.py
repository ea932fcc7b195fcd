"""Body classes by request code: what the servers and clients of TrioMQ decode as JSON.

Each processor names its body class itself. The taste tests compare these tables with the code, so that no body that a
peer sends is missing from the table of limits.
"""

from __future__ import annotations

from typing import Final

from triomq.protocol.bodies.assignment import QueryAssignmentRequestBody, RequestMode
from triomq.protocol.bodies.base import Body
from triomq.protocol.bodies.batch_ack import BatchAckMessageRequestBody
from triomq.protocol.bodies.consume_stats import TopicStatsTable
from triomq.protocol.bodies.heartbeat import CheckClientRequestBody, HeartbeatData
from triomq.protocol.bodies.kv_table import KVTable
from triomq.protocol.bodies.offset import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    GetConsumerStatusBody,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from triomq.protocol.bodies.queue_lock import LockBatchRequestBody, UnlockBatchRequestBody
from triomq.protocol.bodies.registration import OldRegistration, Registration
from triomq.protocol.bodies.route import ClusterInfo, TopicRouteData
from triomq.protocol.bodies.running_info import ClientRates, ConsumeMessageDirectlyResult, ConsumerRunningInfo
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from triomq.protocol.bodies.topic_config import DataVersion, TopicConfigSerializeWrapper
from triomq.protocol.codes import RequestCode as Code

REQUEST_BODIES: Final[dict[int, tuple[type[Body], ...]]] = {
    Code.HEART_BEAT: (HeartbeatData,),
    Code.CHECK_CLIENT_CONFIG: (CheckClientRequestBody,),
    Code.BATCH_ACK_MESSAGE: (BatchAckMessageRequestBody,),
    Code.LOCK_BATCH_MQ: (LockBatchRequestBody,),
    Code.UNLOCK_BATCH_MQ: (UnlockBatchRequestBody,),
    Code.QUERY_ASSIGNMENT: (QueryAssignmentRequestBody,),
    Code.SET_MESSAGE_REQUEST_MODE: (RequestMode,),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: (SubscriptionGroupConfig,),
    Code.REGISTER_BROKER: (Registration, OldRegistration),
    Code.QUERY_DATA_VERSION: (DataVersion,),
    Code.RESET_CONSUMER_CLIENT_OFFSET: (ResetOffsetBody, ResetOffsetBodyForC),
}
"""Bodies of requests. A broker before V3_0_11 registers with the second form, a C++ client resets with it."""

RESPONSE_BODIES: Final[dict[int, tuple[type[Body], ...]]] = {
    Code.GET_CONSUMER_STATUS_FROM_CLIENT: (GetConsumerStatusBody,),
    Code.GET_CONSUMER_RUNNING_INFO: (ClientRates, ConsumerRunningInfo),
    Code.CONSUME_MESSAGE_DIRECTLY: (ConsumeMessageDirectlyResult,),
    Code.REGISTER_BROKER: (KVTable,),
    Code.GET_ROUTEINFO_BY_TOPIC: (TopicRouteData,),
    Code.QUERY_DATA_VERSION: (DataVersion,),
    Code.GET_ALL_TOPIC_CONFIG: (TopicConfigSerializeWrapper,),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: (SubscriptionGroupWrapper,),
    Code.GET_ALL_CONSUMER_OFFSET: (ConsumerOffsetSerializeWrapper,),
    Code.GET_ALL_DELAY_OFFSET: (DelayOffsetSerializeWrapper,),
    Code.GET_BROKER_RUNTIME_INFO: (KVTable,),
    Code.GET_TOPIC_STATS_INFO: (TopicStatsTable,),
    Code.GET_BROKER_CLUSTER_INFO: (ClusterInfo,),
}
"""Bodies of responses that a broker decodes: of a client that it asks, a NameServer, or its master."""
