"""The brokers at which an action of the dashboard acts: this one, and the other masters of a topic's route or of the
cluster, with its slaves where mqadmin's commands act at those, too. NameServers say which these are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from triomq.broker.assembly.serving import Serving
from triomq.broker.views.operator import Operator, Requests
from triomq.dashboard.actions import ActionRefused, Actor, Fact, Outcome, Row
from triomq.protocol.bodies.route import MASTER_ID, BrokerData, ClusterInfo, TopicRouteData
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.errors import BodyError
from triomq.remoting.client import RemotingClient
from triomq.remoting.errors import RemotingError

ASK_SECONDS: Final = 5.0
"""The longest wait for another broker, or for a NameServer."""
MOST_BROKERS: Final = 64
T = TypeVar("T")


class OtherBroker(Requests):
    """Another broker, asked over remoting with the account of who acts."""

    def __init__(
        self, operator: Operator, client: RemotingClient, name: str, address: str, seconds: float = ASK_SECONDS
    ) -> None:
        self._operator = operator
        self._client = client
        self.name = name
        self._address = address
        self._seconds = seconds

    @property
    def place(self) -> str:
        return self._address

    async def request(
        self, actor: Actor, code: int, fields: dict[str, Any] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        """Return the response to a request, whatever its code. Raises ActionRefused without one."""
        texts = self._operator.signed(actor, code, self.texts_of(fields), body)
        request = new_request(code, ext_fields=texts, body=body)
        try:
            return await self._client.invoke(self._address, request, self._seconds)
        except RemotingError as error:
            raise ActionRefused(str(error)) from None


@dataclass(frozen=True, slots=True)
class Place:
    """One broker at which an action acts."""

    name: str
    requests: Requests


@dataclass(frozen=True, slots=True)
class Places:
    """`every` begins with this broker. `problem` says why there may be more of them."""

    every: list[Place]
    problem: str = ""
    failed: list[Outcome] = field(default_factory=list)
    """Brokers at which something failed, added by `each`."""

    async def each(
        self, act: Callable[[Requests], Awaitable[T]], text: str, *, own_last: bool = False
    ) -> list[tuple[Place, T]]:
        """Act at each broker, this one first or last, and return what that returned. Raises ActionRefused if this
        broker refuses before anything was done; what fails at another is added to `failed`, with this text."""
        own, *others = self.every
        found: list[tuple[Place, T]] = []
        for place in (*others, own) if own_last else self.every:
            try:
                found.append((place, await act(place.requests)))
            except ActionRefused as error:
                if place is own and not found:
                    raise
                self.failed.append(Outcome(text, place.name, ok=False, detail=str(error)))
        return found

    def named(self, place: Place) -> str:
        """Return the name of a broker for a row or an outcome; nothing if there is only this one."""
        return place.name if len(self.every) > 1 or self.problem else ""

    def facts(self) -> list[Fact]:
        """Return what a preview says of the brokers."""
        if len(self.every) == 1 and not self.problem:
            return []
        away = [f"{one.subject}: {one.detail}" for one in self.failed] + ([self.problem] if self.problem else [])
        names = ", ".join([place.name for place in self.every])
        return [Fact("Brokers", names), *([Fact("Not reached", "; ".join(away))] if away else [])]

    def rows(self, found: list[tuple[Place, T]], rows_of: Callable[[T, str], list[Row]]) -> list[Row]:
        """Return the rows of all brokers, from what `each` returned and the name of the broker."""
        return [row for place, value in found for row in rows_of(value, self.named(place))]

    def done(self, found: list[tuple[Place, T]], text: Callable[[T], str], subject: str) -> list[Outcome]:
        """Return what a result says: of each broker where something was done, and of the others. `subject` stands for
        this broker if there is no other."""
        return [*[Outcome(text(value), self.named(place) or subject) for place, value in found], *self.outcomes()]

    def outcomes(self) -> list[Outcome]:
        """Return what a result says of brokers where nothing was done."""
        problem = [Outcome("Other brokers were not changed", self.problem, ok=False)] if self.problem else []
        return [*self.failed, *problem]


class Brokers:
    """Finds the brokers for an action."""

    def __init__(self, serving: Serving, operator: Operator) -> None:
        self._configuration = serving.tables.configuration.broker
        self._role = serving.tables.configuration.role
        self._client = serving.client
        self._name_servers = serving.registration
        self._operator = operator

    async def of_topic(self, topic: str) -> Places:
        """Return this broker, and the other masters that have the topic."""
        response, problem = await self._ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        if response is None or response.code != ResponseCode.SUCCESS:
            return self._places((), problem)
        try:
            return self._places(TopicRouteData.decode(response.body).broker_datas)
        except BodyError as error:
            return self._places((), str(error))

    def here(self) -> Places:
        """Return this broker alone."""
        return Places([Place(self._configuration.broker_name, self._operator)])

    async def of_cluster(self, *, with_slaves: bool = False) -> Places:
        """Return this broker, and the other masters of its cluster, or all its other brokers."""
        response, problem = await self._ask(RequestCode.GET_BROKER_CLUSTER_INFO)
        if response is None or response.code != ResponseCode.SUCCESS:
            return self._places((), problem)
        try:
            info = ClusterInfo.decode(response.body)
        except BodyError as error:
            return self._places((), str(error))
        names = info.cluster_addr_table.get(self._configuration.broker_cluster_name, frozenset())
        brokers = [info.broker_addr_table[name] for name in sorted(names) if name in info.broker_addr_table]
        return self._places_with_slaves(brokers) if with_slaves else self._places(brokers)

    async def forget_topic(self, topic: str) -> list[Outcome]:
        """Have the NameServers forget a topic that its brokers have deleted: they keep what a registration does not
        name. Return an outcome for each that was not reached."""
        failed: list[Outcome] = []
        for address in self._name_servers.nameservers:
            request = new_request(RequestCode.DELETE_TOPIC_IN_NAMESRV, ext_fields={"topic": topic})
            try:
                await self._client.invoke(address, request, ASK_SECONDS)
            except RemotingError as error:
                failed.append(Outcome("The topic was not deleted", address, ok=False, detail=str(error)))
        return failed

    async def _ask(self, code: int, fields: dict[str, str] | None = None) -> tuple[RemotingCommand | None, str]:
        """Return the response of the first NameServer that has one; without one, why. Nobody is asked by a broker
        without NameServers."""
        problem = ""
        for address in self._name_servers.nameservers:
            try:
                return await self._client.invoke(address, new_request(code, ext_fields=fields), ASK_SECONDS), ""
            except RemotingError as error:
                problem = f"no NameServer says which others there are: {error}"
        return None, problem

    def _places(self, brokers: Iterable[BrokerData], problem: str = "") -> Places:
        own = self._configuration.broker_name
        masters = {
            data.broker_name or "": data.broker_addrs[MASTER_ID] for data in brokers if MASTER_ID in data.broker_addrs
        }
        masters.pop(own, None)
        others = [
            Place(name, OtherBroker(self._operator, self._client, name, address))
            for name, address in sorted(masters.items())[:MOST_BROKERS]
        ]
        return Places([Place(own, self._operator), *others], problem)

    def _places_with_slaves(self, brokers: Iterable[BrokerData]) -> Places:
        own = (self._configuration.broker_name, self._role.broker_id)
        members = {
            (data.broker_name or "", number): address
            for data in brokers
            for number, address in data.broker_addrs.items()
        }
        members.pop(own, None)
        others = [
            Place(_name_of(*member), OtherBroker(self._operator, self._client, _name_of(*member), address))
            for member, address in sorted(members.items())[:MOST_BROKERS]
        ]
        return Places([Place(_name_of(*own), self._operator), *others])


def _name_of(name: str, number: int) -> str:
    """Return the name of a broker as `mqadmin config diff` has it: a slave's with its id."""
    return f"{name}/{number}" if number else name
