"""SlaveAccess: who may connect to the HA port, and whose reports count as copies of a message.

RocketMQ's HA protocol has no accounts: every peer receives the log, and the offsets that it reports complete the puts
of a SYNC_MASTER. Here a peer counts if

    haSlaveAddresses names its address or network (then nobody else may connect), or
    the NameServers know a slave of this broker's name on its host, or
    haCountUnregistered=true, or no NameServer is configured that could know, and aclEnable=false

A slave registers before it connects, so its host is known when it arrives; `run` asks the NameServers whenever a peer
arrives that is not known, and periodically while there is one. What a NameServer said stays true until another answer.
Peers that do not count may still receive the log, unless aclEnable=true or haServeUnregistered=false.

Only the event loop touches it.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, TypeAlias

import structlog
import trio

from triomq.broker.configuration import Configuration
from triomq.broker.settings.networks import networks_of
from triomq.protocol.bodies.route import ClusterInfo
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.errors import BodyError
from triomq.protocol.networks import is_listed, is_loopback
from triomq.remoting.errors import RemotingError

log = structlog.get_logger("triomq.broker.replication")

ASK_SECONDS: Final = 3.0
PAUSE_SECONDS: Final = 1.0
"""The shortest time between two questions to the NameServers."""
AGAIN_SECONDS: Final = 10.0
"""The time between two questions while a peer is not known."""
MAX_HOSTS: Final = 256

Ask: TypeAlias = Callable[[str, RemotingCommand, float], Awaitable[RemotingCommand]]


class Access(Protocol):
    """What a LogServer asks. `ip` is the peer's address, `local_ip` the one that it connected to."""

    @property
    def serves_strangers(self) -> bool:
        """Return whether a peer that does not count receives the log."""

    def may_connect(self, ip: str) -> bool: ...

    def counts(self, ip: str, local_ip: str) -> bool: ...

    async def learn(self) -> None:
        """Return when the NameServers have been asked once more."""


class OpenAccess:
    """Everybody counts, as in RocketMQ."""

    serves_strangers = True

    def may_connect(self, ip: str) -> bool:
        return True

    def counts(self, ip: str, local_ip: str) -> bool:
        return True

    async def learn(self) -> None:
        await trio.lowlevel.checkpoint()


class SlaveAccess:
    """See the module's docstring."""

    def __init__(self, configuration: Configuration, ask: Ask, nameservers: Callable[[], list[str]]) -> None:
        """`ask` is RemotingClient.invoke; `nameservers` returns their addresses. Raises SettingError for
        haSlaveAddresses."""
        self._nameservers = nameservers
        self._configuration = configuration
        self._ask = ask
        self._listed = networks_of("haSlaveAddresses", configuration.store.ha_slave_addresses)
        self._hosts: frozenset[str] = frozenset()
        self._asking = trio.Lock()
        self._asked = -PAUSE_SECONDS

    @property
    def serves_strangers(self) -> bool:
        serves = self._configuration.store.ha_serve_unregistered
        return serves if serves is not None else not self._configuration.broker.acl_enable

    def may_connect(self, ip: str) -> bool:
        return not self._listed or is_listed(ip, self._listed)

    def counts(self, ip: str, local_ip: str) -> bool:
        broker = self._configuration.broker
        if self._listed:
            return is_listed(ip, self._listed)
        if self._configuration.store.ha_count_unregistered:
            return True
        if not broker.namesrv_addr and not broker.fetch_namesrv_addr_by_address_server:
            return not broker.acl_enable  # nobody can be asked: with accounts, only a listed address is no stranger
        return is_on_host(ip, local_ip, self._hosts, broker.broker_ip1)

    async def learn(self) -> None:
        """Ask all NameServers for the slaves of this broker's name. Several callers at once share one question."""
        began = trio.current_time()
        async with self._asking:
            if self._asked >= began or self._listed:
                return
            await trio.sleep(max(0.0, self._asked + PAUSE_SECONDS - trio.current_time()))
            self._asked = trio.current_time()
            found: list[frozenset[str]] = []
            async with trio.open_nursery() as nursery:
                for address in self._nameservers():
                    nursery.start_soon(self._ask_one, address, found)
            if found:
                self._hosts = frozenset().union(*found)

    async def _ask_one(self, address: str, found: list[frozenset[str]]) -> None:
        try:
            answer = await self._ask(address, new_request(RequestCode.GET_BROKER_CLUSTER_INFO), ASK_SECONDS)
            if answer.code != ResponseCode.SUCCESS:
                return
            brokers = ClusterInfo.decode(answer.body).broker_addr_table
        except (RemotingError, BodyError) as error:
            log.debug("slaves not listed by a NameServer", nameserver=address, error=str(error))
            return
        ours = brokers.get(self._configuration.broker.broker_name)
        addresses = ours.broker_addrs.items() if ours is not None else ()
        names = [text.rpartition(":")[0].strip("[]") for broker_id, text in addresses if broker_id != 0]
        found.append(frozenset([ip for name in names[:MAX_HOSTS] for ip in await _resolve(name)]))


async def _resolve(name: str) -> list[str]:
    """Return the addresses of a host, which may be given as one; none for a name that does not resolve."""
    try:
        return [str(ipaddress.ip_address(name))]
    except ValueError:
        pass
    try:
        with trio.move_on_after(ASK_SECONDS):
            return [str(info[4][0]) for info in await trio.socket.getaddrinfo(name, None)]
    except (OSError, UnicodeError) as error:
        log.debug("host of a registered slave not resolved", host=name, error=str(error))
    return []


def is_on_host(ip: str, local_ip: str, hosts: frozenset[str], own_ip: str) -> bool:
    """Return whether a peer at `ip` is on one of `hosts`. A peer on this machine may use any of its addresses; this
    machine is among the hosts if they have a loopback address, `own_ip`, or the address that the peer connected to."""
    if ip in hosts:
        return True
    if ip != local_ip and not is_loopback(ip):
        return False
    return own_ip in hosts or local_ip in hosts or any(is_loopback(host) for host in hosts)
