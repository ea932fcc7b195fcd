"""Actions on consumer groups: create, change, delete, set back or forward where they read, and release what they have
in flight (POP)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from triomq.broker.assembly.serving import Serving
from triomq.broker.processors.group_admin import checked_config
from triomq.broker.processors.topic_admin import refuse_on_slave
from triomq.broker.tables.topics import MAX_QUEUES
from triomq.broker.views.brokers import Brokers, Places
from triomq.broker.views.forms import broker_refusals, number_of
from triomq.broker.views.messages import time_of
from triomq.broker.views.offsets_reset import OffsetsReset
from triomq.broker.views.operator import Operator, Requests
from triomq.dashboard.actions import Act, Action, ActionRefused, Fact, Outcome, Preview, Result, Row
from triomq.dashboard.render import link_text
from triomq.dashboard.views import Ask, NotThere, Steps, View
from triomq.protocol import change_previews
from triomq.protocol.bodies.base import replace
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
    "consumeMessageOrderly": "In order, for gRPC clients",
    "retryMaxTimes": "Most retries",
    "retryQueueNums": "Retry queues",
}
_TARGETS: Final = ("start", "end", "time")


class GroupActions:
    """Forms, previews and changes of groups."""

    def __init__(self, serving: Serving, operator: Operator, brokers: Brokers) -> None:
        self._configuration = serving.tables.configuration
        self._metadata = serving.tables.metadata
        self._operator = operator
        self._brokers = brokers

    def views(self) -> list[View]:
        """Return the pages with forms."""
        return [View("/edit-group", "Create a group", "edit_group.html", self.form, "/groups", False, True)]

    def actions(self) -> list[Action]:
        """Return what may be done."""
        return [
            Action(
                CHANGE,
                "Create or change the group",
                ("group", "may_consume", "may_broadcast", "in_order", "most_retries", "retry_queues"),
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
        known = self._metadata.groups.get(group) or SubscriptionGroupConfig()
        in_order = act.fields["in_order"] == "yes"
        config = replace(
            known,
            group_name=group,
            consume_enable=act.fields["may_consume"] == "yes",
            consume_broadcast_enable=act.fields["may_broadcast"] == "yes",
            consume_message_orderly=in_order if in_order or known.consume_message_orderly else None,
            retry_max_times=number_of(act, "most_retries"),
            retry_queue_nums=number_of(act, "retry_queues"),
        )
        body = config.encode()
        with broker_refusals():
            checked_config(self._configuration, body)
        return body

    async def preview_change(self, act: Act) -> Preview:
        """Show the settings before and after."""
        body, places = self._body(act), await self._brokers.of_cluster()
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        found = await places.each(lambda broker: broker.step(act.actor, code, body=body), "The group was not changed")
        return Preview(act.fields["group"], places.rows(found, _rows), places.facts())

    async def change(self, act: Act) -> Result:
        """Send UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
        body, places = self._body(act), await self._brokers.of_cluster()
        group, code = act.fields["group"], RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        found = await places.each(
            lambda broker: broker.change_step(act.actor, code, body=body), "The group was not changed"
        )
        outcomes = places.done(
            found, lambda step: "The group was changed" if step["before"] else "The group was created", group
        )
        return Result(outcomes, places.rows(found, _rows), link_text("/group", name=group))

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
        fields, places = self._deletion(act), await self._brokers.of_cluster()
        code = RequestCode.DELETE_SUBSCRIPTIONGROUP
        found = await places.each(lambda broker: broker.step(act.actor, code, fields), "The group was not deleted")
        steps = [step for _, step in found]
        queues = sum([step["queues"] for step in steps])
        facts = [
            # A member is connected to every broker.
            Fact("Members", max([step["members"] for step in steps])),
            Fact("Queues with offsets", queues),
            Fact("Offsets removed", queues if fields["removeOffset"] else 0),
            *places.facts(),
        ]
        return Preview(act.fields["group"], facts=facts, typed=act.fields["group"])

    async def delete(self, act: Act) -> Result:
        """Send DELETE_SUBSCRIPTIONGROUP."""
        fields, places = self._deletion(act), await self._brokers.of_cluster()
        code = RequestCode.DELETE_SUBSCRIPTIONGROUP
        found = await places.each(lambda broker: broker.change(act.actor, code, fields), "The group was not deleted")
        return Result(places.done(found, lambda _: "The group was deleted", act.fields["group"]), path="/groups")

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

    async def preview_reset(self, act: Act) -> Preview:
        """Show the offset of each queue before and after."""
        reset = OffsetsReset(act, self._moment(act), self._operator)
        places = await self._brokers.of_topic(act.fields["topic"])
        found = await places.each(reset.moves, "The offsets were not reset")
        members = max([count for _, (count, _) in found])  # each is connected to every broker
        facts = [Fact("Topic", act.fields["topic"]), Fact("Members", members), *places.facts()]
        rows = places.rows(found, _moved)
        return Preview(act.fields["group"], rows, facts, typed=act.fields["group"], column="Queue")

    async def reset(self, act: Act) -> Result:
        """Have each broker tell the members, who commit the offsets; without members, store the offsets."""
        group = act.fields["group"]
        reset = OffsetsReset(act, self._moment(act), self._operator)
        places = await self._brokers.of_topic(act.fields["topic"])
        found = await places.each(reset.run, "The offsets were not reset")
        outcomes = places.done(
            found,
            lambda done: "The members received their offsets" if done[0] else "The offsets were reset",
            group,
        )
        return Result(outcomes, places.rows(found, _moved), link_text("/group", name=group), column="Queue")

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
        fields = self._released(act)
        places = await self._release_places(fields)

        async def look(broker: Requests) -> list[Step]:
            return await broker.preview(act.actor, RequestCode.RELEASE_IN_FLIGHT, fields)

        found = await places.each(look, "Nothing was released")
        steps = [(places.named(place), step) for place, all_of_it in found for step in all_of_it]
        if not steps:
            raise ActionRefused("Nothing is in flight.")
        messages = sum([step["messages"] for _, step in steps])
        facts = [Fact("In flight", messages), Fact("Queues", len(steps)), *places.facts()]
        rows = [
            Row(f"{step['topic']}, {step['queueId']}", step["messages"], 0, place)
            for place, step in steps[:MOST_QUEUES]
        ]
        return Preview(act.fields["group"], rows, facts, column="Queue")

    async def _release_places(self, fields: dict[str, Any]) -> Places:
        topic = fields.get("topic")
        return await self._brokers.of_topic(topic) if topic else await self._brokers.of_cluster()

    async def release(self, act: Act) -> Result:
        """Send RELEASE_IN_FLIGHT."""
        code, group, fields = RequestCode.RELEASE_IN_FLIGHT, act.fields["group"], self._released(act)
        places = await self._release_places(fields)

        async def release(broker: Requests) -> str:
            response = await broker.change(act.actor, code, fields)
            return (response.ext_fields or {}).get("released", "0")

        found = await places.each(release, "Nothing was released")
        outcomes = [
            Outcome("Messages released", f"{places.named(place)} {released}".strip()) for place, released in found
        ]
        return Result([*outcomes, *places.outcomes()], path=link_text("/group", name=group))


def _rows(step: Step, place: str) -> list[Row]:
    return [
        Row(label, _value(step["before"], name), _value(step["after"], name), place) for name, label in _LABELS.items()
    ]


def _value(config: dict[str, Any] | None, name: str) -> object:
    """Return a setting of a group as pages show it, None for no group. What RocketMQ 4.9 does not know may be left out,
    and is false then."""
    if config is None:
        return None
    value = config.get(name)
    return _shown(False if value is None else value)


def _moved(moves: tuple[int, list[Step]], place: str) -> list[Row]:
    _, steps = moves
    return [Row(str(step["queueId"]), step["before"], step["after"], place) for step in steps]


def _shown(value: object) -> object:
    """Return a setting as pages show it."""
    return ("yes" if value else "no") if isinstance(value, bool) else value
