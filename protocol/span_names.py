"""Names of the attributes of spans, as OpenTelemetry's conventions for messaging have them now and had them up to
version 1.44. The client and the broker use the table here.

Which of them a span has is said by OTEL_SEMCONV_STABILITY_OPT_IN, a list of words for all areas:

    messaging        the new names
    messaging/dup    both; it wins over `messaging`
    otherwise        the names up to version 1.44
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

OPT_IN: Final = "OTEL_SEMCONV_STABILITY_OPT_IN"
NEW: Final = "messaging"
BOTH: Final = "messaging/dup"

RENAMED: Final[dict[str, str]] = {
    "messaging.system": "messaging.system.name",
    "messaging.rocketmq.namespace": "rocketmq.namespace",
    "messaging.rocketmq.consumption_model": "rocketmq.consumption_model",
    "messaging.rocketmq.message.tag": "rocketmq.message.tag",
    "messaging.rocketmq.message.keys": "rocketmq.message.keys",
    "messaging.rocketmq.message.type": "rocketmq.message.type",
    "messaging.rocketmq.message.delay_time_level": "rocketmq.message.delay_time_level",
}
"""Old name -> new name. Values are the same; all other names are those of both versions."""

V = TypeVar("V")


class SpanNames:
    """`opt_in` is the value of OTEL_SEMCONV_STABILITY_OPT_IN, empty without one."""

    def __init__(self, opt_in: str) -> None:
        words = {word.strip() for word in opt_in.split(",")}
        self._has_new = bool(words & {NEW, BOTH})
        self._has_old = BOTH in words or not self._has_new

    def named(self, attributes: Mapping[str, V]) -> Mapping[str, V]:
        """Return attributes, given under their old names, under the names that spans have."""
        if not self._has_new:
            return attributes
        found = {RENAMED.get(name, name): value for name, value in attributes.items()}
        return {**attributes, **found} if self._has_old else found
