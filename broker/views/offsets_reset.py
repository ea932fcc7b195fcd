"""The offsets of a group in a topic, set back or forward at one broker: by requests, so at any broker of the route."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from triomq.broker.views.operator import Operator, Requests, succeeded
from triomq.dashboard.actions import Act
from triomq.protocol import change_previews
from triomq.protocol.bodies import fastjson_reader
from triomq.protocol.bodies.offset import ResetOffsetBody
from triomq.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from triomq.protocol.change_previews import Step

_NOBODY: Final = (ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)


class OffsetsReset:
    """`moment`: EARLIEST, LATEST or a time in ms (change_previews). `operator` writes the audit."""

    def __init__(self, act: Act, moment: int, operator: Operator) -> None:
        self._actor = act.actor
        self._group, self._topic = act.fields["group"], act.fields["topic"]
        self._moment = moment
        self._operator = operator

    async def members(self, broker: Requests) -> int:
        """Return how many members of the group are online at a broker. Raises ActionRefused."""
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        response = await broker.request(self._actor, code, {"consumerGroup": self._group})
        if response.code in _NOBODY:
            return 0
        return len(fastjson_reader.loads(succeeded(response).body).get("connectionSet") or ())

    async def moves(self, broker: Requests) -> tuple[int, list[Step]]:
        """Return how many members are online, and the new offset of each queue: as the broker tells members, or,
        without any, as its table will be."""
        members = await self.members(broker)
        if members:
            code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
            return members, await broker.preview(self._actor, code, self._told())
        fields = {"topic": self._topic, "group": self._group, "timestamp": self._moment}
        return 0, await broker.asked(self._actor, change_previews.offsets_reset("", fields, None))

    async def run(self, broker: Requests) -> tuple[int, list[Step]]:
        """Have a broker tell the members, who commit the offsets; without members, store the offsets. Return how
        many there were, and the steps that were made. Raises ActionRefused."""
        _, steps = await self.moves(broker)
        members = await self.members(broker)
        # A broker tells members nothing while a queue has no offset: such a queue gets its new one first. Statistics
        # show some of them as 0.
        await self._store(broker, [step for step in steps if not members or not step["before"]])
        if members:
            response = await broker.change(self._actor, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, self._told())
            told = ResetOffsetBody.decode(response.body).offset_table
            after = {queue.queue_id: offset for queue, offset in told.items()}
            steps = [{**step, "after": after.get(step["queueId"], step["after"])} for step in steps]
        return members, steps

    def _told(self) -> dict[str, Any]:
        """Return the request that tells members their new offsets."""
        moment = 0 if self._moment == change_previews.EARLIEST else self._moment
        return {"topic": self._topic, "group": self._group, "timestamp": moment, "isForce": True}

    async def _store(self, broker: Requests, steps: list[Step]) -> None:
        """Store the new offsets of these queues."""
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        done: dict[int, Step] = {}
        try:
            for step in steps:
                queue_id, offset = step["queueId"], step["after"]
                if offset is not None:
                    place = {"consumerGroup": self._group, "topic": self._topic, "queueId": queue_id}
                    await broker.change(self._actor, code, {**place, "commitOffset": offset})
                    done[queue_id] = step
        finally:
            if done:
                self._operator.note(
                    self._actor,
                    "offsets reset",
                    code,
                    before={str(number): step["before"] for number, step in done.items() if step["before"]},
                    after={str(number): step["after"] for number, step in done.items()},
                    group=self._group,
                    topic=self._topic,
                    broker=broker.place,
                )
