"""What all parts of `Admin` share: asking brokers and name servers, and which brokers there are."""

from __future__ import annotations

from collections.abc import Container, Iterable

from triomq.client.core.errors import ConfigurationError, MQClientError
from triomq.client.instance.own_client import OpenedWithClient
from triomq.protocol.bodies.route import ClusterInfo, TopicRouteData
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.headers.base import Header

OK: tuple[int, ...] = (ResponseCode.SUCCESS,)


class AdminBase(OpenedWithClient):
    """Calls that the parts of `Admin` are made of. Topics and groups are wire names: namespaces are not added."""

    _timeout_seconds: float

    async def _broker(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        accept: Container[int] = OK,
        timeout_seconds: float | None = None,
    ) -> RemotingCommand:
        """Ask one broker. Raises BrokerRefused, BrokerUnreachable, OperationTimeout."""
        return await self._client.ask(
            address,
            new_request(code, header, body),
            code.name,
            accept=accept,
            timeout_seconds=self._timeout_seconds if timeout_seconds is None else timeout_seconds,
        )

    async def _name_server(
        self, code: RequestCode, header: Header | None = None, body: bytes = b"", *, accept: Container[int] = OK
    ) -> RemotingCommand:
        """Ask one name server. Raises NameServersUnreachable, BrokerRefused."""
        return await self._client.ask_name_server(lambda: new_request(code, header, body), code.name, accept=accept)

    async def _every_name_server(
        self,
        code: RequestCode,
        header: Header | None = None,
        body: bytes = b"",
        *,
        addresses: Iterable[str] | None = None,
        accept: Container[int] = OK,
    ) -> dict[str, RemotingCommand]:
        """Send a request to all name servers, which do not forward it to each other.

        Raises the first failure after the last response."""
        responses: dict[str, RemotingCommand] = {}
        failure: MQClientError | None = None
        for address in addresses or self._client.name_servers.addresses:
            try:
                responses[address] = await self._client.ask(
                    address, new_request(code, header, body), code.name, accept=accept, vip=False
                )
            except MQClientError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return responses

    # Which brokers there are.

    async def cluster_info(self) -> ClusterInfo:
        """Return all brokers and clusters."""
        return ClusterInfo.decode((await self._name_server(RequestCode.GET_BROKER_CLUSTER_INFO)).body)

    async def clusters(self) -> dict[str, dict[str, dict[int, str]]]:
        """Return cluster -> broker name -> broker id -> address."""
        info = await self.cluster_info()
        return {
            cluster: {
                name: dict(info.broker_addr_table[name].broker_addrs)
                for name in sorted(names)
                if name in info.broker_addr_table
            }
            for cluster, names in sorted(info.cluster_addr_table.items())
        }

    async def masters(self, cluster: str | None = None) -> dict[str, str]:
        """Return broker name -> address of its master, of one cluster or of all. Raises ConfigurationError for an
        unknown cluster."""
        return {name: addresses[0] for name, addresses in (await self._brokers(cluster)).items() if 0 in addresses}

    async def addresses(self, cluster: str | None = None) -> list[str]:
        """Return the addresses of all brokers, replicas included."""
        return sorted(
            address for addresses in (await self._brokers(cluster)).values() for address in addresses.values()
        )

    async def _brokers(self, cluster: str | None) -> dict[str, dict[int, str]]:
        clusters = await self.clusters()
        if cluster is not None and cluster not in clusters:
            known = ", ".join(clusters) or "none"
            raise ConfigurationError(f"the name server knows no cluster {cluster!r} (it knows: {known})")
        chosen = clusters.values() if cluster is None else [clusters[cluster]]
        return {name: addresses for brokers in chosen for name, addresses in brokers.items()}

    async def route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic: its queues and brokers. Raises NoRoute."""
        return await self._client.fetch_route(topic)

    async def _masters_of_topic(self, topic: str) -> dict[str, str]:
        """Return broker name -> address (the master's, or a replica's when there is none) of the brokers of a topic."""
        found: dict[str, str] = {}
        for broker in (await self.route(topic)).broker_datas:
            if broker.broker_addrs:
                found[broker.broker_name] = broker.broker_addrs.get(0) or broker.broker_addrs[min(broker.broker_addrs)]
        return found

    async def _targets(self, cluster: str | None, broker_address: str | None) -> list[str]:
        """Return the addresses an administrative change goes to: one broker, or the masters of a cluster (of all
        clusters)."""
        if broker_address is not None:
            return [broker_address]
        masters = await self.masters(cluster)
        if not masters:
            raise ConfigurationError("no name server knows a master broker; is a broker running and registered?")
        return [address for _, address in sorted(masters.items())]
