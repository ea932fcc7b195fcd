"""ClientFigures: what push consumers say about themselves, asked for once a minute (rocketmq-exporter's families
`rocketmq_client_*`).

A scrape never asks a client. A task asks the members of all online groups with GET_CONSUMER_RUNNING_INFO, a few at a
time, and keeps their responses for the scrapes of the next minute. With metricsAskClients=false nobody is asked.
Bounds: `MOST_CLIENTS` are asked in one round, `MOST_SERIES` kept until the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

import structlog
import trio

from triomq.broker.tables.client_channel import ClientChannel
from triomq.broker.tables.consumers import ConsumerTable
from triomq.monitoring.exposition import Family, Sample, bounded, gauge, labels
from triomq.protocol.bodies.running_info import ClientRates, ConsumeStatus
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import new_request
from triomq.protocol.errors import BodyError
from triomq.protocol.headers.client import GetConsumerRunningInfoRequestHeader
from triomq.remoting.errors import RemotingError

log = structlog.get_logger("triomq.broker.figures")

PERIOD_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 5.0
AT_ONCE: Final = 4
MOST_CLIENTS: Final = 2000
MOST_BODY_BYTES: Final = 256 * 1024
"""A longer response is not read: nothing that a client says may hold the others up."""
MOST_SERIES: Final = 20_000

_FAMILIES: Final[dict[str, tuple[str, Callable[[ConsumeStatus], float]]]] = {
    "rocketmq_client_consume_fail_msg_count": (
        "Messages whose consumption failed in the last hour.",
        lambda status: status.consume_failed_msgs,
    ),
    "rocketmq_client_consume_fail_msg_tps": ("Failures a second.", lambda status: status.consume_failed_tps),
    "rocketmq_client_consume_ok_msg_tps": ("Successes a second.", lambda status: status.consume_ok_tps),
    "rocketmq_client_consume_rt": ("Mean time of the listener in ms.", lambda status: status.consume_rt),
    "rocketmq_client_consumer_pull_rt": (
        "Mean time of a pull in ms, including the wait for messages.",
        lambda status: status.pull_rt,
    ),
    "rocketmq_client_consumer_pull_tps": ("Messages pulled a second.", lambda status: status.pull_tps),
}


class ClientFigures:
    def __init__(self, consumers: ConsumerTable, *, is_on: bool) -> None:
        self._consumers = consumers
        self._is_on = is_on
        self._known: list[tuple[str, ConsumeStatus]] = []

    def families(self, limit: int) -> Iterator[Family]:
        """Yield what the last round brought."""
        for name, (meaning, value) in _FAMILIES.items():
            yield gauge(name, meaning, bounded(self._known, limit, partial(_sample, value)))

    async def run(self) -> None:
        """Ask everybody once a minute, until cancelled."""
        while self._is_on:
            await self.ask()
            await trio.sleep(PERIOD_SECONDS)

    async def ask(self) -> None:
        """Ask all members of all online groups once."""
        asked = [
            (group.name, member)
            for group in self._consumers.groups()
            if group.consumption.consume_type == "CONSUME_PASSIVELY"
            for member in group.members()
        ][:MOST_CLIENTS]
        found: list[tuple[str, ConsumeStatus]] = []
        places = trio.Semaphore(AT_ONCE)
        async with trio.open_nursery() as nursery:
            for group, member in asked:
                await places.acquire()
                nursery.start_soon(self._ask, group, member, found, places)
        self._known = found

    async def _ask(
        self,
        group: str,
        member: ClientChannel,
        found: list[tuple[str, ConsumeStatus]],
        places: trio.Semaphore,
    ) -> None:
        header = GetConsumerRunningInfoRequestHeader(
            consumer_group=group, client_id=member.client_id, jstack_enable=False
        )
        try:
            request = new_request(RequestCode.GET_CONSUMER_RUNNING_INFO, header)
            response = await member.connection.invoke(request, ANSWER_SECONDS)
            body = response.body if response.code == ResponseCode.SUCCESS else b""
            if not body or len(body) > MOST_BODY_BYTES:
                return
            for topic, status in ClientRates.decode(body).status_table.items():
                if len(found) < MOST_SERIES:
                    text = labels(clientAddr=member.remote_text, clientId=member.client_id, group=group, topic=topic)
                    found.append((text, status))
        except (RemotingError, BodyError) as error:
            log.debug("information about a client not received", client=member.client_id, error=str(error))
        finally:
            places.release()


def _sample(value: Callable[[ConsumeStatus], float], known: tuple[str, ConsumeStatus]) -> Sample:
    return known[0], value(known[1])
