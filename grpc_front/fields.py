"""The fields and enums of apache.rocketmq.v2, as text; schema.py makes classes of them.

A line without indentation names a message or an enum. The others are its members: number, name and type of a field, and
whether it is `optional` (has presence), `repeated`, or part of a `oneof`; number and name of a value.

Left out are the methods that RocketMQ 5.3.3 does not have or does not serve (pull, offsets, lite topics) and their
fields. A field that is not here is skipped when a message is read.
"""

from __future__ import annotations

from typing import Final

MESSAGES: Final = """
FilterExpression
  1 type FilterType
  2 expression string
RetryPolicy
  1 max_attempts int32
  2 exponential_backoff ExponentialBackoff oneof strategy
  3 customized_backoff CustomizedBackoff oneof strategy
ExponentialBackoff
  1 initial Duration
  2 max Duration
  3 multiplier float
CustomizedBackoff
  1 next Duration repeated
Resource
  1 resource_namespace string
  2 name string
SubscriptionEntry
  1 topic Resource
  2 expression FilterExpression
Address
  1 host string
  2 port int32
Endpoints
  1 scheme AddressScheme
  2 addresses Address repeated
Broker
  1 name string
  2 id int32
  3 endpoints Endpoints
MessageQueue
  1 topic Resource
  2 id int32
  3 permission Permission
  4 broker Broker
  5 accept_message_types MessageType repeated
Digest
  1 type DigestType
  2 checksum string
SystemProperties
  1 tag string optional
  2 keys string repeated
  3 message_id string
  4 body_digest Digest
  5 body_encoding Encoding
  6 message_type MessageType
  7 born_timestamp Timestamp
  8 born_host string
  9 store_timestamp Timestamp optional
  10 store_host string
  11 delivery_timestamp Timestamp optional
  12 receipt_handle string optional
  13 queue_id int32
  14 queue_offset int64 optional
  15 invisible_duration Duration optional
  16 delivery_attempt int32 optional
  17 message_group string optional
  18 trace_context string optional
  19 orphaned_transaction_recovery_duration Duration optional
  20 dead_letter_queue DeadLetterQueue optional
DeadLetterQueue
  1 topic string
  2 message_id string
Message
  1 topic Resource
  2 user_properties map<string,string>
  3 system_properties SystemProperties
  4 body bytes
Assignment
  1 message_queue MessageQueue
Status
  1 code Code
  2 message string
UA
  1 language Language
  2 version string
  3 platform string
  4 hostname string
Settings
  1 client_type ClientType optional
  2 access_point Endpoints optional
  3 backoff_policy RetryPolicy optional
  4 request_timeout Duration optional
  5 publishing Publishing oneof pub_sub
  6 subscription Subscription oneof pub_sub
  7 user_agent UA
  8 metric Metric
Publishing
  1 topics Resource repeated
  2 max_body_size int32
  3 validate_message_type bool
Subscription
  1 group Resource optional
  2 subscriptions SubscriptionEntry repeated
  3 fifo bool optional
  4 receive_batch_size int32 optional
  5 long_polling_timeout Duration optional
Metric
  1 on bool
  2 endpoints Endpoints optional
QueryRouteRequest
  1 topic Resource
  2 endpoints Endpoints
QueryRouteResponse
  1 status Status
  2 message_queues MessageQueue repeated
SendMessageRequest
  1 messages Message repeated
SendResultEntry
  1 status Status
  2 message_id string
  3 transaction_id string
  4 offset int64
SendMessageResponse
  1 status Status
  2 entries SendResultEntry repeated
QueryAssignmentRequest
  1 topic Resource
  2 group Resource
  3 endpoints Endpoints
QueryAssignmentResponse
  1 status Status
  2 assignments Assignment repeated
ReceiveMessageRequest
  1 group Resource
  2 message_queue MessageQueue
  3 filter_expression FilterExpression
  4 batch_size int32
  5 invisible_duration Duration optional
  6 auto_renew bool
  7 long_polling_timeout Duration optional
  8 attempt_id string optional
ReceiveMessageResponse
  1 status Status oneof content
  2 message Message oneof content
  3 delivery_timestamp Timestamp oneof content
AckMessageEntry
  1 message_id string
  2 receipt_handle string
AckMessageRequest
  1 group Resource
  2 topic Resource
  3 entries AckMessageEntry repeated
AckMessageResultEntry
  1 message_id string
  2 receipt_handle string
  3 status Status
AckMessageResponse
  1 status Status
  2 entries AckMessageResultEntry repeated
ForwardMessageToDeadLetterQueueRequest
  1 group Resource
  2 topic Resource
  3 receipt_handle string
  4 message_id string
  5 delivery_attempt int32
  6 max_delivery_attempts int32
ForwardMessageToDeadLetterQueueResponse
  1 status Status
HeartbeatRequest
  1 group Resource optional
  2 client_type ClientType
HeartbeatResponse
  1 status Status
EndTransactionRequest
  1 topic Resource
  2 message_id string
  3 transaction_id string
  4 resolution TransactionResolution
  5 source TransactionSource
  6 trace_context string
EndTransactionResponse
  1 status Status
PrintThreadStackTraceCommand
  1 nonce string
ReconnectEndpointsCommand
  1 nonce string
ThreadStackTrace
  1 nonce string
  2 thread_stack_trace string optional
VerifyMessageCommand
  1 nonce string
  2 message Message
VerifyMessageResult
  1 nonce string
RecoverOrphanedTransactionCommand
  1 message Message
  2 transaction_id string
TelemetryCommand
  1 status Status optional
  2 settings Settings oneof command
  3 thread_stack_trace ThreadStackTrace oneof command
  4 verify_message_result VerifyMessageResult oneof command
  5 recover_orphaned_transaction_command RecoverOrphanedTransactionCommand oneof command
  6 print_thread_stack_trace_command PrintThreadStackTraceCommand oneof command
  7 verify_message_command VerifyMessageCommand oneof command
  8 reconnect_endpoints_command ReconnectEndpointsCommand oneof command
NotifyClientTerminationRequest
  1 group Resource optional
NotifyClientTerminationResponse
  1 status Status
ChangeInvisibleDurationRequest
  1 group Resource
  2 topic Resource
  3 receipt_handle string
  4 invisible_duration Duration
  5 message_id string
ChangeInvisibleDurationResponse
  1 status Status
  2 receipt_handle string
"""

ENUMS: Final = """
TransactionResolution
  0 TRANSACTION_RESOLUTION_UNSPECIFIED
  1 COMMIT
  2 ROLLBACK
TransactionSource
  0 SOURCE_UNSPECIFIED
  1 SOURCE_CLIENT
  2 SOURCE_SERVER_CHECK
Permission
  0 PERMISSION_UNSPECIFIED
  1 NONE
  2 READ
  3 WRITE
  4 READ_WRITE
FilterType
  0 FILTER_TYPE_UNSPECIFIED
  1 TAG
  2 SQL
AddressScheme
  0 ADDRESS_SCHEME_UNSPECIFIED
  1 IPv4
  2 IPv6
  3 DOMAIN_NAME
MessageType
  0 MESSAGE_TYPE_UNSPECIFIED
  1 NORMAL
  2 FIFO
  3 DELAY
  4 TRANSACTION
DigestType
  0 DIGEST_TYPE_UNSPECIFIED
  1 CRC32
  2 MD5
  3 SHA1
ClientType
  0 CLIENT_TYPE_UNSPECIFIED
  1 PRODUCER
  2 PUSH_CONSUMER
  3 SIMPLE_CONSUMER
  4 PULL_CONSUMER
Encoding
  0 ENCODING_UNSPECIFIED
  1 IDENTITY
  2 GZIP
Code
  0 CODE_UNSPECIFIED
  20000 OK
  30000 MULTIPLE_RESULTS
  40000 BAD_REQUEST
  40001 ILLEGAL_ACCESS_POINT
  40002 ILLEGAL_TOPIC
  40003 ILLEGAL_CONSUMER_GROUP
  40004 ILLEGAL_MESSAGE_TAG
  40005 ILLEGAL_MESSAGE_KEY
  40006 ILLEGAL_MESSAGE_GROUP
  40007 ILLEGAL_MESSAGE_PROPERTY_KEY
  40008 INVALID_TRANSACTION_ID
  40009 ILLEGAL_MESSAGE_ID
  40010 ILLEGAL_FILTER_EXPRESSION
  40011 ILLEGAL_INVISIBLE_TIME
  40012 ILLEGAL_DELIVERY_TIME
  40013 INVALID_RECEIPT_HANDLE
  40014 MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
  40015 UNRECOGNIZED_CLIENT_TYPE
  40016 MESSAGE_CORRUPTED
  40017 CLIENT_ID_REQUIRED
  40018 ILLEGAL_POLLING_TIME
  40019 ILLEGAL_OFFSET
  40100 UNAUTHORIZED
  40200 PAYMENT_REQUIRED
  40300 FORBIDDEN
  40400 NOT_FOUND
  40401 MESSAGE_NOT_FOUND
  40402 TOPIC_NOT_FOUND
  40403 CONSUMER_GROUP_NOT_FOUND
  40404 OFFSET_NOT_FOUND
  40800 REQUEST_TIMEOUT
  41300 PAYLOAD_TOO_LARGE
  41301 MESSAGE_BODY_TOO_LARGE
  41302 MESSAGE_BODY_EMPTY
  42800 PRECONDITION_FAILED
  42900 TOO_MANY_REQUESTS
  43100 REQUEST_HEADER_FIELDS_TOO_LARGE
  43101 MESSAGE_PROPERTIES_TOO_LARGE
  50000 INTERNAL_ERROR
  50001 INTERNAL_SERVER_ERROR
  50002 HA_NOT_AVAILABLE
  50100 NOT_IMPLEMENTED
  50400 PROXY_TIMEOUT
  50401 MASTER_PERSISTENCE_TIMEOUT
  50402 SLAVE_PERSISTENCE_TIMEOUT
  50500 UNSUPPORTED
  50501 VERSION_UNSUPPORTED
  50502 VERIFY_FIFO_MESSAGE_UNSUPPORTED
  60000 FAILED_TO_CONSUME_MESSAGE
Language
  0 LANGUAGE_UNSPECIFIED
  1 JAVA
  2 CPP
  3 DOT_NET
  4 GOLANG
  5 RUST
  6 PYTHON
  7 PHP
  8 NODE_JS
  9 RUBY
  10 OBJECTIVE_C
  11 DART
  12 KOTLIN
"""
