"""The action that sends a message, to see whether consumers get it."""

from __future__ import annotations

from typing import Any, Final

from triomq.broker.assembly.serving import Serving
from triomq.broker.views.forms import broker_refusals
from triomq.broker.views.operator import Operator
from triomq.dashboard.actions import Act, Action, ActionRefused, Fact, Outcome, Preview, Result
from triomq.dashboard.render import link_text
from triomq.dashboard.views import Ask, NotThere, Steps, View
from triomq.protocol import properties
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.property_names import KEYS, TAGS
from triomq.protocol.system_topics import AUTO_CREATE_TOPIC, check_not_system_topic

SEND: Final = "/act/send"
PRODUCER_GROUP: Final = "TOOLS_DASHBOARD"
_ANY_QUEUE: Final = -1
STORED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.FLUSH_SLAVE_TIMEOUT,
)


class SendActions:
    """The form, preview and sending of a message."""

    def __init__(self, serving: Serving, operator: Operator) -> None:
        self._topics = serving.tables.metadata.topics
        self._operator = operator

    def views(self) -> list[View]:
        """Return the page with the form."""
        return [View("/send", "Send a message", "send.html", self.form, "/topics", False, True)]

    def actions(self) -> list[Action]:
        """Return what may be done."""
        fields = ("topic", "tags", "keys", "body")
        return [Action(SEND, "Send the message", fields, self.preview, self.send, of="/topics", long_field="body")]

    def form(self, ask: Ask) -> Steps:
        """Make the form of a message to a topic."""
        topic = ask.query.get("topic", "")
        if self._topics.get(topic) is None:
            raise NotThere(f"there is no topic {topic!r} that you may see")
        yield
        return {"topic": topic}

    def _message(self, act: Act) -> tuple[dict[str, Any], bytes]:
        """Return the request of a form. Raises ActionRefused."""
        topic = act.fields["topic"]
        with broker_refusals():
            check_not_system_topic(topic, self._topics.system_topics)
        if self._topics.get(topic) is None:
            raise ActionRefused(f"there is no topic {topic!r}")
        table = {name: act.fields[field].strip() for name, field in ((TAGS, "tags"), (KEYS, "keys"))}
        if not all(value.isprintable() for value in table.values()):
            raise ActionRefused("tags and keys have no control characters")
        body = act.fields["body"].replace("\r\n", "\n").encode()
        if not body:
            raise ActionRefused("a message has a body")
        fields = {
            "producerGroup": PRODUCER_GROUP,
            "topic": topic,
            "defaultTopic": AUTO_CREATE_TOPIC,
            "defaultTopicQueueNums": 1,
            "queueId": _ANY_QUEUE,
            "sysFlag": 0,
            "bornTimestamp": self._operator.now_ms(),
            "flag": 0,
            "properties": properties.format({name: value for name, value in table.items() if value}),
            "reconsumeTimes": 0,
            "unitMode": False,
            "batch": False,
        }
        return fields, body

    async def preview(self, act: Act) -> Preview:
        """Show what will be sent."""
        fields, body = self._message(act)
        facts = [
            Fact("Bytes", len(body)),
            Fact("Tags", act.fields["tags"].strip() or None),
            Fact("Keys", act.fields["keys"].strip() or None),
        ]
        return Preview(fields["topic"], facts=facts)

    async def send(self, act: Act) -> Result:
        """Send SEND_MESSAGE. A message may be stored although its disk or slave did not confirm it in time."""
        fields, body = self._message(act)
        topic = fields["topic"]
        response = await self._operator.request(act.actor, RequestCode.SEND_MESSAGE, fields, body)
        if response.code not in STORED:
            raise ActionRefused(response.remark or f"the broker refused this with code {response.code}")
        message_id = (response.ext_fields or {}).get("msgId", "")
        self._operator.note(
            act.actor, "message sent", RequestCode.SEND_MESSAGE, topic=topic, message_id=message_id, bytes=len(body)
        )
        is_safe = response.code == ResponseCode.SUCCESS
        detail = "" if is_safe else ResponseCode(response.code).name
        outcome = Outcome("The message was stored", message_id, is_safe, detail)
        return Result([outcome], path=link_text("/message", id=message_id))
