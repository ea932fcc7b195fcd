"""Looking for the master of a broker name when the one that is known no longer acts as one.

A request that gets no response, and one that is refused because the server is a slave by now, put an address in doubt.
A task then looks at the routes each second, until another address is the master, or the doubted one responds again. All
requests that still wait at an address that is no master any more and does not respond fail then, by the end of their
connection, and go to the new master at once. One task for each doubted address; none in a client without trouble.
"""

from __future__ import annotations

from abc import abstractmethod

import trio

from triomq.client.core.config import ClientConfig
from triomq.client.core.errors import MQClientError
from triomq.client.core.log import get_logger
from triomq.client.core.routes import MASTER_ID, BrokerAddress
from triomq.client.instance.caller import vip_address
from triomq.client.instance.router import Router
from triomq.protocol.outage import Outages
from triomq.protocol.system_topics import AUTO_CREATE_TOPIC

log = get_logger("triomq.client.client")

LOOK_SECONDS = 1.0
LOOKS = 60
"""Later the periodic look at all routes has to find the master."""


class MasterSearch(Router):
    """The part of a client that finds the new master when the known one is in doubt."""

    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)
        self._doubted: dict[str, bool] = {}
        """Address of a master -> whether a response ends the doubt."""
        self._searching: set[str] = set()
        self._doubts_told = Outages()
        self._masters: dict[str, str] = {}
        self._master_changed = trio.Event()

    @abstractmethod
    def _start_search(self, broker: BrokerAddress) -> bool:
        """Run `_search` in the background; return False if this client is being closed."""

    async def pause(self, seconds: float) -> None:
        """Wait, but only until a broker name has another master."""
        with trio.move_on_after(seconds):
            await self._master_changed.wait()

    async def master_soon(self, broker_name: str, topic: str) -> str:
        """Return the address of a master, as `master_of` does. While slaves of the broker are known and no master is,
        wait for one within the limit of a request: one of a group's members takes over in that time. Raises
        BrokerUnknown, NoRoute, NameServersUnreachable."""
        with trio.move_on_after(self.config.request_timeout_seconds):
            while self.routes.master(broker_name) is None:
                await self.refresh_route(topic)
                if self.routes.master(broker_name) or self.routes.readable(broker_name, MASTER_ID) is None:
                    break
                await self.pause(LOOK_SECONDS)
        return await self.master_of(broker_name, topic)

    def doubt(self, address: str, reason: str | None, *, responds: bool = False) -> None:
        """Look for another master if `address` is known as one. `responds`: it said itself that it is not.
        `reason` is for the log, None if it was logged."""
        if not self.is_open:
            return
        for broker in self.routes.brokers():
            is_it = address in (broker.address, vip_address(broker.address))
            if not is_it or not (broker.is_master or responds):
                continue
            if broker.address not in self._searching and not self._start_search(broker):
                return
            self._searching.add(broker.address)
            self._doubted[broker.address] = not responds
            if reason is not None and self._doubts_told.failed(broker.address, trio.current_time()):
                log.warning("master lost; looking for another", broker=broker.address, reason=reason)

    def _responded(self, address: str) -> None:
        """Note a response, which ends the doubt in an address that was silent."""
        for doubted, ends in list(self._doubted.items()):
            if ends and address in (doubted, vip_address(doubted)):
                del self._doubted[doubted]

    async def _search(self, broker: BrokerAddress) -> None:
        """Look at the routes until the doubt is over."""
        try:
            for _ in range(LOOKS):
                await self._look(broker.broker_name)
                if broker.address not in self._doubted:
                    return
                if self.routes.master(broker.broker_name) not in (None, broker.address):
                    self._abandon(broker.address)
                    return
                await trio.sleep(LOOK_SECONDS)
        except Exception:
            log.exception("search for a master failed", broker=broker.broker_name)
        finally:
            self._doubted.pop(broker.address, None)
            self._searching.discard(broker.address)

    async def _look(self, broker_name: str) -> None:
        route = self.routes.naming(broker_name)
        if route is None:
            return
        try:
            if route.is_template:
                await self.refresh_publish_route(route.topic, AUTO_CREATE_TOPIC, max(1, len(route.publish)))
            else:
                await self.refresh_route(route.topic)
        except MQClientError as error:
            log.debug("route not refreshed", topic=route.topic, reason=str(error))

    def _abandon(self, address: str) -> None:
        """End the connections to an address that did not respond and is no longer a master's."""
        remoting = self._open_remoting()
        if self._doubted.get(address):
            for each in (address, vip_address(address)):
                connection = remoting.connection(each)
                if connection is not None:
                    connection.close("it does not respond, and another broker is the master")

    def _note_masters(self) -> list[str]:
        """Wake who waits for another master. Return the addresses that were masters and are in no route any more."""
        brokers = self.routes.brokers()
        before, self._masters = self._masters, {one.broker_name: one.address for one in brokers if one.is_master}
        if all(before.get(name, address) == address for name, address in self._masters.items()):
            return []
        self._master_changed.set()
        self._master_changed = trio.Event()
        known = {one.address for one in brokers}
        return [address for address in before.values() if address not in known and address not in self._doubted]
