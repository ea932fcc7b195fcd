"""Registration: the broker tells the NameServers that it is there, and which topics it has (RocketMQ: BrokerOuterAPI,
BrokerController.registerBrokerAll).

    register_all    at start, every 30 s, and when brokerPermission changed: all topics, answers awaited
    topics_changed  topics came into being by use: all topics, one way, as soon as `run` gets to it
    register_topic  an administrator changed a topic: that one, answers awaited
    stop            unregisters

It goes to all NameServers in parallel. One that does not answer costs the others nothing and is logged once, until it
is back. The list of them is namesrvAddr as it is now, else what the address server said last.

A NameServer takes over a registration when the version of the topics differs from the one it has. So one that knew
nothing of us and got a single topic under the present version would never ask for the others: a single topic goes
only where all topics were taken over on the same connection. Touched only on the event loop.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection
from typing import Any, Final, TypeAlias

import structlog
import trio

from triomq.broker.address_server import AddressServer
from triomq.broker.configuration import Configuration
from triomq.broker.tables.topics import TopicTable
from triomq.protocol import permission
from triomq.protocol.bodies.kv_table import KVTable
from triomq.protocol.bodies.topic_config import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.errors import BodyError, HeaderFieldError
from triomq.protocol.headers.base import Header
from triomq.protocol.headers.namesrv import (
    QueryDataVersionRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
    UnRegisterBrokerRequestHeader,
)
from triomq.remoting.client import RemotingClient
from triomq.remoting.connection import Connection
from triomq.remoting.errors import RemotingError
from triomq.remoting.http_get import HttpFailed

log = structlog.get_logger("triomq.broker.registration")

UNREGISTER_SECONDS: Final = 3.0
MAX_NAMESERVERS: Final = 64
REST_SECONDS_PER_TOPIC: Final = 0.00005
"""After a one-way registration the next one waits so long for each topic: encoding 20,000 of them takes 30 ms."""

MasterFound: TypeAlias = Callable[[str | None, str | None], None]


class Registration:
    """See the module's text. `on_master(address, ha_address)` is what a slave learns of its master at each
    registration; None where no master is there."""

    def __init__(
        self,
        configuration: Configuration,
        topics: TopicTable,
        client: RemotingClient,
        *,
        address: str,
        ha_address: str,
        address_server: AddressServer | None = None,
        on_master: MasterFound | None = None,
    ) -> None:
        self.on_master = on_master
        self._configuration = configuration
        self._topics = topics
        self._client = client
        self._address = address
        self._ha_address = ha_address
        self._address_server = address_server or AddressServer.from_properties(configuration.properties)
        self._fetched: list[str] = []
        self._unreachable: set[str] = set()
        self._complete: set[str] = set()
        self._topics_changed = trio.Event()
        client.on_connection_closed(self._connection_closed)

    @property
    def nameservers(self) -> list[str]:
        """The addresses "host:port" of all NameServers, as they are known now."""
        configured = self._configuration.broker.namesrv_addr
        return split_addresses(configured) if configured else self._fetched

    # -- the broker's life -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Register for the first time; returns when all NameServers answered, or the time for it is over."""
        await self.fetch_nameservers()
        await self.register_all(force=True)

    async def run(self) -> None:
        """Register when topics came into being by use; runs until cancelled."""
        while True:
            await self._topics_changed.wait()
            self._topics_changed = trio.Event()
            await self._register_oneway()
            await trio.sleep(len(self._topics.names()) * REST_SECONDS_PER_TOPIC)

    async def stop(self) -> None:
        """Unregister everywhere, 3 s at most."""
        header = UnRegisterBrokerRequestHeader(**self._identity())
        answered = await self._ask_all(RequestCode.UNREGISTER_BROKER, header, b"", UNREGISTER_SECONDS)
        log.info("broker unregistered", nameservers=";".join(answered))

    # -- registering -------------------------------------------------------------------------------------------------

    def topics_changed(self) -> None:
        """Topics came into being by use (`TopicTable.on_change`)."""
        self._topics_changed.set()

    async def register_all(self, *, force: bool | None = None) -> bool:
        """Register all topics and wait for the answers; True when somebody took them.

        Without `force` (None: what forceRegister says) the NameServers are asked first whether they need to know.
        """
        broker = self._configuration.broker
        if force is None:
            force = broker.force_register
        if not force and not await self._is_wanted():
            return True
        return await self._register(self.nameservers, self._topics.wrapper(), is_whole=True)

    async def register_topic(self, config: TopicConfig) -> None:
        """Register one topic that an administrator made or changed, and wait for the answers."""
        whole = self._topics.wrapper()
        single = TopicConfigSerializeWrapper(
            data_version=whole.data_version, topic_config_table={config.topic_name: config}
        )
        nameservers = self.nameservers
        complete = [address for address in nameservers if address in self._complete]
        others = [address for address in nameservers if address not in self._complete]
        async with trio.open_nursery() as nursery:
            if complete:
                nursery.start_soon(self._register, complete, single, False)
            if others:
                nursery.start_soon(self._register, others, whole, True)

    async def fetch_nameservers(self) -> None:
        """Ask the address server, when there is no namesrvAddr and fetchNamesrvAddrByAddressServer is set."""
        broker = self._configuration.broker
        if broker.namesrv_addr or not broker.fetch_namesrv_addr_by_address_server:
            return
        try:
            fetched = split_addresses(await self._address_server.fetch())
        except HttpFailed as error:
            log.warning("the address server gave no list of NameServers", error=str(error), known=self._fetched)
            return
        if fetched and fetched != self._fetched:
            log.info("list of NameServers fetched", nameservers=";".join(fetched))
            self._fetched = fetched

    async def update_nameservers(self) -> None:
        """Register with NameServers that are new in the list; there is nothing else to do about a changed one."""
        known = self._complete | self._unreachable
        if not known.issuperset(self.nameservers):
            await self.register_all(force=True)

    # -- inside ------------------------------------------------------------------------------------------------------

    async def _register(
        self, nameservers: Collection[str], topics: TopicConfigSerializeWrapper, is_whole: bool
    ) -> bool:
        header, body = self._registration(topics)
        seconds = self._configuration.broker.register_broker_timeout_ms / 1000
        answers = await self._ask_all(RequestCode.REGISTER_BROKER, header, body, seconds, nameservers)
        taken = [address for address, answer in answers.items() if self._is_taken(address, answer)]
        if is_whole:
            self._complete.update(taken)
        if taken:
            self._learn(answers[taken[0]])
        return bool(taken)

    async def _register_oneway(self) -> None:
        header, body = self._registration(self._topics.wrapper())
        seconds = self._configuration.broker.register_broker_timeout_ms / 1000

        async def send(address: str) -> None:
            command = new_request(RequestCode.REGISTER_BROKER, header, body, oneway=True)
            try:
                await self._client.invoke_oneway(address, command, seconds)
            except RemotingError as error:
                self._complete.discard(address)
                self._note_failure(address, str(error))

        async with trio.open_nursery() as nursery:
            for address in self.nameservers:
                nursery.start_soon(send, address)

    async def _is_wanted(self) -> bool:
        """Does any NameServer lack the present version of the topics? One that does not answer counts as lacking."""
        ours = self._topics.data_version
        header = QueryDataVersionRequestHeader(**self._identity())
        seconds = self._configuration.broker.register_broker_timeout_ms / 1000
        answers = await self._ask_all(RequestCode.QUERY_DATA_VERSION, header, ours.encode(), seconds)
        return any(address not in answers or _is_changed(answers[address], ours) for address in self.nameservers)

    async def _ask_all(
        self, code: int, header: Header, body: bytes, seconds: float, nameservers: Collection[str] | None = None
    ) -> dict[str, RemotingCommand]:
        """The answers that came in time, in the order of the list."""
        if nameservers is None:
            nameservers = self.nameservers
        answers: dict[str, RemotingCommand] = {}

        async def ask(address: str) -> None:
            try:
                answers[address] = await self._client.invoke(address, new_request(code, header, body), seconds)
            except RemotingError as error:
                self._note_failure(address, str(error))
            else:
                self._note_answer(address)

        self._unreachable.intersection_update(self.nameservers)
        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for address in nameservers:
                    nursery.start_soon(ask, address)
        for address in nameservers:
            if address not in answers:
                self._note_failure(address, f"no answer in {seconds:g} s")
        return {address: answers[address] for address in nameservers if address in answers}

    def _registration(self, topics: TopicConfigSerializeWrapper) -> tuple[RegisterBrokerRequestHeader, bytes]:
        broker = self._configuration.broker
        body = RegisterBrokerBody(topic_config_serialize_wrapper=self._permitted(topics))
        data = body.encode_compressed() if broker.compressed_register else body.encode()
        header = RegisterBrokerRequestHeader(
            **self._identity(),
            ha_server_addr=self._ha_address,
            compressed=broker.compressed_register,
            body_crc32=zlib.crc32(data) & 0x7FFFFFFF,
        )
        return header, data

    def _permitted(self, topics: TopicConfigSerializeWrapper) -> TopicConfigSerializeWrapper:
        """With a broker that may not be read or not be written, every topic has the broker's permission."""
        perm = self._configuration.broker.broker_permission
        if permission.is_readable(perm) and permission.is_writeable(perm):
            return topics
        limited = {
            name: TopicConfig(
                topic_name=name,
                read_queue_nums=config.read_queue_nums,
                write_queue_nums=config.write_queue_nums,
                perm=perm,
            )
            for name, config in topics.topic_config_table.items()
        }
        return TopicConfigSerializeWrapper(data_version=topics.data_version, topic_config_table=limited)

    def _identity(self) -> dict[str, Any]:
        """The fields that all requests to a NameServer begin with."""
        broker = self._configuration.broker
        return {
            "broker_name": broker.broker_name,
            "broker_addr": self._address,
            "cluster_name": broker.broker_cluster_name,
            "broker_id": broker.broker_id,
        }

    def _learn(self, answer: RemotingCommand) -> None:
        """What a NameServer says in return: the ordered topics, and a slave's master."""
        try:
            header = answer.header(RegisterBrokerResponseHeader)
            ordered = KVTable.decode(answer.body).table if answer.body else None
        except (HeaderFieldError, BodyError) as error:
            log.warning("the answer to a registration cannot be read", error=str(error))
            return
        if ordered is not None:
            self._topics.update_order_topics(ordered.keys())
        if self.on_master is not None:
            self.on_master(header.master_addr, header.ha_server_addr)

    def _is_taken(self, address: str, answer: RemotingCommand) -> bool:
        if answer.code == ResponseCode.SUCCESS:
            return True
        log.warning("registration refused", nameserver=address, code=answer.code, remark=answer.remark)
        return False

    def _note_failure(self, address: str, reason: str) -> None:
        if address not in self._unreachable:
            self._unreachable.add(address)
            log.warning("NameServer cannot be reached; it is tried again", nameserver=address, error=reason)

    def _note_answer(self, address: str) -> None:
        if address in self._unreachable:
            self._unreachable.discard(address)
            log.info("NameServer is back", nameserver=address)

    def _connection_closed(self, address: str, connection: Connection) -> None:
        """A NameServer forgets a broker whose connection closes."""
        self._complete.discard(address)


def split_addresses(text: str) -> list[str]:
    """The addresses of "host:port;host:port", each once."""
    addresses = dict.fromkeys(address.strip() for address in text.replace("\n", ";").split(";"))
    return [address for address in addresses if address][:MAX_NAMESERVERS]


def _is_changed(answer: RemotingCommand, ours: DataVersion) -> bool:
    try:
        if answer.code != ResponseCode.SUCCESS or answer.header(QueryDataVersionResponseHeader).changed:
            return True
        return not answer.body or DataVersion.decode(answer.body) != ours
    except (HeaderFieldError, BodyError):
        return True
