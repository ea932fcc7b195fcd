"""Actions on consumer groups: create, change, delete, set back or forward where they read, and release what they have
in flight (POP)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from triomq.broker.assembly.serving import Serving
from triomq.broker.processors.group_admin import checked_config
from triomq.broker.processors.topic_admin import refuse_on_slave
from triomq.broker.tables.topics import MAX_QUEUES
from triomq.broker.views.forms import broker_refusals, number_of
from triomq.broker.views.messages import time_of
from triomq.broker.views.operator import Operator
from triomq.dashboard.actions import Act, Action, ActionRefused, Fact, Outcome, Preview, Result, Row
from triomq.dashboard.render import link_text
from triomq.dashboard.views import Ask, NotThere, Steps, View
from triomq.protocol import change_previews
from triomq.protocol.bodies.base import replace
from triomq.protocol.bodies.offset import ResetOffsetBody
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from triomq.protocol.codes import RequestCode
from triomq.protocol.system_topics import is_retry_topic

if TYPE_CHECKING:
    from triomq.protocol.change_previews import Step

CHANGE: Final = "/act/group"
DELETE: Final = "/act/group/delete"
RESET: Final = "/act/group/reset"
RELEASE: Final = "/act/group/release"
MOST_QUEUES: Final = 1024
"""Queues of a topic whose offsets are reset here; beyond it, mqadmin does it."""
ALL_QUEUES: Final = -1
_LABELS: Final = {
    "consumeEnable": "May consume",
    "consumeBroadcastEnable": "May broadcast",
    "retryMaxTimes": "Most retries",
    "retryQueueNums": "Retry queues",
}
_TARGETS: Final = ("start", "end", "time")


class GroupActions:
    """Forms, previews and changes of groups."""

    def __init__(self, serving: Serving, operator: Operator) -> None:
        self._configuration = serving.tables.configuration
        self._metadata = serving.tables.metadata
        self._operator = operator

    def views(self) -> list[View]:
        """Return the pages with forms."""
        return [View("/edit-group", "Create a group", "edit_group.html", self.form, "/groups", False, True)]

    def actions(self) -> list[Action]:
        """Return what may be done."""
        return [
            Action(
                CHANGE,
                "Create or change the group",
                ("group", "may_consume", "may_broadcast", "most_retries", "retry_queues"),
                self.preview_change,
                self.change,
                of="/groups",
            ),
            Action(
                DELETE,
                "Delete the group",
                ("group", "offsets"),
                self.preview_deletion,
                self.delete,
                of="/groups",
                warning="Consumers of the group stop, or make it again with default settings.",
            ),
            Action(
                RESET,
                "Reset the offsets",
                ("group", "topic", "target", "time"),
                self.preview_reset,
                self.reset,
                of="/groups",
                warning="The group skips messages, or consumes some again.",
            ),
            Action(
                RELEASE,
                "Release what is in flight",
                ("group", "topic", "queue"),
                self.preview_release,
                self.release,
                of="/groups",
                warning="What consumers are still busy with may be consumed twice.",
            ),
        ]

    def form(self, ask: Ask) -> Steps:
        """Make the forms of a group: with what it has now, or an empty one."""
        name = ask.query.get("name", "")
        if name and not self._is_known(name):
            raise NotThere(f"there is no group {name!r} that you may see")
        yield
        config = (self._metadata.groups.get(name) if name else None) or SubscriptionGroupConfig()
        return {
            "name": name,
            "config": config,
            "most_queues": MAX_QUEUES,
            "topics": [topic for topic in self._topics_of(name) if not is_retry_topic(topic)],
        }

    def _is_known(self, group: str) -> bool:
        metadata = self._metadata
        is_there = metadata.groups.get(group) is not None or metadata.consumers.get(group) is not None
        return is_there or bool(metadata.offsets.topics_of_group(group))

    def _topics_of(self, group: str) -> list[str]:
        online = self._metadata.consumers.get(group)
        subscribed = online.subscriptions if online is not None else ()
        return sorted({*self._metadata.offsets.topics_of_group(group), *subscribed})

    # -- create and change -----------------------------------------------------------------------------------------

    def _body(self, act: Act) -> bytes:
        """Return the request of a form. Raises ActionRefused if the broker would refuse it."""
        group = act.fields["group"]
        config = replace(
            self._metadata.groups.get(group) or SubscriptionGroupConfig(),
            group_name=group,
            consume_enable=act.fields["may_consume"] == "yes",
            consume_broadcast_enable=act.fields["may_broadcast"] == "yes",
            retry_max_times=number_of(act, "most_retries"),
            retry_queue_nums=number_of(act, "retry_queues"),
        )
        body = config.encode()
        with broker_refusals():
            checked_config(self._configuration, body)
        return body

    async def preview_change(self, act: Act) -> Preview:
        """Show the settings before and after."""
        return Preview(act.fields["group"], rows=await self._rows(act, self._body(act)))

    async def change(self, act: Act) -> Result:
        """Send UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
        body = self._body(act)
        group = act.fields["group"]
        rows = await self._rows(act, body)
        is_new = rows[0].before is None
        await self._operator.change(act.actor, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        outcome = Outcome("The group was created" if is_new else "The group was changed", group)
        return Result([outcome], rows, link_text("/group", name=group))

    async def _rows(self, act: Act, body: bytes) -> list[Row]:
        (step,) = await self._operator.preview(act.actor, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        before, after = step["before"] or {}, step["after"]
        return [Row(label, _shown(before.get(name)), _shown(after[name])) for name, label in _LABELS.items()]

    # -- delete ----------------------------------------------------------------------------------------------------

    def _deletion(self, act: Act) -> dict[str, Any]:
        group = act.fields["group"]
        with broker_refusals():
            refuse_on_slave(self._configuration)
        if not self._is_known(group):
            raise ActionRefused(f"there is no group {group!r}")
        return {"groupName": group, "removeOffset": act.fields["offsets"] == "remove"}

    async def preview_deletion(self, act: Act) -> Preview:
        """Show who is online, and what becomes of the offsets."""
        fields = self._deletion(act)
        (step,) = await self._operator.preview(act.actor, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)
        facts = [
            Fact("Members", step["members"]),
            Fact("Queues with offsets", step["queues"]),
            Fact("Offsets removed", step["queues"] if fields["removeOffset"] else 0),
        ]
        return Preview(act.fields["group"], facts=facts, typed=act.fields["group"])

    async def delete(self, act: Act) -> Result:
        """Send DELETE_SUBSCRIPTIONGROUP."""
        await self._operator.change(act.actor, RequestCode.DELETE_SUBSCRIPTIONGROUP, self._deletion(act))
        return Result([Outcome("The group was deleted", act.fields["group"])], path="/groups")

    # -- reset offsets ---------------------------------------------------------------------------------------------

    def _moment(self, act: Act) -> int:
        """Return EARLIEST, LATEST or the time of a form, in ms. Raises ActionRefused if there is nothing to reset."""
        with broker_refusals():
            refuse_on_slave(self._configuration)
        group, topic, target = act.fields["group"], act.fields["topic"], act.fields["target"]
        if not self._is_known(group):
            raise ActionRefused(f"there is no group {group!r}")
        config = self._metadata.topics.get(topic)
        if config is None:
            raise ActionRefused(f"there is no topic {topic!r}")
        if config.write_queue_nums > MOST_QUEUES:
            raise ActionRefused(f"more than {MOST_QUEUES} queues are reset with mqadmin offsets reset")
        if target not in _TARGETS:
            raise ActionRefused("target is start, end or time")
        if target != "time":
            return change_previews.EARLIEST if target == "start" else change_previews.LATEST
        moment = time_of(act.fields["time"])
        if moment is None:
            raise ActionRefused("This time is not one: write 2026-01-31 23:59:59.")
        return moment

    def _fields(self, act: Act) -> dict[str, Any]:
        """Return the request that tells members their new offsets."""
        moment = self._moment(act)
        return {
            "topic": act.fields["topic"],
            "group": act.fields["group"],
            "timestamp": 0 if moment == change_previews.EARLIEST else moment,
            "isForce": True,
        }

    async def _moves(self, act: Act) -> list[Step]:
        """Return the new offset of each queue: as the broker tells members, or, without any, as its table will be."""
        if self._members(act):
            code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
            return await self._operator.preview(act.actor, code, self._fields(act))
        fields = {"topic": act.fields["topic"], "group": act.fields["group"], "timestamp": self._moment(act)}
        return await self._operator.asked(act.actor, change_previews.offsets_reset("", fields, None))

    def _members(self, act: Act) -> int:
        online = self._metadata.consumers.get(act.fields["group"])
        return len(online.channels) if online is not None else 0

    async def preview_reset(self, act: Act) -> Preview:
        """Show the offset of each queue before and after."""
        steps = await self._moves(act)
        facts = [Fact("Topic", act.fields["topic"]), Fact("Members", self._members(act))]
        return Preview(act.fields["group"], _moved(steps), facts, typed=act.fields["group"], column="Queue")

    async def reset(self, act: Act) -> Result:
        """Have the broker tell the members, who commit the offsets; without members, store the offsets."""
        group = act.fields["group"]
        steps = await self._moves(act)
        is_online = self._members(act) > 0
        # a broker tells members nothing while a queue has no offset: such a queue gets its new one first
        await self._store(act, [step for step in steps if not is_online or step["queueId"] not in self._stored(act)])
        if is_online:
            code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
            response = await self._operator.change(act.actor, code, self._fields(act))
            told = ResetOffsetBody.decode(response.body).offset_table
            after = {queue.queue_id: offset for queue, offset in told.items()}
            steps = [{**step, "after": after.get(step["queueId"], step["after"])} for step in steps]
        text = "The members received their offsets" if is_online else "The offsets were reset"
        return Result([Outcome(text, group)], _moved(steps), link_text("/group", name=group), column="Queue")

    def _stored(self, act: Act) -> dict[int, int]:
        return self._metadata.offsets.queues(act.fields["group"], act.fields["topic"])

    async def _store(self, act: Act, steps: list[Step]) -> None:
        """Store the new offsets of these queues."""
        group, topic, before = act.fields["group"], act.fields["topic"], self._stored(act)
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        done: dict[int, int] = {}
        try:
            for step in steps:
                queue_id, offset = step["queueId"], step["after"]
                if offset is not None:
                    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
                    await self._operator.change(act.actor, code, fields)
                    done[queue_id] = offset
        finally:
            if done:
                self._operator.note(
                    act.actor,
                    "offsets reset",
                    code,
                    before={str(queue_id): before[queue_id] for queue_id in done if queue_id in before},
                    after={str(queue_id): offset for queue_id, offset in done.items()},
                    group=group,
                    topic=topic,
                )

    # -- release what is in flight (POP) -----------------------------------------------------------------------------

    def _released(self, act: Act) -> dict[str, Any]:
        """Return the request of a form: without a topic all of a group, without a queue all of the topic."""
        with broker_refusals():
            refuse_on_slave(self._configuration)
        group, topic, queue = act.fields["group"], act.fields["topic"], act.fields["queue"]
        if not self._is_known(group):
            raise ActionRefused(f"there is no group {group!r}")
        if queue and not topic:
            raise ActionRefused("the request names a queue, but no topic")
        fields = {"consumerGroup": group, "queueId": number_of(act, "queue") if queue else ALL_QUEUES}
        return {**fields, "topic": topic} if topic else fields

    async def preview_release(self, act: Act) -> Preview:
        """Show how many messages are in flight, in all and in each of the first queues."""
        steps = await self._operator.preview(act.actor, RequestCode.RELEASE_IN_FLIGHT, self._released(act))
        if not steps:
            raise ActionRefused("Nothing is in flight.")
        facts = [Fact("In flight", sum(step["messages"] for step in steps)), Fact("Queues", len(steps))]
        rows = [Row(f"{step['topic']}, {step['queueId']}", step["messages"], 0) for step in steps[:MOST_QUEUES]]
        return Preview(act.fields["group"], rows, facts, column="Queue")

    async def release(self, act: Act) -> Result:
        """Send RELEASE_IN_FLIGHT."""
        code, group = RequestCode.RELEASE_IN_FLIGHT, act.fields["group"]
        response = await self._operator.change(act.actor, code, self._released(act))
        released = (response.ext_fields or {}).get("released", "0")
        return Result([Outcome("Messages released", f"{released}")], path=link_text("/group", name=group))


def _moved(steps: list[Step]) -> list[Row]:
    return [Row(str(step["queueId"]), step["before"], step["after"]) for step in steps]


def _shown(value: object) -> object:
    """Return a setting as pages show it."""
    return ("yes" if value else "no") if isinstance(value, bool) else value
