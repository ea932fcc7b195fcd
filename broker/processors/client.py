"""Client registration: HEART_BEAT, UNREGISTER_CLIENT, CHECK_CLIENT_CONFIG (RocketMQ: ClientManageProcessor).

Only heartbeats add clients to the tables. A client sends one every 30 s, with its complete state.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from triomq.broker.configuration import Configuration
from triomq.broker.filters.limits import MAX_EXPRESSION_CHARACTERS, REMEMBERED_CHARACTERS
from triomq.broker.processors.steps import OrderedRequests, check_expression, compile_steps
from triomq.broker.pulls.selection import unknown_type
from triomq.broker.tables.consumers import ConsumerTable, Consumption
from triomq.broker.tables.metadata import Metadata
from triomq.broker.tables.producers import ProducerTable
from triomq.protocol import permission
from triomq.protocol.bodies.heartbeat import (
    CLUSTERING,
    CONSUME_FROM_LAST_OFFSET,
    CONSUME_FROM_WHERES,
    CONSUME_PASSIVELY,
    CONSUME_TYPES,
    MESSAGE_MODELS,
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    enum_name,
)
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.client import UnregisterClientRequestHeader
from triomq.protocol.subscription import SQL92
from triomq.protocol.system_topics import check_group_length, check_topic_length, retry_topic
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Processor

if TYPE_CHECKING:
    from triomq.broker.filters.sql92 import Compiled

MAX_SUBSCRIPTIONS = 2000
"""Subscriptions in one heartbeat, over all groups."""

MAX_HEARTBEAT_BYTES = 1024 * 1024
"""Twice what that many subscriptions take. Decoding more would hold all other clients up."""

SHORT_HEARTBEAT_BYTES: Final = 8192
"""A longer heartbeat is decoded in a step of its own."""

WORK_IN_A_STEP: Final = 8
"""Groups that one step of a heartbeat registers: some hundred microseconds. Other clients wait meanwhile."""

SUBSCRIPTIONS_LIKE_A_GROUP: Final = 64
"""The number of subscriptions that take as long as one group."""

MOST_REMARKS: Final = 3
"""Groups whose members disagree that one response to a heartbeat names."""

_CONSUMPTIONS: Final = {
    names: Consumption(*names) for names in product(CONSUME_TYPES, MESSAGE_MODELS, CONSUME_FROM_WHERES)
}

UNIT_SUB_FLAG = 2
"""topicSysFlag of the retry topic of a group in unit mode."""


class ClientProcessor:
    """Registers and unregisters producers and consumers."""

    def __init__(self, configuration: Configuration, metadata: Metadata) -> None:
        self._configuration = configuration
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._consumers = metadata.consumers
        self._producers = metadata.producers
        self._filters = metadata.filters
        self._steps = OrderedRequests()

    def processors(self) -> dict[int, Processor]:
        """Return request code -> processor."""
        return {
            RequestCode.HEART_BEAT: self.heartbeat,
            RequestCode.UNREGISTER_CLIENT: self.unregister,
            RequestCode.CHECK_CLIENT_CONFIG: self.check_config,
        }

    def heartbeat(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand]:
        """Handle HEART_BEAT: register the client in its groups, and create the retry topics of its consumer groups, at
        once if they are few. The response waits until those that are new are safe (new_names.py)."""
        if len(request.body) > MAX_HEARTBEAT_BYTES:
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"the heartbeat has {len(request.body)} bytes, the limit is {MAX_HEARTBEAT_BYTES}; spread the groups "
                "over more clients",
            )
        remarks: list[str] = []

        def respond(request: RemotingCommand) -> RemotingCommand:
            """Clients that do not know the remark of a success ignore it, RocketMQ's among them."""
            return new_response(request, remark="; ".join(remarks) or None)

        new_groups: list[str] = []
        if len(request.body) > SHORT_HEARTBEAT_BYTES:
            steps = self._decode_and_register(connection, request, remarks, new_groups)
            return self._kept(self._steps.begin(connection, request, steps, respond), new_groups)
        data, client_id = self._decoded(request)
        steps = self._register(connection, request, data, client_id, remarks, new_groups)
        response = self._done(connection, request, steps, _is_short(data), respond)
        if isinstance(response, RemotingCommand) and not new_groups:
            return response
        return self._kept(response, new_groups)

    async def _kept(
        self, response: RemotingCommand | Coroutine[Any, Any, RemotingCommand], new_groups: list[str]
    ) -> RemotingCommand:
        """Return the response to a heartbeat when these groups and their retry topics are safe. Raises
        RequestRefused."""
        if not isinstance(response, RemotingCommand):
            response = await response
        await self._groups.new_names.kept(new_groups)
        await self._topics.new_names.kept([retry_topic(group) for group in new_groups])
        return response

    def _decode_and_register(
        self, connection: Connection, request: RemotingCommand, remarks: list[str], new_groups: list[str]
    ) -> Iterator[None]:
        """Decode a heartbeat when its turn has come: decoded it takes several times the memory of its bytes, and many
        may wait."""
        data, client_id = self._decoded(request)
        yield
        yield from self._register(connection, request, data, client_id, remarks, new_groups)

    def _decoded(self, request: RemotingCommand) -> tuple[HeartbeatData, str]:
        """Return a heartbeat within its limits, and its client. Raises RequestRefused."""
        most_groups = self._configuration.broker.max_groups_per_client
        if request.body.count(b"{") > 2 * (most_groups + MAX_SUBSCRIPTIONS):  # each group and each subscription has one
            raise RequestRefused(
                ResponseCode.SYSTEM_BUSY,
                f"the heartbeat has more than twice the groups ({most_groups}, maxGroupsPerClient) and subscriptions "
                f"({MAX_SUBSCRIPTIONS}) that are allowed; spread the groups over more clients",
            )
        data = HeartbeatData.decode_request(request.body)
        if not data.client_id:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "the heartbeat has no clientID")
        names = [group.group_name for group in data.consumer_data_set]
        if data.producer_data_set:
            names += [group.group_name for group in data.producer_data_set]
        if not all(names):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "a group of the heartbeat has no groupName")
        _check_names(data, data.client_id, names, most_groups)
        return data, data.client_id

    def _done(
        self,
        connection: Connection,
        request: RemotingCommand,
        steps: Iterator[None],
        is_short: bool,
        respond: Callable[[RemotingCommand], RemotingCommand] = new_response,
    ) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand]:
        """Do the work of a request now if it is short, but never before what its connection asked for earlier."""
        if not is_short or self._steps.has(connection):
            return self._steps.begin(connection, request, steps, respond)
        for _ in steps:
            pass
        return respond(request)

    def _register(
        self,
        connection: Connection,
        request: RemotingCommand,
        data: HeartbeatData,
        client_id: str,
        remarks: list[str],
        new_groups: list[str],
    ) -> Iterator[None]:
        """Register the client in its groups. An item ends a step. `remarks` receives what the client should know,
        `new_groups` its groups that are not safe yet, or have a retry topic that is not."""
        refusal: RequestRefused | None = None
        work = 0
        for producer in data.producer_data_set:
            if self._may_join(connection, producer.group_name, self._producers):
                self._producers.register(producer.group_name, connection, client_id, request.language, request.version)
            else:
                refusal = refusal or self._too_many_groups(client_id)
            work += 1
            if work >= WORK_IN_A_STEP:
                work = 0
                yield
        for consumer in data.consumer_data_set:
            compiled = (yield from self._compile(consumer)) if _has_expression(consumer) else []
            try:
                if not self._may_join(connection, consumer.group_name, self._consumers):
                    raise self._too_many_groups(client_id)
                self._register_consumer(connection, request, client_id, consumer)
            except RequestRefused as error:
                # A full table refuses new groups; the client's other groups are registered.
                refusal = refusal or error
            compiled.clear()
            if self._is_new(consumer.group_name):
                new_groups.append(consumer.group_name)
            disagreement = self._consumers.disagreement(consumer.group_name)
            if disagreement and len(remarks) < MOST_REMARKS:
                remarks.append(disagreement)
            work += _work_of(consumer)
            if work >= WORK_IN_A_STEP:
                work = 0
                yield
        if refusal is not None:
            try:
                raise refusal
            finally:
                refusal = None  # it refers to this frame, and so would keep the whole heartbeat until a collection

    def _is_new(self, group: str) -> bool:
        groups, topics = self._groups.new_names.names, self._topics.new_names.names
        return bool(groups or topics) and (group in groups or retry_topic(group) in topics)

    def _compile(self, consumer: ConsumerData) -> Generator[None, None, list[Compiled | None]]:
        """Compile the new long expressions of a group in steps. They are ready as long as what it returns is held."""
        compiled: list[Compiled | None] = []
        for subscription in consumer.subscription_data_set:
            if self._filters.is_new(consumer.group_name, subscription):
                compiled.append((yield from compile_steps(subscription.sub_string)))
        return compiled

    def _may_join(self, connection: Connection, group: str, table: ConsumerTable | ProducerTable) -> bool:
        """Return whether the client is in the group, or in few enough of them to join another."""
        if table.is_member(group, connection):
            return True
        count = self._consumers.group_count(connection) + self._producers.group_count(connection)
        return count < self._configuration.broker.max_groups_per_client

    def _too_many_groups(self, client_id: str) -> RequestRefused:
        return RequestRefused(
            ResponseCode.SYSTEM_BUSY,
            f"{client_id[:200]} is in {self._configuration.broker.max_groups_per_client} groups, the limit "
            "(maxGroupsPerClient); leave some (UNREGISTER_CLIENT) or spread them over more clients",
        )

    def _register_consumer(
        self, connection: Connection, request: RemotingCommand, client_id: str, consumer: ConsumerData
    ) -> None:
        config = self._groups.find(consumer.group_name)
        topics = self._topics
        if config is not None and (topics.log is None or topics.log.leads):
            topics.create_on_send_back(
                retry_topic(consumer.group_name),
                config.retry_queue_nums,
                permission.READ_WRITE,
                UNIT_SUB_FLAG if consumer.unit_mode else 0,
            )
        self._consumers.register(
            consumer.group_name,
            connection,
            client_id,
            request.language,
            request.version,
            _CONSUMPTIONS[
                enum_name(consumer.consume_type, CONSUME_TYPES, CONSUME_PASSIVELY),
                enum_name(consumer.message_model, MESSAGE_MODELS, CLUSTERING),
                enum_name(consumer.consume_from_where, CONSUME_FROM_WHERES, CONSUME_FROM_LAST_OFFSET),
            ],
            consumer.subscription_data_set,
            notify=config is None or config.notify_consumer_ids_changed_enable,
        )

    def unregister(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand]:
        """Handle UNREGISTER_CLIENT: remove the connection from the named groups."""
        header = request.header(UnregisterClientRequestHeader)
        return self._done(connection, request, self._unregister(connection, header), is_short=True)

    def _unregister(self, connection: Connection, header: UnregisterClientRequestHeader) -> Iterator[None]:
        if header.producer_group is not None:
            self._producers.unregister(header.producer_group, connection)
        if header.consumer_group is not None:
            config = self._groups.get(header.consumer_group)
            notify = config is None or config.notify_consumer_ids_changed_enable
            self._consumers.unregister(header.consumer_group, connection, notify=notify)
        yield

    def check_config(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand]:
        """Handle CHECK_CLIENT_CONFIG: check whether the broker accepts this subscription."""
        subscription = CheckClientRequestBody.decode_request(request.body).subscription_data
        if subscription is None or subscription.is_tag:
            return new_response(request)
        if not self._configuration.broker.enable_property_filter:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {subscription.expression_type}",
            )
        if subscription.expression_type != SQL92:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_PARSE_FAILED, unknown_type(subscription.expression_type))
        expression = subscription.sub_string
        return self._done(connection, request, check_expression(expression), len(expression) <= REMEMBERED_CHARACTERS)


def _is_short(data: HeartbeatData) -> bool:
    """Return whether a heartbeat is registered in one step: it has few groups, and no long expression to compile."""
    work = len(data.producer_data_set)
    for consumer in data.consumer_data_set:
        work += _work_of(consumer)
        for subscription in consumer.subscription_data_set:
            if len(subscription.sub_string) > REMEMBERED_CHARACTERS and subscription.expression_type == SQL92:
                return False
    return work <= WORK_IN_A_STEP


def _has_expression(consumer: ConsumerData) -> bool:
    for subscription in consumer.subscription_data_set:  # noqa: SIM110  a loop is twice as fast as `any`
        if subscription.expression_type == SQL92:
            return True
    return False


def _work_of(consumer: ConsumerData) -> int:
    return 1 + len(consumer.subscription_data_set) // SUBSCRIPTIONS_LIKE_A_GROUP


def _check_names(data: HeartbeatData, client_id: str, groups: list[str], max_groups: int) -> None:
    """Refuse a heartbeat with too many names or with one that is too long, before anything is registered."""
    if len(groups) > max_groups:
        raise RequestRefused(
            ResponseCode.SYSTEM_BUSY,
            f"the heartbeat of {client_id[:200]} has {len(groups)} groups, the limit (maxGroupsPerClient) is "
            f"{max_groups}; spread them over more clients",
        )
    for group in groups:
        check_group_length(group)
    count = sum([len(group.subscription_data_set) for group in data.consumer_data_set])
    if count > MAX_SUBSCRIPTIONS:
        raise RequestRefused(
            ResponseCode.SYSTEM_BUSY, f"the heartbeat has {count} subscriptions, the limit is {MAX_SUBSCRIPTIONS}"
        )
    for consumer in data.consumer_data_set:
        for subscription in consumer.subscription_data_set:
            check_topic_length(subscription.topic)
            if len(subscription.sub_string) > MAX_EXPRESSION_CHARACTERS:
                raise RequestRefused(
                    ResponseCode.SYSTEM_BUSY,
                    f"the subscription to {subscription.topic} has {len(subscription.sub_string)} characters, the "
                    f"limit is {MAX_EXPRESSION_CHARACTERS}",
                )
            tag_characters = sum(map(len, subscription.tags_set))
            if tag_characters > MAX_EXPRESSION_CHARACTERS:  # they are those of the expression
                raise RequestRefused(
                    ResponseCode.SYSTEM_BUSY,
                    f"the tags of the subscription to {subscription.topic} have {tag_characters} characters, the limit "
                    f"is {MAX_EXPRESSION_CHARACTERS}",
                )
