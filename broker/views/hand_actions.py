"""The action that hands a stored message to one consumer, to see what its listener does with it.

It is what mqadmin's queryMsgById does for a client (CONSUME_MESSAGE_DIRECTLY): the client calls its listener at once,
outside of its queue, and says what that returned. No offset changes.
"""

from __future__ import annotations

from typing import Final

from triomq.broker.assembly.serving import Serving
from triomq.broker.tables.client_channel import ClientChannel
from triomq.broker.views.found import Found
from triomq.broker.views.members import Members, decoded
from triomq.broker.views.messages import Messages
from triomq.broker.views.operator import Operator
from triomq.dashboard.actions import Act, Action, ActionRefused, Fact, Outcome, Preview, Result
from triomq.dashboard.listing import listed
from triomq.dashboard.render import link_text
from triomq.dashboard.views import Ask, Data, NotThere, Steps, View
from triomq.protocol.bodies.running_info import ConsumeMessageDirectlyResult
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.errors import BodyError

HAND: Final = "/act/hand"
MOST_ANSWER_BYTES: Final = 64 * 1024
MOST_TEXT: Final = 2000
"""Characters of what a client says."""
_SUCCESSES: Final = ("CR_SUCCESS", "CR_COMMIT")


class HandActions:
    """The page that lists the consumers, the preview, and the request."""

    def __init__(self, serving: Serving, operator: Operator, messages: Messages) -> None:
        self._metadata = serving.tables.metadata
        self._members = Members(serving)
        self._operator = operator
        self._messages = messages

    def views(self) -> list[View]:
        """Return the page on which a consumer is chosen."""
        return [View("/hand", "Hand a message to a consumer", "hand.html", self.form, "/messages", False, True)]

    def actions(self) -> list[Action]:
        """Return what may be done."""
        return [
            Action(
                HAND,
                "Hand the message to the consumer",
                ("id", "group", "client"),
                self.preview,
                self.hand,
                of="/messages",
                warning="Its listener runs at once, outside of the order, maybe once more. No offset changes.",
            )
        ]

    def form(self, ask: Ask) -> Steps:
        """List the members online of the groups that consume the topic of a message."""
        found = self._messages.of_place(ask.query.get("id", ""), ask)
        if found is None:
            raise NotThere("there is no message with this id that you may see")
        members: dict[str, tuple[str, ClientChannel]] = {}
        for group in self._groups_of(found):
            online = self._metadata.consumers.get(group)
            for member in online.members() if online is not None else ():
                members[f"{group} {member.client_id}"] = (group, member)
            yield

        def row(name: str) -> Data:
            group, member = members[name]
            return {"group": group, **self._members.row(member)}

        page = yield from listed(list(members), ask.query, row, {"name": lambda one: one["group"]}, default="name")
        return {"message": found.row(), "list": page}

    def _groups_of(self, found: Found) -> list[str]:
        """Return the groups that subscribe to the topic of a message, or to the one that it was sent to."""
        topics = (found.fields.topic.decode("utf-8", "replace"), found.topic)
        return sorted({group for topic in topics for group in self._metadata.consumers.groups_of_topic(topic)})

    def _chosen(self, act: Act) -> tuple[Found, ClientChannel]:
        """Return the message and the member of a form. Raises ActionRefused."""
        group, client = act.fields["group"], act.fields["client"]
        found = self._messages.of_place(act.fields["id"], Ask())
        if found is None:
            raise ActionRefused("there is no message with this id")
        online = self._metadata.consumers.get(group)
        member = online.member(client) if online is not None else None
        if member is None:
            raise ActionRefused(f"{client!r} is not a member of group {group!r} that is online")
        if group not in self._groups_of(found):
            raise ActionRefused(f"group {group!r} does not subscribe to the topic {found.topic}")
        return found, member

    async def preview(self, act: Act) -> Preview:
        """Show which message goes to which client."""
        found, member = self._chosen(act)
        group = act.fields["group"]
        topic, queue_id = found.fields.topic.decode("utf-8", "replace"), found.fields.queue_id
        committed = self._metadata.offsets.query(group, topic, queue_id)
        facts = [
            Fact("Message id", found.id),
            Fact("Topic", topic),
            Fact("Queue", queue_id),
            Fact("Offset", found.fields.queue_offset),
            Fact("Committed", committed if committed >= 0 else None),
            Fact("Group", group),
            Fact("Client", member.client_id),
            Fact("Address", member.remote_text),
        ]
        return Preview(member.client_id, facts=facts)

    async def hand(self, act: Act) -> Result:
        """Send CONSUME_MESSAGE_DIRECTLY. Without a result the listener may have the message all the same."""
        found, member = self._chosen(act)
        fields = {"consumerGroup": act.fields["group"], "clientId": member.client_id, "msgId": found.id}
        response = await self._operator.request(act.actor, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
        path = link_text("/message", id=found.id)
        if response.code != ResponseCode.SUCCESS:
            reason = response.remark or f"refused with code {response.code}"
            return Result([_without_result(member, reason)], path=path)
        try:
            said = decoded(ConsumeMessageDirectlyResult.decode, response.body, MOST_ANSWER_BYTES)
        except BodyError as error:
            return Result([_without_result(member, str(error))], path=path)
        result = said.consume_result or ""
        is_good = result in _SUCCESSES
        text = "The client consumed the message" if is_good else "The client did not consume the message"
        facts = [
            Fact("Result", result[:MOST_TEXT] or None),
            Fact("Took", f"{said.spent_time_mills} ms"),
            Fact("Remark", (said.remark or "")[:MOST_TEXT] or None),
        ]
        return Result([Outcome(text, member.client_id, is_good)], path=path, facts=facts)


def _without_result(member: ClientChannel, reason: str) -> Outcome:
    text = "The client returned no result: its listener may have the message, or not"
    return Outcome(text, member.client_id, ok=False, detail=reason[:MOST_TEXT])
