"""Telemetry, Heartbeat and NotifyClientTermination: clients, and what the broker asks of them.

A client says with its settings what it does, and heartbeats repeat that: both become HEART_BEAT of remoting. So the
client is in the tables of producers and consumers, and disappears from them as others do. Settings are answered at
once, before anything slow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from triomq.broker.assembly.serving import Serving
from triomq.broker.grpc.call import Call
from triomq.broker.grpc.client import GrpcClient
from triomq.broker.grpc.gathering import ask
from triomq.broker.grpc.messages import fill
from triomq.broker.grpc.producing import transaction_id
from triomq.broker.grpc.results import OK, Refused, check, set_status
from triomq.broker.grpc.routes import legal_topic
from triomq.broker.processors.pop import MAX_MESSAGES
from triomq.broker.tables.groups import GroupTable
from triomq.grpc_front import schema
from triomq.grpc_front.status import CallFailed, GrpcStatus
from triomq.protocol import property_names as names
from triomq.protocol.bodies.base import replace
from triomq.protocol.bodies.heartbeat import (
    CLUSTERING,
    CONSUME_ACTIVELY,
    CONSUME_FROM_LAST_OFFSET,
    CONSUME_PASSIVELY,
    ConsumerData,
    HeartbeatData,
    ProducerData,
)
from triomq.protocol.bodies.running_info import PROP_CONSUME_TYPE, ConsumeMessageDirectlyResult, ConsumerRunningInfo
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RPC_RESPONSE, RemotingCommand, new_response
from triomq.protocol.headers.client import GetConsumerRunningInfoRequestHeader
from triomq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from triomq.protocol.record import decode_record
from triomq.protocol.subscription import SQL92, TAG, SubscriptionData, SubscriptionError, build_subscription

Code: Final = schema.Code
ClientType: Final = schema.ClientType
_CONSUMERS: Final = (ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER)
RETRY_SECONDS: Final = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""When a push consumer gets a message again that it failed to consume (RocketMQ: CustomizedRetryPolicy)."""
LONG_POLLING_SECONDS: Final = 20
PRODUCER_ATTEMPTS: Final = 3


class Registering:
    """See the module's docstring."""

    def __init__(self, serving: Serving) -> None:
        self._configuration = serving.tables.configuration
        self._groups: GroupTable = serving.tables.metadata.groups

    def told(self, call: Call, command: Any) -> None:
        """A client sends something over its telemetry stream."""
        client = call.client
        kind = command.WhichOneof("command")
        before = client.telemetry
        if not isinstance(before, TelemetryStream) or before.call is not call:
            if before is not None:
                before.end()
            client.telemetry = TelemetryStream(client, call)
        if kind == "settings":
            self._settings(call, command.settings)
        elif kind in ANSWERS:
            client.answered(ANSWERS[kind](client, command))

    def _settings(self, call: Call, settings: Any) -> None:
        client = call.client
        if settings.WhichOneof("pub_sub") is None:
            text = "the settings have neither publishing nor subscription"
            call.fail(CallFailed(GrpcStatus.INVALID_ARGUMENT, text))
            return
        try:
            body = _heartbeat(client, settings)
        except Refused as refusal:
            call.fail(CallFailed(GrpcStatus.INVALID_ARGUMENT, refusal.text))
            return
        client.settings = settings
        outcome: list[RemotingCommand] = []
        client.request(call.head.fields, RequestCode.HEART_BEAT, None, body, outcome.append)
        answer = schema.TelemetryCommand()
        set_status(answer.status, OK, None)
        try:
            if outcome:  # it may wait until a new group is safe; then the next heartbeat says how that ended
                check(outcome[0])
            answer.settings.CopyFrom(settings)
            self._complete(client, answer.settings)
        except Refused as refusal:
            set_status(answer.status, refusal.code, refusal.text)
        call.send(answer)

    def _complete(self, client: GrpcClient, settings: Any) -> None:
        """Add what the server decides."""
        settings.metric.on = False
        policy = settings.backoff_policy
        policy.Clear()
        if settings.WhichOneof("pub_sub") == "publishing":
            policy.max_attempts = PRODUCER_ATTEMPTS
            backoff = policy.exponential_backoff
            backoff.initial.nanos = 10_000_000
            backoff.max.seconds = 1
            backoff.multiplier = 2
            settings.publishing.max_body_size = self._configuration.store.max_message_size_bytes
            settings.publishing.validate_message_type = False
            return
        group = self._groups.get(settings.subscription.group.name)
        settings.subscription.fifo = group is not None and group.consume_message_orderly is True
        settings.subscription.receive_batch_size = MAX_MESSAGES
        settings.subscription.long_polling_timeout.seconds = LONG_POLLING_SECONDS
        policy.max_attempts = (group.retry_max_times if group is not None else 16) + 1
        for seconds in RETRY_SECONDS:
            policy.customized_backoff.next.add(seconds=seconds)

    def heartbeat(self, call: Call, request: Any) -> None:
        """Heartbeat. Raises Refused."""
        client = call.client
        if client.settings is None:
            text = "the client has sent no settings over a telemetry stream of this connection"
            raise Refused(Code.UNRECOGNIZED_CLIENT_TYPE, text)

        def done(response: RemotingCommand) -> None:
            check(response)
            call.reply(schema.HeartbeatResponse())

        ask(call, RequestCode.HEART_BEAT, None, done, _heartbeat(client, client.settings))

    def terminate(self, call: Call, request: Any) -> None:
        """NotifyClientTermination: the client leaves its groups at once."""
        call.reply(schema.NotifyClientTerminationResponse())
        call.client.end_telemetry()
        call.client.close("the client has ended")


def _heartbeat(client: GrpcClient, settings: Any) -> bytes:
    """Return the heartbeat of remoting that says what settings say. Raises Refused."""
    if settings.WhichOneof("pub_sub") == "publishing":
        topics = [legal_topic(topic.name) for topic in settings.publishing.topics]
        producers = [ProducerData(group_name=topic) for topic in dict.fromkeys(topics)]
        return HeartbeatData(client_id=client.client_id, producer_data_set=producers).encode()
    subscription = settings.subscription
    if settings.client_type not in _CONSUMERS:
        text = f"a client of type {settings.client_type} is not served: producers, push and simple consumers are"
        raise Refused(Code.UNRECOGNIZED_CLIENT_TYPE, text)
    is_push = settings.client_type == ClientType.PUSH_CONSUMER
    consumer = ConsumerData(
        group_name=subscription.group.name,
        consume_type=CONSUME_PASSIVELY if is_push else CONSUME_ACTIVELY,
        message_model=CLUSTERING,
        consume_from_where=CONSUME_FROM_LAST_OFFSET,
        subscription_data_set=[_subscription(entry) for entry in subscription.subscriptions],
    )
    return HeartbeatData(client_id=client.client_id, consumer_data_set=[consumer]).encode()


def _subscription(entry: Any) -> SubscriptionData:
    kind = SQL92 if entry.expression.type == schema.FilterType.SQL else TAG
    try:
        return build_subscription(legal_topic(entry.topic.name), entry.expression.expression, kind)
    except SubscriptionError as error:
        raise Refused(Code.ILLEGAL_FILTER_EXPRESSION, str(error)) from None


def _check_transaction(told: Any, request: RemotingCommand) -> None:
    """Ask how a transaction has ended."""
    header = request.header(CheckTransactionStateRequestHeader)
    half = decode_record(request.body, decompress=False)
    asked = told.recover_orphaned_transaction_command
    fill(asked.message, half, half.topic)
    asked.transaction_id = transaction_id(header.commit_log_offset, header.tran_state_table_offset)


def _verify_message(told: Any, request: RemotingCommand) -> None:
    """Have a message consumed at once. The nonce, which the result repeats, is the opaque of the request."""
    stored = decode_record(request.body, decompress=False)
    fill(told.verify_message_command.message, stored, stored.properties.get(names.RETRY_TOPIC) or stored.topic)
    told.verify_message_command.nonce = str(request.opaque)


def _print_stacks(told: Any, request: RemotingCommand) -> None:
    told.print_thread_stack_trace_command.nonce = str(request.opaque)


_COMMANDS: Final[dict[int, Callable[[Any, RemotingCommand], None]]] = {
    RequestCode.CHECK_TRANSACTION_STATE: _check_transaction,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _verify_message,
    RequestCode.GET_CONSUMER_RUNNING_INFO: _print_stacks,
}
"""What requests to a client become."""


def _verified(client: GrpcClient, told: Any) -> RemotingCommand:
    results = {int(OK): "CR_SUCCESS", int(Code.FAILED_TO_CONSUME_MESSAGE): "CR_LATER"}
    remark = None if told.status.code == OK else told.status.message
    body = ConsumeMessageDirectlyResult(
        consume_result=results.get(told.status.code, "CR_RETURN_NULL"), remark=remark or None
    )
    return _response(told.verify_message_result.nonce, body.encode())


def _stacks(client: GrpcClient, told: Any) -> RemotingCommand:
    text = told.thread_stack_trace.thread_stack_trace or told.status.message
    return _response(told.thread_stack_trace.nonce, replace(_running_info(client), jstack=text).encode())


ANSWERS: Final[dict[str, Callable[[GrpcClient, Any], RemotingCommand]]] = {
    "verify_message_result": _verified,
    "thread_stack_trace": _stacks,
}
"""What answers of a client become, by their place in a TelemetryCommand."""


def _response(nonce: str, body: bytes) -> RemotingCommand:
    """Return the response to the request that a nonce names; one that it does not name waits for none."""
    opaque = int(nonce) if nonce.isascii() and nonce.isdigit() and len(nonce) < 11 else -1
    return RemotingCommand(ResponseCode.SUCCESS, body=body, flag=RPC_RESPONSE, opaque=opaque)


def _running_info(client: GrpcClient) -> ConsumerRunningInfo:
    """Return what a consumer does, as far as its settings say."""
    subscription = client.settings.subscription
    is_push = client.settings.client_type == ClientType.PUSH_CONSUMER
    return ConsumerRunningInfo(
        properties={PROP_CONSUME_TYPE: CONSUME_PASSIVELY if is_push else CONSUME_ACTIVELY},
        subscription_set=[_subscription(entry) for entry in subscription.subscriptions],
    )


class TelemetryStream:
    """The telemetry stream of one client."""

    def __init__(self, client: GrpcClient, call: Call) -> None:
        self._client = client
        self.call = call
        call.given_up_calls(self._gone)

    def knows(self, command: RemotingCommand) -> bool:
        return command.code in _COMMANDS

    def known_answer(self, command: RemotingCommand) -> RemotingCommand | None:
        """Return what a consumer does, if its stacks are not asked for, too: it has said so in its settings."""
        if command.code != RequestCode.GET_CONSUMER_RUNNING_INFO:
            return None
        if command.header(GetConsumerRunningInfoRequestHeader).jstack_enable:
            return None
        return new_response(command, body=_running_info(self._client).encode())

    def pass_on(self, command: RemotingCommand) -> None:
        told = schema.TelemetryCommand()
        _COMMANDS[command.code](told, command)
        self.call.send(told)

    def end(self) -> None:
        if self._client.settings is not None and not self.call.is_over:
            command = schema.TelemetryCommand()
            command.reconnect_endpoints_command.nonce = ""
            self.call.send(command)
        self._gone()
        self.call.finish()

    def _gone(self) -> None:
        self._client.lose(self)
