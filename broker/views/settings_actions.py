"""The action that changes a setting: at this broker, at the masters of the cluster, or at all its brokers."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from triomq.broker.assembly.serving import Serving
from triomq.broker.configuration_update import REFUSED_KEYS
from triomq.broker.views.brokers import Brokers, Places
from triomq.broker.views.forms import broker_refusals
from triomq.broker.views.operator import Requests
from triomq.daemon.secret_names import is_secret
from triomq.dashboard.actions import Act, Action, ActionRefused, Fact, Preview, Result, Row
from triomq.dashboard.render import link_text
from triomq.dashboard.views import Ask, NotThere, Steps, View
from triomq.protocol import java_properties
from triomq.protocol.codes import RequestCode
from triomq.protocol.settings import Declaration, declarations, to_text, value_text
from triomq.remoting.config import ClientSettings, ServerSettings

if TYPE_CHECKING:
    from triomq.protocol.change_previews import Step

CHANGE: Final = "/act/setting"
HERE, MASTERS, EVERYWHERE = "here", "masters", "all"
_PLACES: Final = (HERE, MASTERS, EVERYWHERE)
NEXT_START: Final = frozenset(
    (
        *("sendThreadPoolQueueCapacity", "putThreadPoolQueueCapacity", "pullThreadPoolQueueCapacity"),
        *("replyThreadPoolQueueCapacity", "queryThreadPoolQueueCapacity", "heartbeatThreadPoolQueueCapacity"),
        *("clientManagerThreadPoolQueueCapacity", "consumerManagerThreadPoolQueueCapacity"),
        *("endTransactionPoolQueueCapacity", "messageIndexSafe", "checkCRCOnRecover"),
        *("defaultTopicQueueNums", "clusterTopicEnable", "brokerTopicEnable", "traceTopicEnable", "msgTraceTopicName"),
        *("expectConsumerNumUseFilter", "maxErrorRateOfBloomFilter", "enableDetailStat", "isolateLogEnable"),
    )
)
"""Changeable, but read at the start: sizes of pools, topics of the broker, the bloom filter, recovery. So are those of
ports and connections."""
AT_NEXT_START: Final = "The broker reads this setting at its start: the new value counts from the next one on."
NOT_KEPT: Final = "This broker has no configuration file: here the change lasts until the broker stops."


def is_editable(one: Declaration) -> bool:
    """Return whether the page of the configuration leads to a form for a setting."""
    is_open = one.changeable and not one.ignored and not one.retired
    return is_open and not is_secret(one.key) and one.key not in REFUSED_KEYS


class SettingsActions:
    """The form, preview and change of a setting."""

    def __init__(self, serving: Serving, brokers: Brokers) -> None:
        self._configuration = serving.tables.configuration
        self._update = serving.update
        self._brokers = brokers

    def views(self) -> list[View]:
        """Return the page with the form."""
        return [
            View("/edit-setting", "Change a setting", "edit_setting.html", self.form, "/configuration", False, True)
        ]

    def actions(self) -> list[Action]:
        """Return what may be done."""
        return [
            Action(
                CHANGE,
                "Change the setting",
                ("key", "value", "place"),
                self.preview,
                self.change,
                of="/configuration",
                long_field="value",
            )
        ]

    def _declared(self, key: str) -> tuple[Declaration, Any]:
        """Return the declaration of a setting, and its record. Raises ActionRefused."""
        for record in self._configuration.records():
            for one in declarations(type(record)):
                if one.key == key and is_editable(one):
                    return one, record
                if one.key == key and not is_secret(key) and not (one.ignored or one.retired):
                    raise ActionRefused(f"{key} cannot be changed while the broker runs: edit the file and restart")
        raise ActionRefused(f"there is no setting {key[:80]!r} that can be changed here")

    def form(self, ask: Ask) -> Steps:
        """Make the form of a setting, with its present value."""
        try:
            one, record = self._declared(ask.query.get("key", ""))
        except ActionRefused as error:
            raise NotThere(str(error)) from None
        yield
        choices: list[str] = []
        if one.type is bool:
            choices = ["true", "false"]
        elif issubclass(one.type, Enum):
            choices = list(one.type.__members__)
        return {
            "key": one.key,
            "meaning": one.meaning,
            "value": to_text(record, null="")[one.shown_as],
            "default": None if one.is_computed or one.default is None else value_text(one.default),
            "is_computed": one.is_computed,
            "choices": [*([""] if one.nullable else []), *choices] if choices else [],
            "unit": one.unit,
            "minimum": one.minimum,
            "maximum": one.maximum,
            "is_number": one.type in (int, float),
            "is_slave": self._configuration.role.is_slave,
            "note": AT_NEXT_START if _is_read_at_start(one, record) else "",
        }

    async def _places(self, act: Act) -> Places:
        place = act.fields["place"]
        if place not in _PLACES:
            raise ActionRefused(f"place is {', '.join(_PLACES)}")
        if place == HERE:
            return self._brokers.here()
        if place == MASTERS and self._configuration.role.is_slave:
            raise ActionRefused("this broker is a slave: choose it alone, or masters and slaves")
        return await self._brokers.of_cluster(with_slaves=place == EVERYWHERE)

    def _change(self, act: Act) -> tuple[Declaration, Any, str]:
        """Return the setting of a form, its record, and its value as this broker would list it. Raises ActionRefused if
        this broker, or its next start, would refuse it."""
        key, value = act.fields["key"], act.fields["value"].strip()
        one, record = self._declared(key)
        if not value.isprintable():
            raise ActionRefused("a value has no line break and no control character")
        with broker_refusals():
            changed = self._update.check({key: value}, remote=act.actor.address)
        return one, record, changed.get(one.shown_as, to_text(record, null="")[one.shown_as])

    async def preview(self, act: Act) -> Preview:
        """Show the value before and after at each broker."""
        one, record, value = self._change(act)
        places = await self._places(act)
        found = await places.each(lambda broker: _look(broker, act, one, value), "The setting was not changed")
        warnings = (
            *((AT_NEXT_START,) if _is_read_at_start(one, record) else ()),
            *((NOT_KEPT,) if self._configuration.path is None else ()),
        )
        facts = [Fact("Meaning", one.meaning), *places.facts()]
        return Preview(one.key, places.rows(found, _rows), facts, warnings=warnings)

    async def change(self, act: Act) -> Result:
        """Send UPDATE_BROKER_CONFIG."""
        one, _, value = self._change(act)
        body = java_properties.format({one.key: value}).encode()

        async def change(broker: Requests) -> Step:
            step = await _look(broker, act, one, value)
            await broker.change(act.actor, RequestCode.UPDATE_BROKER_CONFIG, body=body)
            return step

        places = await self._places(act)
        found = await places.each(change, "The setting was not changed")
        outcomes = places.done(found, lambda _: "The setting was changed", one.key)
        return Result(outcomes, places.rows(found, _rows), link_text("/configuration", q=one.key))


async def _look(broker: Requests, act: Act, one: Declaration, value: str) -> Step:
    """Return what a change would do at a broker. Raises ActionRefused if that has no such setting."""
    table = await listed_settings(broker, act)
    before = table.get(one.shown_as)
    if before is None and not one.nullable:
        raise ActionRefused(f"this broker has no setting {one.key}")
    return {"key": one.key, "before": before or None, "after": value or None}


async def listed_settings(broker: Requests, act: Act) -> dict[str, str]:
    """Return the settings of a broker, which lists them without escapes. Raises ActionRefused."""
    response = await broker.change(act.actor, RequestCode.GET_BROKER_CONFIG)
    lines = response.body.decode("utf-8", "replace").split("\n")
    return {key: value.rstrip("\r") for key, equals, value in (line.partition("=") for line in lines) if equals}


def _is_read_at_start(one: Declaration, record: object) -> bool:
    return one.key in NEXT_START or isinstance(record, ServerSettings | ClientSettings)


def _rows(step: Step, place: str) -> list[Row]:
    return [Row(step["key"], step["before"], step["after"], place)]
