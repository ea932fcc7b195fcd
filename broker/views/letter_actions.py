"""The action that sends dead letters again: some, or all that were not sent before.

Letters are sent one by one, as mqadmin sends them, so a broker with much to do serves its clients in between. What was
sent is marked by its copy: whatever stops this in the middle, nothing is sent twice by asking once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import trio

from triomq.broker.assembly.serving import Serving
from triomq.broker.processors.topic_admin import refuse_on_slave
from triomq.broker.views.forms import broker_refusals
from triomq.broker.views.found import Found
from triomq.broker.views.letters import Letters
from triomq.broker.views.operator import Operator
from triomq.broker.views.send_actions import PRODUCER_GROUP, STORED
from triomq.dashboard.actions import Act, Action, ActionRefused, Fact, Outcome, Preview, Result
from triomq.dashboard.render import link_text
from triomq.dashboard.views import View
from triomq.protocol import dead_letters, properties, sys_flag
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.system_topics import AUTO_CREATE_TOPIC, UNDELIVERABLE_TOPIC, dlq_topic, retry_topic

RESEND: Final = "/act/letters/resend"
MOST_SENT: Final = 500
"""Letters of one action."""
MOST_LOOKED: Final = 20_000
"""Letters that one action looks at: those that were resent, mostly."""
SECONDS: Final = 30.0
"""An action begins no other letter after this time; a page has twice as long."""
MOST_FAILURES: Final = 20
"""Letters that the broker refuses until an action stops."""
NO_MEMBER: Final = "No member is online: nobody receives these messages until one is."
_ANY_QUEUE: Final = -1
_STEP_LETTERS: Final = 8
_BODY_FLAGS: Final = sys_flag.COMPRESSED | sys_flag.COMPRESSION_MASK


class LetterActions:
    """The preview and the sending of dead letters."""

    def __init__(self, serving: Serving, operator: Operator, letters: Letters) -> None:
        self._configuration = serving.tables.configuration
        self._consumers = serving.tables.metadata.consumers
        self._letters = letters
        self._operator = operator
        self._alone = trio.Lock()
        """Two operators do not look for the mark of one letter before either has sent it."""

    def views(self) -> list[View]:
        """Return the page with the boxes and buttons; everybody who may see letters sees it, without these."""
        return [View("/letters", "Dead letters of a group", "letters.html", self._letters.letters, "/dead", False)]

    def actions(self) -> list[Action]:
        """Return what may be done."""
        return [
            Action(
                RESEND,
                "Send dead letters again",
                ("group", "which", "again", "ids"),
                self.preview,
                self.send,
                of="/dead",
                list_field="ids",
            )
        ]

    def _check(self, act: Act) -> None:
        """Raise ActionRefused for what is not sent at all."""
        group = act.fields["group"]
        with broker_refusals():
            refuse_on_slave(self._configuration)
        if not self._letters.is_known(group) or dlq_topic(group) == UNDELIVERABLE_TOPIC:
            raise ActionRefused(f"there are no dead letters of group {group!r} to send")
        if not self._configuration.store.message_index_enable:
            raise ActionRefused("Without messageIndexEnable nothing shows which were resent.")
        is_all, is_again = act.fields["which"] == "all", act.fields["again"] == "yes"
        if is_all and is_again and self._letters.count(group) > MOST_SENT:
            raise ActionRefused(f"more than {MOST_SENT} are sent once more with mqadmin dlq resend --all --again")
        if not is_all and not act.fields["ids"].split():
            raise ActionRefused("Choose a dead letter first.")

    def _chosen(self, act: Act) -> Iterator[tuple[str, Found | None]]:
        """Yield the letters of a form, each with its id; None for one that is gone."""
        group = act.fields["group"]
        if act.fields["which"] == "all":
            for found in self._letters.every(group):
                yield (found.id if found is not None else ""), found
            return
        for letter_id in dict.fromkeys(act.fields["ids"].split()):
            yield letter_id, self._letters.find(group, letter_id)

    def _copy_of(self, act: Act, letter_id: str) -> str:
        """Return the copy of a letter that is not sent because of it; "" if it is to be sent."""
        return self._letters.resent_as(act.fields["group"], letter_id) if act.fields["again"] != "yes" else ""

    async def preview(self, act: Act) -> Preview:
        """Show how many letters will be sent, and how many were sent before."""
        self._check(act)
        group = act.fields["group"]
        wanted = before = 0
        for looked, (letter_id, found) in enumerate(self._chosen(act), 1):
            if wanted == MOST_SENT or looked > MOST_LOOKED:
                break
            if found is not None:
                is_sent = bool(self._copy_of(act, letter_id))
                before, wanted = before + is_sent, wanted + (not is_sent)
            if looked % _STEP_LETTERS == 0:
                await trio.lowlevel.checkpoint()
        online = self._consumers.get(group)
        members = len(online.channels) if online is not None else 0
        facts = [
            Fact("Will be sent", wanted),
            Fact("Resent before", before),
            Fact("Dead letters", self._letters.count(group)),
            Fact("Members", members),
        ]
        return Preview(group, facts=facts, warnings=() if members else (NO_MEMBER,))

    async def send(self, act: Act) -> Result:
        """Send SEND_MESSAGE for each letter. A letter that fails does not stop the others."""
        self._check(act)
        group = act.fields["group"]
        outcomes: list[Outcome] = []
        ids: list[str] = []
        async with self._alone:
            try:
                await self._send_each(act, outcomes, ids)
            finally:
                if outcomes:
                    self._operator.note(
                        act.actor,
                        "dead letters resent",
                        RequestCode.SEND_MESSAGE,
                        group=group,
                        sent=len(ids),
                        failed=len([one for one in outcomes if not one.ok]),
                        letters=ids,
                    )
        return Result(outcomes, path=link_text("/letters", group=group))

    async def _send_each(self, act: Act, outcomes: list[Outcome], ids: list[str]) -> None:
        """Append what became of each letter, and the ids of those that were sent."""
        end = trio.current_time() + SECONDS
        before = failures = 0
        for looked, (letter_id, found) in enumerate(self._chosen(act), 1):
            if len(ids) == MOST_SENT or looked > MOST_LOOKED or trio.current_time() > end or failures == MOST_FAILURES:
                outcomes.append(Outcome("There is more: send all of them once more", act.fields["group"], ok=False))
                break
            if found is None:
                if letter_id:
                    outcomes.append(Outcome("This dead letter is not there", letter_id, ok=False))
            elif self._copy_of(act, letter_id):
                before += 1
                if act.fields["which"] != "all":
                    outcomes.append(Outcome("This dead letter was resent before", letter_id))
            else:
                is_stored, detail = await self._send(act, found)
                failures += not is_stored
                if is_stored:
                    ids.append(letter_id)
                text = "The dead letter was sent again" if is_stored else "The dead letter was not sent"
                outcomes.append(Outcome(text, letter_id, not detail, detail))
            if looked % _STEP_LETTERS == 0:
                await trio.lowlevel.checkpoint()
        if act.fields["which"] == "all" and before:
            outcomes.append(Outcome("Dead letters that were resent before", str(before)))

    async def _send(self, act: Act, letter: Found) -> tuple[bool, str]:
        """Return whether a letter is stored again, and what went wrong."""
        group = act.fields["group"]
        fields: dict[str, Any] = {
            "producerGroup": PRODUCER_GROUP,
            "topic": retry_topic(group),
            "defaultTopic": AUTO_CREATE_TOPIC,
            "defaultTopicQueueNums": 1,
            "queueId": _ANY_QUEUE,
            "sysFlag": letter.fields.sys_flag & _BODY_FLAGS,
            "bornTimestamp": self._operator.now_ms(),
            "flag": letter.fields.flag,
            "properties": properties.format(dead_letters.copy_properties(letter.properties, group, letter.id)),
            "reconsumeTimes": 0,
            "maxReconsumeTimes": dead_letters.MOST_RETRIES,
            "unitMode": False,
            "batch": False,
        }
        response = await self._operator.request(act.actor, RequestCode.SEND_MESSAGE, fields, letter.body)
        if response.code == ResponseCode.SUCCESS:
            return True, ""
        if response.code in STORED:
            return True, ResponseCode(response.code).name
        return False, response.remark or f"the broker refused this with code {response.code}"
