"""A member of the group G of a whole broker, and what it says when the broker asks it something."""

from __future__ import annotations

from broker_shown import Shown

from triomq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData
from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.subscription import SubscriptionData
from triomq.remoting.connection import Connection

HEART_BEAT = 34


class AskedMember:
    """It answers requests of one code with `body`, `code` and `remark`, and notes their fields and bodies."""

    def __init__(
        self, here: Shown, asked_code: int, body: bytes = b"", code: int = 0, remark: str | None = None
    ) -> None:
        self._broker = here.broker
        self.body = body
        self.code = code
        self.remark = remark
        self.is_silent = False
        self.asked: list[tuple[dict[str, str], bytes]] = []
        here.broker.client.register(asked_code, self._answer)

    def _answer(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        self.asked.append((dict(request.ext_fields or {}), bytes(request.body)))
        if self.is_silent:
            return None
        return new_response(request, self.code, self.remark, body=self.body)

    async def join(self, client: str = "c1") -> None:
        """Send a heartbeat of a consumer of the topic T."""
        consumer = ConsumerData(
            group_name="G",
            consume_type="CONSUME_PASSIVELY",
            message_model="CLUSTERING",
            subscription_data_set=[SubscriptionData(topic="T", sub_string="*", sub_version=5)],
        )
        body = HeartbeatData(client_id=client, consumer_data_set=[consumer]).encode()
        request = new_request(HEART_BEAT, body=body)
        response = await self._broker.client.invoke(self._broker.address, request, timeout_seconds=10)
        assert response.code == 0, response.remark
