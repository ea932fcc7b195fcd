"""The page of one member of a group: what its client says of itself, asked when somebody opens the page.

The question is mqadmin's, GET_CONSUMER_RUNNING_INFO. An administrator asks through the broker's processor, which
refuses everybody else, since its response has stacks and properties. For a reader of the group the broker asks itself,
without stacks, and shows no properties.

A client may say anything. A response is read by a thread, and a bounded part of each table is kept.
"""

from __future__ import annotations

from collections.abc import Sized
from math import isfinite
from typing import Final

import trio

from triomq.broker.assembly.serving import Serving
from triomq.broker.tables.client_channel import ClientChannel
from triomq.broker.views.members import Members, decoded
from triomq.broker.views.operator import Operator
from triomq.daemon.secret_names import is_secret
from triomq.dashboard.actions import ActionRefused, Actor
from triomq.dashboard.views import Ask, Data, NotThere, Steps, View
from triomq.protocol.bodies.running_info import ConsumerRunningInfo, ConsumeStatus, ProcessQueueInfo
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.errors import BodyError
from triomq.protocol.headers.client import GetConsumerRunningInfoRequestHeader
from triomq.protocol.java_remarks import without_java
from triomq.protocol.message_queue import MessageQueue
from triomq.remoting.errors import RemotingError

MOST_ASKED: Final = 4
"""Members that are asked at once. A response may be as long as a frame."""
ANSWER_SECONDS: Final = 10.0
"""The longest wait for a client; that of the processor, too."""
MOST_ANSWER_BYTES: Final = 4 * 1024 * 1024
MOST_STACK_BYTES: Final = 256 * 1024
MOST_QUEUES: Final = 500
MOST_ROWS: Final = 200
"""Of the other tables."""
MOST_TEXT: Final = 500
"""Characters of a name, of a value, and of a reason."""
_HERE: Final = "127.0.0.1"


class MemberPage:
    """See the module's docstring."""

    def __init__(self, serving: Serving, operator: Operator) -> None:
        self._consumers = serving.tables.metadata.consumers
        self._members = Members(serving)
        self._operator = operator
        self._places = trio.CapacityLimiter(MOST_ASKED)

    def view(self) -> View:
        """Return the page. It does not refresh: each look asks a client."""
        title = "Member of a group"
        return View("/member", title, "member.html", self.member, "/groups", refreshes=False, gather=self.gather)

    async def gather(self, ask: Ask) -> None:
        """Ask the client. Raises NotThere."""
        group, client = ask.query.get("group", ""), ask.query.get("client", "")
        online = self._consumers.get(group) if ask.may_read_group(group) else None
        member = online.member(client) if online is not None else None
        if member is None:
            raise NotThere(f"there is no member {client!r} of group {group!r} that you may see")
        row = self._members.row(member)
        has_stack = ask.sees_all and ask.query.get("stack") == "1"
        why, said = "", {}
        async with self._places:
            try:
                response = await self._asked(ask, group, member, has_stack=has_stack)
                if response.code == ResponseCode.SUCCESS:
                    said = await trio.to_thread.run_sync(_said, response.body, ask.sees_all, has_stack)
                else:
                    why = without_java(response.remark or "") or f"refused with code {response.code}"
            except (RemotingError, ActionRefused, BodyError) as error:
                why = str(error)
        head = {"group": group, "member": row, "sees_all": ask.sees_all, "has_stack": has_stack}
        ask.gathered.update({**head, "why": why[:MOST_TEXT], "said": said or None})

    def member(self, ask: Ask) -> Steps:
        """Make the page."""
        yield
        return dict(ask.gathered)

    async def _asked(self, ask: Ask, group: str, member: ClientChannel, *, has_stack: bool) -> RemotingCommand:
        """Return the response of a client, or that of the broker for it. Raises RemotingError, ActionRefused."""
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        if ask.sees_all:
            actor = Actor(ask.viewer.name if ask.viewer is not None else "", _HERE)
            fields = {"consumerGroup": group, "clientId": member.client_id, "jstackEnable": has_stack}
            return await self._operator.request(actor, code, fields)
        header = GetConsumerRunningInfoRequestHeader(consumer_group=group, client_id=member.client_id)
        return await member.connection.invoke(new_request(code, header), ANSWER_SECONDS)


def _said(body: bytes, sees_all: bool, has_stack: bool) -> Data:
    """Return what a response says, as the page shows it. Raises BodyError."""
    info = decoded(ConsumerRunningInfo.decode, body, MOST_ANSWER_BYTES)
    properties = sorted(info.properties.items()) if sees_all else []
    queues = sorted(info.mq_table.items())
    subscriptions = sorted(info.subscription_set, key=lambda one: one.topic)
    rates = sorted(info.status_table.items())
    stack = (info.jstack or "").encode(errors="replace") if has_stack else b""
    return {
        "properties": [
            {"name": _cut(name), "value": "***" if is_secret(name) else _cut(value)}
            for name, value in properties[:MOST_ROWS]
        ],
        "subscriptions": [
            {
                "topic": _cut(one.topic),
                "expression": _cut(one.sub_string),
                "type": _cut(one.expression_type or ""),
                "since_ms": one.sub_version,
            }
            for one in subscriptions[:MOST_ROWS]
        ],
        "queues": [_queue(queue, one) for queue, one in queues[:MOST_QUEUES]],
        "rates": [_rates(topic, one) for topic, one in rates[:MOST_ROWS]],
        "left_out": {
            "properties": _beyond(properties, MOST_ROWS),
            "subscriptions": _beyond(subscriptions, MOST_ROWS),
            "queues": _beyond(queues, MOST_QUEUES),
            "rates": _beyond(rates, MOST_ROWS),
        },
        "stack": stack[:MOST_STACK_BYTES].decode("utf-8", "ignore"),
        "stack_bytes": len(stack),
        "stack_is_cut": len(stack) > MOST_STACK_BYTES,
    }


def _queue(queue: MessageQueue, one: ProcessQueueInfo) -> Data:
    return {
        "topic": _cut(queue.topic),
        "broker": _cut(queue.broker_name),
        "queue": queue.queue_id,
        "committed": one.commit_offset,
        "cached": one.cached_msg_count,
        "cached_mib": one.cached_msg_size_in_mib,
        "oldest": one.cached_msg_min_offset,
        "newest": one.cached_msg_max_offset,
        "is_locked": one.locked,
        "is_dropped": one.droped,
        "pulled_ms": one.last_pull_timestamp,
        "consumed_ms": one.last_consume_timestamp,
    }


def _rates(topic: str, one: ConsumeStatus) -> Data:
    return {
        "topic": _cut(topic),
        "pull_ms": _finite(one.pull_rt),
        "pulled_per_second": _finite(one.pull_tps),
        "consume_ms": _finite(one.consume_rt),
        "ok_per_second": _finite(one.consume_ok_tps),
        "failed_per_second": _finite(one.consume_failed_tps),
        "failed_in_hour": one.consume_failed_msgs,
    }


def _beyond(rows: Sized, most: int) -> int:
    return max(0, len(rows) - most)


def _finite(value: float) -> float | None:
    return round(value, 3) if isfinite(value) else None


def _cut(text: str) -> str:
    return text[:MOST_TEXT]
