"""Actions on topics: create, change, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from triomq.broker.assembly.serving import Serving
from triomq.broker.processors.topic_admin import check_deletion, checked_config
from triomq.broker.tables.topics import MAX_QUEUES
from triomq.broker.views.brokers import Brokers, Places
from triomq.broker.views.forms import broker_refusals, number_of
from triomq.dashboard.actions import Act, Action, ActionRefused, Fact, Preview, Result, Row
from triomq.dashboard.render import link_text
from triomq.dashboard.views import Ask, NotThere, Steps, View
from triomq.protocol.bodies.topic_config import SINGLE_TAG, TopicConfig
from triomq.protocol.codes import RequestCode
from triomq.protocol.headers.topic import CreateTopicRequestHeader
from triomq.protocol.permission import READ, READ_WRITE, WRITE
from triomq.protocol.system_topics import AUTO_CREATE_TOPIC

if TYPE_CHECKING:
    from triomq.protocol.change_previews import Step

CHANGE: Final = "/act/topic"
DELETE: Final = "/act/topic/delete"
_PERMISSIONS: Final = (READ_WRITE, READ, WRITE)
_DEFAULT_QUEUES: Final = 8
_LABELS: Final = {"readQueueNums": "Read queues", "writeQueueNums": "Write queues", "perm": "Permission"}
_MEANINGS: Final = {READ_WRITE: "6 · read and write", READ: "4 · read", WRITE: "2 · write"}


class TopicActions:
    """Forms, previews and changes of topics."""

    def __init__(self, serving: Serving, brokers: Brokers) -> None:
        self._configuration = serving.tables.configuration
        self._topics = serving.tables.metadata.topics
        self._brokers = brokers

    def views(self) -> list[View]:
        """Return the pages with forms."""
        return [
            View(
                "/edit-topic", "Create a topic", "edit_topic.html", self.form, of="/topics", refreshes=False, acts=True
            )
        ]

    def actions(self) -> list[Action]:
        """Return what may be done."""
        return [
            Action(
                CHANGE,
                "Create or change the topic",
                ("topic", "read_queues", "write_queues", "permission"),
                self.preview_change,
                self.change,
                of="/topics",
            ),
            Action(
                DELETE,
                "Delete the topic",
                ("topic",),
                self.preview_deletion,
                self.delete,
                of="/topics",
                warning="Its queues and the positions of its groups are deleted permanently.",
            ),
        ]

    def form(self, ask: Ask) -> Steps:
        """Make the form of a topic: with what it has now, or an empty one."""
        name = ask.query.get("name", "")
        config = self._topics.get(name) if name else None
        if name and config is None:
            raise NotThere(f"there is no topic {name!r} that you may see")
        yield
        permission = config.perm if config is not None else READ_WRITE
        return {
            "name": name,
            "read_queues": config.read_queue_nums if config is not None else _DEFAULT_QUEUES,
            "write_queues": config.write_queue_nums if config is not None else _DEFAULT_QUEUES,
            "most_queues": MAX_QUEUES,
            "permission": permission,
            "permissions": [*_PERMISSIONS, *([permission] if permission not in _PERMISSIONS else [])],
        }

    # -- create and change -----------------------------------------------------------------------------------------

    def _header(self, act: Act) -> CreateTopicRequestHeader:
        """Return the request of a form. Raises ActionRefused if the broker would refuse it."""
        topic = act.fields["topic"]
        known = self._topics.get(topic)
        header = CreateTopicRequestHeader(
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            read_queue_nums=number_of(act, "read_queues"),
            write_queue_nums=number_of(act, "write_queues"),
            perm=number_of(act, "permission"),
            topic_filter_type=known.topic_filter_type if known is not None else SINGLE_TAG,
            topic_sys_flag=known.topic_sys_flag if known is not None else 0,
            order=known.order if known is not None else False,
        )
        with broker_refusals():
            checked_config(self._configuration, self._topics, header)
        return header

    async def _places(self, topic: str) -> Places:
        """Return where a topic is, or, if it is new here, all masters of the cluster."""
        if self._topics.get(topic) is not None:
            return await self._brokers.of_topic(topic)
        return await self._brokers.of_cluster()

    async def preview_change(self, act: Act) -> Preview:
        """Show queues and permission before and after."""
        fields, topic = _fields_of(self._header(act)), act.fields["topic"]
        places = await self._places(topic)
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        found = await places.each(lambda broker: broker.step(act.actor, code, fields), "The topic was not changed")
        return Preview(topic, places.rows(found, _rows), places.facts())

    async def change(self, act: Act) -> Result:
        """Send UPDATE_AND_CREATE_TOPIC."""
        fields, topic = _fields_of(self._header(act)), act.fields["topic"]
        places = await self._places(topic)
        code = RequestCode.UPDATE_AND_CREATE_TOPIC
        found = await places.each(
            lambda broker: broker.change_step(act.actor, code, fields), "The topic was not changed"
        )
        outcomes = places.done(
            found, lambda step: "The topic was changed" if step["before"] else "The topic was created", topic
        )
        return Result(outcomes, places.rows(found, _rows), link_text("/topic", name=topic))

    # -- delete ----------------------------------------------------------------------------------------------------

    def _doomed(self, act: Act) -> TopicConfig:
        topic = act.fields["topic"]
        with broker_refusals():
            check_deletion(self._configuration, self._topics, topic)
        config = self._topics.get(topic)
        if config is None:
            raise ActionRefused(f"there is no topic {topic!r}")
        return config

    async def preview_deletion(self, act: Act) -> Preview:
        """Show what would be lost, and who reads it."""
        topic = self._doomed(act).topic_name
        places = await self._brokers.of_topic(topic)
        code, fields = RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}
        found = await places.each(lambda broker: broker.step(act.actor, code, fields), "The topic was not deleted")
        steps = [step for _, step in found]
        groups = sorted({group for step in steps for group in step["groups"]})
        facts = [
            Fact("Queues", sum([step["queues"] for step in steps])),
            Fact("Messages", sum([step["messages"] for step in steps])),
            Fact("Consumed by", ", ".join(groups) or None),
            *places.facts(),
        ]
        return Preview(topic, facts=facts, typed=topic)

    async def delete(self, act: Act) -> Result:
        """Send DELETE_TOPIC_IN_BROKER."""
        topic = self._doomed(act).topic_name
        places = await self._brokers.of_topic(topic)
        code, fields = RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}
        found = await places.each(lambda broker: broker.change(act.actor, code, fields), "The topic was not deleted")
        outcomes = places.done(found, lambda _: "The topic was deleted", topic)
        return Result([*outcomes, *await self._brokers.forget_topic(topic)], path="/topics")


def _rows(step: Step, place: str) -> list[Row]:
    before, after = step["before"] or {}, step["after"]
    return [
        Row(label, _shown(name, before.get(name)), _shown(name, after[name]), place) for name, label in _LABELS.items()
    ]


def _shown(name: str, value: Any) -> Any:
    """Return a value of a topic as its form shows it: a permission with its meaning."""
    return _MEANINGS.get(value, value) if name == "perm" else value


def _fields_of(header: CreateTopicRequestHeader) -> dict[str, Any]:
    return {
        "topic": header.topic,
        "defaultTopic": header.default_topic,
        "readQueueNums": header.read_queue_nums,
        "writeQueueNums": header.write_queue_nums,
        "perm": header.perm,
        "topicFilterType": header.topic_filter_type,
        "topicSysFlag": header.topic_sys_flag,
        "order": header.order,
    }
