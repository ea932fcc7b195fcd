"""MasterTables: a slave's copies of its master's topics, groups, consumer offsets and delay offsets (RocketMQ:
SlaveSynchronize), and of the ends of queues.

    every 10 s, first after 3 s     GET_ALL_TOPIC_CONFIG              replaced as a whole when the version differs
                                    GET_ALL_CONSUMER_OFFSET           merged, entry by entry
                                    GET_ALL_DELAY_OFFSET              replaced
                                    GET_ALL_SUBSCRIPTIONGROUP_CONFIG  replaced as a whole when the version differs
                                    the ends of queues                see queue_ends.py

A sync is also made when the master is known and its log matches, and when a topic arrives that the table lacks: its
messages can be read here from then on.

Each table is requested separately, so a failure does not affect the others. All are persisted, so that the slave can
become a master. No table is accepted until the master's log is known to match: a master that lost its store, and its
tables with it, would otherwise erase those of its slave.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Protocol

import structlog
import trio

from triomq.broker.configuration import FAST_PORT_DISTANCE
from triomq.broker.errors import TableFull
from triomq.broker.replication.queue_ends import Ask, QueueEnds
from triomq.broker.tables.delay_offsets import DelayOffsets
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.topics import TopicTable
from triomq.protocol.bodies.offset import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from triomq.protocol.bodies.subscription_group import SubscriptionGroupWrapper
from triomq.protocol.bodies.topic_config import TopicConfigSerializeWrapper
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.errors import ProtocolError
from triomq.protocol.outage import Outage
from triomq.protocol.system_topics import LMQ_PREFIX
from triomq.remoting.client import RemotingClient
from triomq.remoting.errors import RemotingError
from triomq.store.errors import StoreError
from triomq.store.message_store import DefaultMessageStore

log = structlog.get_logger("triomq.broker.replication")

ASK_SECONDS = 3.0
LOOK_SECONDS = 1.0
PAUSE_SECONDS = 0.1
"""`run` looks at most once in PAUSE_SECONDS, and at least once in LOOK_SECONDS, what has changed."""


class LeaderOfGroup(Protocol):
    """What a member of a group knows of the one that leads it, or led last."""

    @property
    def copies_tables(self) -> bool:
        """Whether the leader is one of RocketMQ's, which writes no tables to the log: they must be copied."""

    def address_of_master(self) -> str | None:
        """Return the leader's address as members of its group reach it, which may differ from the one for clients."""


class MasterTables:
    """Copies the master's tables. `is_trusted` returns whether the master's log is known to match; `sign` adds this
    broker's account to a request."""

    def __init__(
        self,
        client: RemotingClient,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        delay_offsets: DelayOffsets,
        *,
        is_trusted: Callable[[], bool] = lambda: True,
        sign: Callable[[RemotingCommand], None] | None = None,
        ends: QueueEnds | None = None,
    ) -> None:
        self._group: LeaderOfGroup | None = None
        self.copied_from: str | None = None
        """The master all of whose tables were copied the last time."""
        self._sign = sign
        self._client = client
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._delay_offsets = delay_offsets
        self._is_trusted = is_trusted
        self._ends = ends
        self._registered: str | None = None
        self._outage = Outage()

    def join(self, group: LeaderOfGroup) -> None:
        """Ask this member of a group where the master is from now on."""
        self._group = group

    def master_known(self, address: str | None) -> None:
        """Learn the master's address from a NameServer, or that there is no master."""
        if address != self._registered:
            log.info("master to copy tables from learnt", address=address, before=self._registered)
            self._registered = address or None

    @property
    def _address(self) -> str | None:
        among_members = self._group.address_of_master() if self._group is not None else None
        return among_members or self._registered

    @property
    def _come_by_log(self) -> bool:
        """Whether the master's tables come by the log of a group: then only the ends of queues are asked for."""
        return self._group is not None and not self._group.copies_tables

    @property
    def are_current(self) -> bool:
        """Whether the tables of the present master were copied."""
        return self.copied_from is not None and self.copied_from == self._address

    async def run(self, store: DefaultMessageStore, every_seconds: float = math.inf) -> None:
        """Copy the tables at once when the master is known and its log matches, and when the log here gets messages of
        a topic that the table lacks; and every `every_seconds`, for those without a schedule. Runs until cancelled.
        """
        synced_with: str | None = None
        due = trio.current_time() + every_seconds
        count_seen = 0
        sought: frozenset[str] = frozenset()
        while True:
            address, count = self._address, store.reading.queue_count
            is_due = trio.current_time() >= due
            if address is not None and self._is_trusted():
                lacking = sought
                if count != count_seen:
                    count_seen = count
                    lacking = self._lacking(store.reading.queues())
                if address != synced_with or lacking - sought or is_due:
                    synced_with, sought = address, lacking
                    await self.sync()
                    is_due = True
            if is_due:
                due = trio.current_time() + every_seconds
            rest = max(0.0, due - PAUSE_SECONDS - trio.current_time())
            with trio.move_on_after(min(LOOK_SECONDS, rest)), suppress(StoreError):
                await store.committed.wait_beyond(store.committed.value)
            await trio.sleep(PAUSE_SECONDS)

    def _lacking(self, topics: Iterable[str]) -> frozenset[str]:
        """Return those of the topics that a master has in its table and this one lacks."""
        known = self._topics.names()
        return frozenset([topic for topic in topics if topic not in known and not topic.startswith(LMQ_PREFIX)])

    async def sync(self) -> None:
        """Copy all tables once. Never raises: a failure is logged and retried in the next round."""
        address = self._address
        if address is None:
            return
        if not self._is_trusted():
            log.debug("tables not copied yet; the master's log is not known to match", master=address)
            return
        host, _, port = address.rpartition(":")
        fast = f"{host}:{int(port) + FAST_PORT_DISTANCE}"
        # Each table is accepted in the step in which its response arrives, and `_ask` checks the master and the trust
        # again in that step.
        ask = partial(self._ask, address, address)
        if not self._come_by_log:
            taken = [
                await self._take(
                    partial(self._ask, address, fast), RequestCode.GET_ALL_TOPIC_CONFIG, self._take_topics
                ),
                await self._take(ask, RequestCode.GET_ALL_CONSUMER_OFFSET, self._take_offsets),
                await self._take(ask, RequestCode.GET_ALL_DELAY_OFFSET, self._take_delay_offsets),
                await self._take(ask, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self._take_groups),
            ]
            self.copied_from = address if all(taken) else None
        if self._ends is not None and self._address == address:
            with self._told("ends of queues"):
                await self._ends.copy(address, ask)

    async def _take(self, ask: Ask, code: RequestCode, take: Callable[[bytes], Awaitable[None]]) -> bool:
        """Copy one table. Return whether the master has answered, be it that it has none."""
        master = self._address
        with self._told(code.name):
            answer = await ask(new_request(code))
            if answer is None or self._come_by_log:
                return False
            if answer.code == ResponseCode.SUCCESS:
                await take(answer.body)
            elif "AclException" in (answer.remark or ""):
                log.warning("tables refused by the master", master=master, code=code.name, remark=answer.remark)
            else:  # a master also responds this way if the table is empty
                log.debug("table not returned", master=master, code=code.name, answer=answer.code, remark=answer.remark)
            if self._outage.is_on and self._outage.worked(trio.current_time()):
                log.info("tables copied again", master=master)
            return "AclException" not in (answer.remark or "")
        return False

    async def _ask(self, master: str, address: str, request: RemotingCommand) -> RemotingCommand | None:
        """Return the response of the master at this address, one of its ports; None if it is not the master any more,
        or cannot be trusted. Raises RemotingError, OSError."""
        if self._address != master or not self._is_trusted():
            return None
        if self._sign is not None:
            self._sign(request)
        answer = await self._client.invoke(address, request, ASK_SECONDS)
        if self._address != master or not self._is_trusted():
            # During the request the master restarted, perhaps without its store, or another broker became the master.
            log.debug("table not copied: the master has changed", master=master, code=request.code)
            return None
        return answer

    @contextmanager
    def _told(self, what: str) -> Iterator[None]:
        """Log that a table could not be copied, once a minute."""
        try:
            yield
        except (RemotingError, ProtocolError, TableFull, OSError, ValueError) as error:
            if self._outage.failed(trio.current_time()):
                log.warning("tables not copied; trying again", master=self._address, code=what, error=str(error))

    async def _take_topics(self, body: bytes) -> None:
        if self._topics.replace_all(TopicConfigSerializeWrapper.decode(body)):
            log.info("topics copied from the master", topics=len(self._topics.names()))

    async def _take_offsets(self, body: bytes) -> None:
        self._offsets.merge(ConsumerOffsetSerializeWrapper.decode(body).offset_table)
        await self._offsets.persist()

    async def _take_delay_offsets(self, body: bytes) -> None:
        self._delay_offsets.merge(DelayOffsetSerializeWrapper.decode(body))
        await self._delay_offsets.persist()

    async def _take_groups(self, body: bytes) -> None:
        if self._groups.replace_all(SubscriptionGroupWrapper.decode(body)):
            log.info("subscription groups copied from the master", groups=len(self._groups.names()))
