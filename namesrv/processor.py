"""NamesrvProcessor: handles the requests of a NameServer, one method per request code (RocketMQ:
DefaultRequestProcessor).

Every response comes from tables in memory, at once; only changes of the key-value table and of the configuration wait
for a file. Bad input gets an error response and never costs the connection.

RocketMQ's NameServer does not respond to unknown request codes, so the caller waits for its timeout. Here the processor
table responds with code 3, "request type <n> not supported", as brokers do; all clients understand that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import structlog
import trio

from triomq.daemon.audit import State, audit_line
from triomq.daemon.version import product_values
from triomq.namesrv.kv_config import KvConfig
from triomq.namesrv.registration import Registrar
from triomq.namesrv.route_limits import RouteLimits
from triomq.namesrv.routes import UNIT_FLAG, UNIT_SUB_FLAG, RouteTable
from triomq.namesrv.runtime_config import BeforeAndAfter, RuntimeConfig
from triomq.protocol.bodies.kv_table import ORDER_TOPIC_CONFIG
from triomq.protocol.bodies.name_list import TopicList
from triomq.protocol.bodies.route import TopicRouteData
from triomq.protocol.bodies.topic_config import DataVersion
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import BodyError, HeaderFieldError, RequestRefused
from triomq.protocol.headers.namesrv import (
    AddWritePermOfBrokerRequestHeader,
    AddWritePermOfBrokerResponseHeader,
    DeleteKVConfigRequestHeader,
    DeleteTopicFromNamesrvRequestHeader,
    GetKVConfigRequestHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    PutKVConfigRequestHeader,
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    WipeWritePermOfBrokerRequestHeader,
    WipeWritePermOfBrokerResponseHeader,
)
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Pool, Processor, ProcessorTable
from triomq.remoting.scheduling.places import Place
from triomq.remoting.table_memory import TableAccount, TableMemory

log = structlog.get_logger("triomq.namesrv.processor")
audit = structlog.get_logger("triomq.namesrv.audit")

FIRST_VERSION_WITH_STANDARD_JSON = 401  # V4_9_4

MAX_KEPT_ANSWERS = 20_000
MAX_KEPT_BYTES = 64 * 1024**2
"""Encoded routes that are kept, as long as the tables have memory. One of them may name every broker."""
_KEPT_ANSWER_COST = 200

MAX_VERSION_BYTES = 4096
"""Bytes of the version that a broker asks about."""

SHOWN_CHARACTERS = 1000
"""Characters of a value of the key-value table in the audit log."""

AskProductEnvironment = Callable[[RemotingCommand], Awaitable[bytes | None]]
"""Asks another environment for a route (clusterTest): the TopicRouteData body, or None."""

_LaterAnswer = Coroutine[Any, Any, RemotingCommand]
_KvChange = Coroutine[Any, Any, "str | None"]


class NamesrvProcessor:
    """The request codes of one NameServer, over its three tables.

    It caches encoded routes until the route table's revision changes, since thousands of clients request the same
    routes every 30 seconds.
    """

    def __init__(
        self,
        routes: RouteTable,
        kv_config: KvConfig,
        config: RuntimeConfig,
        *,
        ask_product_environment: AskProductEnvironment | None = None,
        account: TableAccount | None = None,
    ) -> None:
        self._routes = routes
        self._registrar = Registrar(routes, kv_config)
        self._kv_config = kv_config
        self._config = config
        self._ask_product_environment = ask_product_environment
        self._kept_answers: dict[tuple[str, object], bytes] = {}
        self._kept_revision = -1
        self.kept_bytes = 0
        self._account = account if account is not None else TableMemory().account("kept routes")
        self.apply_limits()

    def register_all(self, table: ProcessorTable) -> None:
        """Register every code in a processor table."""
        at_once: dict[RequestCode, Processor] = {
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._get_kv_namespace,
            RequestCode.REGISTER_BROKER: self._registrar.register,
            RequestCode.UNREGISTER_BROKER: self._registrar.unregister,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._get_route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._get_cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._get_all_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._get_topics_by_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._get_system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._get_unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._get_unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._get_unit_sub_ununit_topics,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
            RequestCode.QUERY_DEPARTED_BROKERS: self._query_departed,
        }
        for code, processor in at_once.items():
            table.register(code, processor)
        # Changes queue at one lock each; the queue's bound keeps a flood of them from filling memory.
        changes = Pool("namesrv changes", 1000)
        table.register(RequestCode.PUT_KV_CONFIG, self._put_kv, changes)
        table.register(RequestCode.DELETE_KV_CONFIG, self._delete_kv, changes)
        table.register(RequestCode.UPDATE_NAMESRV_CONFIG, self._update_config, changes)

    def apply_limits(self) -> None:
        """Apply the configuration's current limits to the tables."""
        settings = self._config.namesrv
        self._routes.is_protected = settings.protect_routes
        self._routes.limits = RouteLimits(settings.max_topics, settings.max_broker_addresses)
        self._kv_config.max_table_bytes = settings.max_kv_bytes

    # Brokers.

    def _query_data_version(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = request.header(QueryDataVersionRequestHeader)
        if len(request.body) > MAX_VERSION_BYTES:
            raise BodyError(f"a DataVersion of {len(request.body)} bytes was sent; the limit is {MAX_VERSION_BYTES}")
        theirs = DataVersion.decode_request(request.body)
        is_changed = self._routes.brokers.is_changed(header.broker_addr, theirs)
        if not is_changed:
            self._routes.brokers.seen(header.broker_addr, trio.current_time())
        ours = self._routes.brokers.data_version(header.broker_addr)
        return new_response(
            request,
            header=QueryDataVersionResponseHeader(changed=is_changed),
            body=b"" if ours is None else ours.encode(),
        )

    # Routes.

    def _get_route(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | _LaterAnswer:
        try:
            header = request.header(GetRouteInfoRequestHeader)
        except HeaderFieldError:
            return _no_route(request, "null")
        is_standard = request.version >= FIRST_VERSION_WITH_STANDARD_JSON or bool(header.accept_standard_json_only)
        body = self._route_answer(header.topic, is_standard)
        if body is not None:
            return new_response(request, body=body)
        if self._ask_product_environment is not None:
            return self._get_product_route(request, header.topic, is_standard, self._ask_product_environment)
        return _no_route(request, header.topic)

    async def _get_product_route(
        self, request: RemotingCommand, topic: str, is_standard: bool, ask: AskProductEnvironment
    ) -> RemotingCommand:
        body = await ask(request)
        if body is None:
            body = self._route_answer(topic, is_standard)  # it may have been registered here during the call
        return _no_route(request, topic) if body is None else new_response(request, body=body)

    def _route_answer(self, topic: str, is_standard: bool) -> bytes | None:
        if self._config.namesrv.order_message_enable:
            order_topic_conf = self._kv_config.get(ORDER_TOPIC_CONFIG, topic)
            route = self._routes.route(topic)
            return None if route is None else _encode_route(route, is_standard, order_topic_conf)
        return self._kept_answer((topic, is_standard), lambda: self._encode_route(topic, is_standard))

    def _encode_route(self, topic: str, is_standard: bool) -> bytes | None:
        route = self._routes.route(topic)
        return None if route is None else _encode_route(route, is_standard, None)

    def _kept_answer(self, key: tuple[str, object], make: Callable[[], bytes | None]) -> bytes | None:
        """Return the response of this key as it was made since the last change of the routes."""
        is_full = len(self._kept_answers) >= MAX_KEPT_ANSWERS or self.kept_bytes >= MAX_KEPT_BYTES
        if self._kept_revision != self._routes.revision or is_full:
            self._kept_answers.clear()
            self.kept_bytes = 0
            self._account.set(0)
            self._kept_revision = self._routes.revision
        answer = self._kept_answers.get(key)
        if answer is None:
            answer = make()
            if answer is not None and self._account.fits(_KEPT_ANSWER_COST + len(answer)):
                self._kept_answers[key] = answer
                self.kept_bytes += len(answer)
                self._account.set(_KEPT_ANSWER_COST * len(self._kept_answers) + self.kept_bytes)
        return answer

    def _get_cluster_info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        body = self._kept_answer(("", "brokers"), lambda: self._routes.brokers.cluster_info().encode())
        return new_response(request, body=body or b"")

    def _query_departed(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return new_response(request, body=self._routes.departed(trio.current_time()).encode())

    def _get_all_topics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        body = self._kept_answer(("", "topics"), lambda: TopicList(topic_list=self._routes.topics()).encode())
        return new_response(request, body=body or b"")

    def _get_topics_by_cluster(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = request.header(GetTopicsByClusterRequestHeader)
        return _topic_list(request, self._routes.topics_of_cluster(header.cluster))

    def _get_system_topics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        brokers = self._routes.brokers
        topics = TopicList(topic_list=brokers.system_topics(), broker_addr=brokers.any_broker_address())
        return new_response(request, body=topics.encode())

    def _get_unit_topics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return _topic_list(request, self._routes.topics_by_flag(UNIT_FLAG, UNIT_FLAG))

    def _get_unit_sub_topics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return _topic_list(request, self._routes.topics_by_flag(UNIT_SUB_FLAG, UNIT_SUB_FLAG))

    def _get_unit_sub_ununit_topics(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return _topic_list(request, self._routes.topics_by_flag(UNIT_FLAG | UNIT_SUB_FLAG, UNIT_SUB_FLAG))

    def _delete_topic(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = request.header(DeleteTopicFromNamesrvRequestHeader)
        self._routes.delete_topic(header.topic, header.cluster_name)
        _audit(connection, request, "topic deleted", topic=header.topic, cluster=header.cluster_name or "all")
        return new_response(request)

    def _wipe_write_perm(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | _LaterAnswer:
        name = request.header(WipeWritePermOfBrokerRequestHeader).broker_name

        def answer(count: int) -> RemotingCommand:
            _audit(connection, request, "write permission removed", name=name, topics=count)
            return new_response(request, header=WipeWritePermOfBrokerResponseHeader(wipe_topic_count=count))

        return self._change_perm(connection, name, self._routes.wiping_write_perm(name), answer)

    def _add_write_perm(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | _LaterAnswer:
        name = request.header(AddWritePermOfBrokerRequestHeader).broker_name

        def answer(count: int) -> RemotingCommand:
            _audit(connection, request, "write permission added", name=name, topics=count)
            return new_response(request, header=AddWritePermOfBrokerResponseHeader(add_topic_count=count))

        return self._change_perm(connection, name, self._routes.adding_write_perm(name), answer)

    def _change_perm(
        self,
        connection: Connection,
        broker_name: str,
        work: Generator[None, None, int],
        answer: Callable[[int], RemotingCommand],
    ) -> RemotingCommand | _LaterAnswer:
        """Change permissions now, if that is short and nothing of the broker or of the connection is in progress;
        otherwise return what changes them in its turn."""
        places = self._registrar.places
        if not places.is_free(connection, broker_name):
            return _in_turn(places.take(connection, broker_name), connection, work, answer)
        found = connection.steps.start(work, answer)
        if isinstance(found, RemotingCommand):
            return found
        return _held(places.take(connection, broker_name), found)

    # Key-value table and configuration.

    def _put_kv(self, connection: Connection, request: RemotingCommand) -> _LaterAnswer:
        header = request.header(PutKVConfigRequestHeader)
        change = self._kv_config.put(header.namespace, header.key, header.value, connection.steps)
        return self._put(connection, request, header, change)

    async def _put(
        self, connection: Connection, request: RemotingCommand, header: PutKVConfigRequestHeader, change: _KvChange
    ) -> RemotingCommand:
        key = header.key
        known = await change
        await _own_step(connection)
        before = {key: _shown(known)} if known is not None else None
        act, after = "key-value entry set", {key: _shown(header.value)}
        _audit(connection, request, act, namespace=header.namespace, key=key, before=before, after=after)
        return new_response(request)

    def _delete_kv(self, connection: Connection, request: RemotingCommand) -> _LaterAnswer:
        header = request.header(DeleteKVConfigRequestHeader)
        change = self._kv_config.delete(header.namespace, header.key, connection.steps)
        return self._delete(connection, request, header, change)

    async def _delete(
        self, connection: Connection, request: RemotingCommand, header: DeleteKVConfigRequestHeader, change: _KvChange
    ) -> RemotingCommand:
        key = header.key
        known = await change
        await _own_step(connection)
        if known is not None:
            act, before = "key-value entry deleted", {key: _shown(known)}
            _audit(connection, request, act, namespace=header.namespace, key=key, before=before)
        return new_response(request)

    def _get_kv(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = request.header(GetKVConfigRequestHeader)
        value = self._kv_config.get(header.namespace, header.key)
        found = value is not None
        return new_response(
            request,
            ResponseCode.SUCCESS if found else ResponseCode.QUERY_NOT_FOUND,
            None if found else f"No config item, Namespace: {header.namespace} Key: {header.key}",
            header=GetKVConfigResponseHeader(value=value),
        )

    def _get_kv_namespace(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        header = request.header(GetKVListByNamespaceRequestHeader)
        body = self._kv_config.encoded(header.namespace)
        if body is None:
            raise RequestRefused(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {header.namespace}")
        return new_response(request, body=body)

    def _get_config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return new_response(request, body=self._config.listing(), ext_fields=product_values())

    def _update_config(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | _LaterAnswer:
        if not request.body:
            return new_response(request)
        update = self._config.update(request.body, remote=connection.remote.text)
        return self._updated(connection, request, update)

    async def _updated(
        self, connection: Connection, request: RemotingCommand, update: Coroutine[Any, Any, BeforeAndAfter]
    ) -> RemotingCommand:
        before, after = await update
        if before != after:
            _audit(connection, request, "configuration changed", before=before, after=after)
        self.apply_limits()
        return new_response(request)


def _audit(
    connection: Connection,
    request: RemotingCommand,
    act: str,
    *,
    before: State = None,
    after: State = None,
    **subject: object,
) -> None:
    """Note a change by administration. A NameServer has no accounts: the address is all that is known."""
    audit.info(act, remote=connection.remote.text, code=request.code, **subject, **audit_line(before, after))


async def _in_turn(
    place: Place,
    connection: Connection,
    work: Generator[None, None, int],
    answer: Callable[[int], RemotingCommand],
) -> RemotingCommand:
    async with place:
        return answer(await connection.steps.run(work, are_short=True))


async def _held(place: Place, rest: _LaterAnswer) -> RemotingCommand:
    async with place:
        return await rest


async def _own_step(connection: Connection) -> None:
    """Wait for a step: all changes of one write continue at the same moment. Who is cancelled is not stopped, because
    the change that was made is noted in any case."""
    with trio.CancelScope(shield=True):
        await connection.steps.next()


def _shown(value: str) -> str:
    """Return what the audit log has of a value."""
    return value if len(value) <= SHOWN_CHARACTERS else f"{value[:SHOWN_CHARACTERS]}... ({len(value)} characters)"


def _encode_route(route: TopicRouteData, is_standard: bool, order_topic_conf: str | None) -> bytes:
    if order_topic_conf is not None:
        route = TopicRouteData(
            broker_datas=route.broker_datas,
            filter_server_table=route.filter_server_table,
            order_topic_conf=order_topic_conf,
            queue_datas=route.queue_datas,
        )
    return route.encode_standard() if is_standard else route.encode()


def _no_route(request: RemotingCommand, topic: str) -> RemotingCommand:
    return new_response(
        request,
        ResponseCode.TOPIC_NOT_EXIST,
        f"No topic route info in name server for the topic: {topic}\n"
        "See http://rocketmq.apache.org/docs/faq/ for further details.",
    )


def _topic_list(request: RemotingCommand, topics: list[str]) -> RemotingCommand:
    return new_response(request, body=TopicList(topic_list=topics).encode())
