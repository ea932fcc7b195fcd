"""ClientNotifier: unsolicited one-way requests from the broker to its clients (RocketMQ: Broker2Client,
DefaultConsumerIdsChangeListener).

The notifier never waits for a client. A client whose output buffer is full misses the notification and rebalances by
itself within 20 s.

If a thousand members join a group one after the other, notifying all members each time takes half a million frames. So
a group rests after a notification, longer the larger it is; changes during the rest are merged into one notification at
its end, which `run` sends. Without `run`, and for a group that is not resting, members are notified immediately. The
notifier holds the latest member list of each resting group, so it is bounded by the consumer table. Only the event loop
touches it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import structlog
import trio

from triomq.broker.configuration import Configuration
from triomq.broker.tables.client_channel import ClientChannel
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.headers.client import NotifyConsumerIdsChangedRequestHeader
from triomq.protocol.headers.transaction import CheckTransactionStateRequestHeader

log = structlog.get_logger("triomq.broker.client_notifier")

REST_SECONDS_PER_MEMBER: Final = 0.002
LEAST_REST_SECONDS: Final = 0.02
MOST_REST_SECONDS: Final = 1.0
MEMBERS_AT_ONCE: Final = 100
"""`run` notifies larger groups, and yields to other tasks after this number of members."""


class ClientNotifier:
    """Sends one-way requests to clients."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._resting: dict[str, float] = {}
        self._changed: dict[str, list[ClientChannel]] = {}
        self._is_running = False
        self._wakeup = trio.Event()

    def consumer_ids_changed(self, group: str, members: Iterable[ClientChannel]) -> None:
        """Notify the members of a group to rebalance (`ConsumerTable.on_change`), now or at the end of the group's
        rest."""
        if not self._configuration.broker.notify_consumer_ids_changed_enable:
            return
        latest = list(members)
        if not self._is_running:
            self._tell(group, latest)
            return
        if group not in self._resting:
            now = trio.current_time()
            if len(latest) <= MEMBERS_AT_ONCE:
                self._tell(group, latest)
                self._resting[group] = now + _rest_seconds(len(latest))
                self._wakeup.set()
                return
            self._resting[group] = now
        self._changed[group] = latest
        self._wakeup.set()

    def check_transaction(
        self, producer: ClientChannel, header: CheckTransactionStateRequestHeader, record: bytes
    ) -> bool:
        """Ask a producer for the outcome of a transaction; its response is END_TRANSACTION. Return False if it was not
        sent."""
        return self._send(producer, new_request(RequestCode.CHECK_TRANSACTION_STATE, header, body=record, oneway=True))

    async def run(self) -> None:
        """Notify resting groups of changes at the end of their rest; runs until cancelled."""
        self._is_running = True
        try:
            while True:
                await self._tell_rested()
                self._wakeup = trio.Event()
                next_end = min(self._resting.values(), default=trio.current_time() + 3600)
                with trio.move_on_at(next_end):
                    await self._wakeup.wait()
        finally:
            self._is_running = False

    async def _tell_rested(self) -> None:
        now = trio.current_time()
        for group in [group for group, end in self._resting.items() if end <= now]:
            members = self._changed.pop(group, None)
            if members is None:
                del self._resting[group]
                continue
            self._resting[group] = now + _rest_seconds(len(members))
            for begin in range(0, len(members), MEMBERS_AT_ONCE):
                self._tell(group, members[begin : begin + MEMBERS_AT_ONCE])
                # Changes may happen here: they are noted in `_changed` and sent at the end of the rest that has just
                # begun.
                await trio.lowlevel.checkpoint()

    def _tell(self, group: str, members: Iterable[ClientChannel]) -> None:
        header = NotifyConsumerIdsChangedRequestHeader(consumer_group=group)
        for member in members:
            self._send(member, new_request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, header, oneway=True))

    @staticmethod
    def _send(member: ClientChannel, command: RemotingCommand) -> bool:
        if not member.connection.is_open:
            return False
        sent = member.connection.send_oneway(command)
        if not sent:
            log.warning("client not notified", code=command.code, client=member.client_id, remote=member.remote_text)
        return sent


def _rest_seconds(member_count: int) -> float:
    return min(max(LEAST_REST_SECONDS, member_count * REST_SECONDS_PER_MEMBER), MOST_REST_SECONDS)
