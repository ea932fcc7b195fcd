"""Three whole brokers of a DLedger group in virtual time, whose leaders a test ends, and one client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import trio

from sim.cluster import BROKER_PORT, now_ms
from sim.determinism import VirtualClock, run_seeded
from sim.dledger.brokers import Brokers
from triomq.broker.assembly.serving import Serving
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.message import MessageExt
from triomq.protocol.record import decode_records
from triomq.remoting import network
from triomq.remoting.client import RemotingClient, open_client

GROUP: Final = "G"
INVISIBLE_MS: Final = 60_000
WAIT_SECONDS: Final = 60.0


class Received:
    """The response to a receive."""

    def __init__(self, response: RemotingCommand) -> None:
        self.response = response
        self.messages: list[MessageExt] = decode_records(response.body) if response.body else []

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    def ack_fields(self, body: bytes) -> dict[str, Any]:
        """Return the fields with which a client acknowledges one of the messages."""
        fields = self.response.ext_fields or {}
        [message] = [each for each in self.messages if each.body == body]
        place = f"{message.queue_id} {message.queue_offset}"
        handle = f"0 {fields['popTime']} {fields['invisibleTime']} 0 0 sim {place}"
        where = {"topic": message.topic, "queueId": message.queue_id, "offset": message.queue_offset}
        return {"consumerGroup": GROUP, "extraInfo": handle, **where}


class BrokerGroup:
    """See the module's docstring. Requests go to the leader of the moment unless a name is given."""

    def __init__(self, brokers: Brokers, client: RemotingClient) -> None:
        self.brokers = brokers
        self._client = client

    async def leader(self, *without: str) -> str:
        """Wait until a member has taken office; return its name."""
        with trio.fail_after(WAIT_SECONDS):
            while True:
                for name, serving in self.brokers.leaders():
                    if name not in without and serving.store.refusal is None:
                        return name
                await trio.sleep(0.01)

    def serving(self, name: str) -> Serving:
        controller = self.brokers.brokers[name].controller
        assert controller is not None and controller.serving is not None
        return controller.serving

    async def ask(
        self, code: int, fields: dict[str, Any], body: bytes = b"", *, at: str | None = None, seconds: float = 30.0
    ) -> RemotingCommand:
        name = at or await self.leader()
        request = new_request(code, ext_fields={key: str(value) for key, value in fields.items()}, body=body)
        return await self._client.invoke(f"{self.brokers.brokers[name].host.ip}:{BROKER_PORT}", request, seconds)

    async def make_topic(self, topic: str = "T") -> None:
        fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        made = await self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**fields, "topicFilterType": "SINGLE_TAG"})
        assert made.code == 0, made.remark

    async def send(self, *bodies: bytes, at: str | None = None) -> list[int]:
        """Return the codes of the responses."""
        fields = {"producerGroup": "P", "topic": "T", "defaultTopic": "TBW102", "defaultTopicQueueNums": 1}
        fields |= {"queueId": 0, "sysFlag": 0, "bornTimestamp": now_ms(), "flag": 0}
        return [(await self.ask(RequestCode.SEND_MESSAGE, fields, body, at=at)).code for body in bodies]

    async def receive(self, *, at: str | None = None, **changes: Any) -> Received:
        fields = {"consumerGroup": GROUP, "topic": "T", "queueId": -1, "maxMsgNums": 32, "invisibleTime": INVISIBLE_MS}
        fields |= {"pollTime": 0, "bornTime": now_ms(), "initMode": 0, "expType": "TAG", "exp": "*"}
        return Received(await self.ask(RequestCode.POP_MESSAGE, fields | changes, at=at))

    async def ack(self, received: Received, body: bytes, at: str | None = None) -> RemotingCommand:
        return await self.ask(RequestCode.ACK_MESSAGE, received.ack_fields(body), at=at)

    def cut_off(self, name: str) -> None:
        """Let nobody but the client reach a broker."""
        network, brokers = self.brokers.network, self.brokers
        host = brokers.brokers[name].host
        for other in (brokers.name_server, *brokers.brokers.values()):
            if other.host is not host:
                network.cut(host, other.host)
                network.cut(other.host, host)

    async def hand_over(self, name: str, to: str | None = None) -> None:
        """Let another member lead, whichever can; return when it does."""
        group = self.serving(name).group
        assert group is not None and group.member is not None
        with trio.fail_after(WAIT_SECONDS), self.brokers.brokers[name].host.entered():
            while await self.leader() == name:
                for other in [to] if to is not None else list(self.brokers.brokers):
                    if other != name and group.member.can_take_over(other) and await group.hand_over_to(other):
                        break
                await trio.sleep(0.1)

    async def end_leader(self, how: str) -> str:
        """End the leadership of the present leader. Return the next one's name."""
        name = await self.leader()
        if how == "kill":
            await self.brokers.brokers[name].kill()
        elif how == "cut off":
            self.cut_off(name)
        else:
            await self.hand_over(name)
        return await self.leader(name)


def run_group(directory: Path, scenario: Callable[[BrokerGroup], Awaitable[None]], **settings: str) -> None:
    """Run a scenario with the topic T, which has one queue."""

    async def main(clock: VirtualClock) -> None:
        async with trio.open_nursery() as nursery:
            brokers = Brokers(1, clock, nursery, directory, ())
            network.simulated.set(brokers.network.host("nowhere"))  # nothing reaches the real network
            for broker in brokers.brokers.values():
                broker.change_settings(settings)
            for node in (brokers.name_server, *brokers.brokers.values()):
                nursery.start_soon(node.start)
            with brokers.clients[0].entered():
                async with open_client() as client:
                    group = BrokerGroup(brokers, client)
                    await group.make_topic()
                    await scenario(group)
            for node in (*brokers.brokers.values(), brokers.name_server):
                await node.stop()
            nursery.cancel_scope.cancel()

    run_seeded(main, 1)
