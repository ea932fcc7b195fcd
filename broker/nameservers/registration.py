"""Registration: keeps the NameServers informed of the broker and its topics (RocketMQ: BrokerOuterAPI,
BrokerController.registerBrokerAll).

    topic_changed   a topic changed: noted for every NameServer, in the step that creates the new data version
    register_soon   topics were created by use: `run` registers the changes soon
    registered      wait until all NameServers have the changes; for administrators' requests
    in_routes       the same for a limited time, and only for those that respond; for what depends on a new topic
    register_all    at start, every 30 s, and when brokerPermission changed: all topics
    stop            unregister

All NameServers are served in parallel, by one link each (link.py, which explains how they stay complete).
One that does not respond does not delay the others and is logged once, until it is back. Only the event loop touches
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import structlog
import trio

from triomq.broker.configuration import Configuration
from triomq.broker.nameservers.link import NameServerLink
from triomq.broker.nameservers.nameserver_list import NameServerList
from triomq.broker.nameservers.registration_request import RegistrationRequests
from triomq.broker.tables.topics import TopicTable
from triomq.protocol.bodies.kv_table import KVTable
from triomq.protocol.bodies.topic_config import DataVersion
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.errors import BodyError, HeaderFieldError
from triomq.protocol.headers.namesrv import QueryDataVersionResponseHeader, RegisterBrokerResponseHeader
from triomq.remoting.client import RemotingClient
from triomq.remoting.connection import Connection
from triomq.remoting.errors import RemotingError

log = structlog.get_logger("triomq.broker.nameservers.registration")

UNREGISTER_SECONDS: Final = 3.0
REST_SECONDS_PER_TOPIC: Final = 0.00005
"""After a registration of topics created by use, the next one waits this long per topic of the table: an unreachable
NameServer is offered the whole table each time, and encoding 20,000 topics takes 30 ms."""

DOUBT_SECONDS: Final = 0.05
"""How often a registration looks whether the broker's role is known again; a doubt lasts about as long as a heartbeat
of the group takes."""

MasterFound: TypeAlias = Callable[[str | None, str | None], None]


class Registration:
    """See the module's docstring. `on_master(address, ha_address)` passes on what a slave learns of its master at each
    registration; None if there is no master. While `is_held` nothing is registered: a member of a group does not know
    its role yet."""

    def __init__(
        self,
        configuration: Configuration,
        topics: TopicTable,
        client: RemotingClient,
        *,
        address: str,
        ha_address: str,
        nameservers: NameServerList,
        on_master: MasterFound | None = None,
        is_held: bool = False,
    ) -> None:
        self._on_master = on_master
        self._configuration = configuration
        self._topics = topics
        self._client = client
        self._requests = RegistrationRequests(configuration, topics, address, ha_address)
        self._nameservers = nameservers
        self._known_links: dict[str, NameServerLink] = {}
        self._nursery: trio.Nursery | None = None
        self._created = trio.Event()
        self.is_held = is_held
        self._is_role_doubtful: Callable[[], bool] = lambda: False
        client.on_connection_closed(self._connection_closed)

    @property
    def nameservers(self) -> list[str]:
        """Return the addresses "host:port" of all NameServers currently known."""
        return self._nameservers.addresses()

    def release(self) -> None:
        """Let the broker be registered from now on."""
        self.is_held = False

    def wait_while(self, is_role_doubtful: Callable[[], bool]) -> None:
        """Send no registration while this returns True: its id may be another broker's by now."""
        self._is_role_doubtful = is_role_doubtful

    def states(self, now: float) -> list[tuple[str, bool, float | None]]:
        """Return for each NameServer its address, whether it has accepted everything, and how many seconds ago it
        responded last, None if it never did."""
        return [
            (link.address, link.is_complete, None if link.responded_at is None else now - link.responded_at)
            for link in self._links()
        ]

    def contested(self) -> list[str]:
        """Return the addresses of the NameServers that drop this broker repeatedly (link.CONTESTED)."""
        return [link.address for link in self._links() if link.is_contested]

    def failures(self, now: float) -> dict[str, tuple[str, float]]:
        """Return the last failure to reach each NameServer that had one, and how many seconds ago that was."""
        return {
            link.address: (link.failure, now - link.failed_at) for link in self._links() if link.failed_at is not None
        }

    # -- the broker's life -------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Register for the first time; return when all NameServers have responded, or the time limit has passed."""
        await self._nameservers.fetch()
        await self.register_all(force=True)

    async def run(self) -> None:
        """Perform the registrations until cancelled; all other methods only request them."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for link in self._known_links.values():
                nursery.start_soon(link.run)
            try:
                while True:
                    await self._created.wait()
                    self._created = trio.Event()
                    for link in self._links():
                        link.want_changes()
                    await trio.sleep(len(self._topics.names()) * REST_SECONDS_PER_TOPIC)
            finally:
                self._nursery = None

    async def stop(self) -> None:
        """Unregister everywhere, within 3 s, after registrations in flight: a later one would register the broker
        again."""
        with trio.move_on_after(UNREGISTER_SECONDS):
            for link in self._links():
                link.close()
            for link in self._links():
                await link.idle()
        answered = await self._ask_all(self._requests.unregister, UNREGISTER_SECONDS)
        log.info("broker unregistered", nameservers=";".join(answered))

    # -- registering -------------------------------------------------------------------------------------------------

    def topic_changed(self, topic: str) -> None:
        """Note a created, changed or deleted topic (`TopicEvents.changed`)."""
        for link in self._known_links.values():
            link.note(topic)

    def register_soon(self) -> None:
        """Request a registration of topics that were created by use (`TopicEvents.made_by_use`)."""
        self._created.set()

    def register_all_soon(self) -> None:
        """Request a registration of all topics, after a change that concerns them all or the list of NameServers."""
        for link in self._links():
            link.want_whole()

    async def registered(self) -> None:
        """Wait until every responding NameServer has accepted all changes made so far."""
        links = self._links()
        await self._caught_up([(link, link.want_changes()) for link in links])

    async def in_routes(self, until: float) -> None:
        """Wait until every NameServer has accepted all changes made so far, except those that did not respond last, and
        not longer than until this time (trio's)."""
        attempts = [(link, link.want_changes()) for link in self._links() if not link.is_away]
        with trio.move_on_at(until):
            for link, attempt in attempts:
                await link.caught_up(attempt)

    async def register_all(self, *, force: bool | None = None) -> bool:
        """Register all topics and wait for the responses. Return True if a NameServer accepted them.

        Without `force` (None: the value of forceRegister) the broker first asks the NameServers whether they need the
        topics.
        """
        if force is None:
            force = self._configuration.broker.force_register
        if not force and not await self._is_wanted():
            return True
        links = self._links()
        await self._caught_up([(link, link.want_whole()) for link in links])
        return any(link.is_complete for link in links)

    async def update_nameservers(self) -> None:
        """Register with NameServers that are new in the list; a changed list needs nothing else."""
        if not all(link.was_tried for link in self._links()):
            await self.register_all(force=True)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _links(self) -> list[NameServerLink]:
        """Return one link for each NameServer of the present list, in its order."""
        known = self._known_links
        wanted = self.nameservers if not self.is_held else []
        if list(known) != wanted:
            for address in known.keys() - wanted:
                known[address].close()
            self._known_links = {address: known.get(address) or self._new_link(address) for address in wanted}
        return list(self._known_links.values())

    def _new_link(self, address: str) -> NameServerLink:
        link = NameServerLink(
            address,
            self._requests,
            self._client.invoke,
            timeout_seconds=self._timeout_seconds,
            on_taken=self._taken,
            role_known=self._role_known,
        )
        if self._nursery is not None:
            self._nursery.start_soon(link.run)
        return link

    async def _role_known(self) -> None:
        while self._is_role_doubtful():  # noqa: ASYNC110 (doubt ends with time as well as by what happens)
            await trio.sleep(DOUBT_SECONDS)

    async def _caught_up(self, attempts: list[tuple[NameServerLink, int]]) -> None:
        """Wait for attempts. An attempt may wait for the previous one, so this takes at most twice the time of one."""
        with trio.move_on_after(2 * self._timeout_seconds()):
            for link, attempt in attempts:
                await link.caught_up(attempt)

    async def _is_wanted(self) -> bool:
        """Return whether any NameServer lacks the present version of the topics. One that does not respond counts as
        lacking it."""
        ours = self._topics.data_version
        answers = await self._ask_all(self._requests.query_version, self._timeout_seconds())
        return any(address not in answers or _is_changed(answers[address], ours) for address in self.nameservers)

    async def _ask_all(self, request: Callable[[], RemotingCommand], seconds: float) -> dict[str, RemotingCommand]:
        """Send a request to all NameServers; return the responses that arrived in time, in the order of the list."""
        links = self._links()
        answers: dict[str, RemotingCommand] = {}

        async def ask(link: NameServerLink) -> None:
            try:
                answers[link.address] = await self._client.invoke(link.address, request(), seconds)
            except RemotingError as error:
                link.failed(str(error))
            else:
                link.responded()

        with trio.move_on_after(seconds):
            async with trio.open_nursery() as nursery:
                for link in links:
                    nursery.start_soon(ask, link)
        for link in links:
            if link.address not in answers:
                link.failed(f"no response within {seconds:g} s")
        return {link.address: answers[link.address] for link in links if link.address in answers}

    def _timeout_seconds(self) -> float:
        return self._configuration.broker.register_broker_timeout_ms / 1000

    def _taken(self, link: NameServerLink, response: RemotingCommand) -> None:
        """Process the response of a NameServer. Only the first complete one in the list counts, because two with
        different tables would change this broker's back and forth."""
        first = next((each for each in self._known_links.values() if each.is_complete), link)
        if first is link:
            self._learn(response)

    def _learn(self, answer: RemotingCommand) -> None:
        """Apply the ordered topics and, on a slave, the master's address."""
        try:
            header = answer.header(RegisterBrokerResponseHeader)
            ordered = KVTable.decode(answer.body).table if answer.body else None
        except (HeaderFieldError, BodyError) as error:
            log.warning("response to a registration not decoded", error=str(error))
            return
        if ordered is not None:
            self._topics.update_order_topics(ordered.keys())
        if self._on_master is not None:
            self._on_master(header.master_addr, header.ha_server_addr)

    def _connection_closed(self, address: str, connection: Connection) -> None:
        link = self._known_links.get(address)
        if link is not None:
            link.connection_closed()


def _is_changed(answer: RemotingCommand, ours: DataVersion) -> bool:
    try:
        if answer.code != ResponseCode.SUCCESS or answer.header(QueryDataVersionResponseHeader).changed:
            return True
        return not answer.body or DataVersion.decode(answer.body) != ours
    except (HeaderFieldError, BodyError):
        return True
