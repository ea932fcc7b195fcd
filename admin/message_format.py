"""Format strings for messages, as kcat's: %t topic, %b broker, %q queue, %o offset, %k keys, %g tags, %s body, %S its
size in bytes, %T store time in milliseconds, %D the same as ISO 8601, %h properties, %i message id, %% a percent sign;
\\n, \\t, \\r, \\0 and \\\\ as in C.
"""

from __future__ import annotations

from triomq.admin.errors import UsageError
from triomq.admin.java_text import iso_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from triomq.protocol.message import MessageExt

    Part = str | Callable[[MessageExt], str]

ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
FIELDS: dict[str, Callable[[MessageExt], str]] = {
    "t": lambda message: message.topic,
    "b": lambda message: message.broker_name or "",
    "q": lambda message: str(message.queue_id),
    "o": lambda message: str(message.queue_offset),
    "k": lambda message: message.properties.get("KEYS") or "",
    "g": lambda message: message.tags or "",
    "s": lambda message: body_text(message),
    "S": lambda message: str(len(message.body)),
    "T": lambda message: str(message.store_timestamp),
    "D": lambda message: iso_time(message.store_timestamp) or "",
    "h": lambda message: ",".join([f"{name}={value}" for name, value in message.properties.items()]),
    "i": lambda message: message.msg_id,
}


def body_text(message: MessageExt) -> str:
    return bytes(message.body).decode("utf-8", "replace")


def parse_format(text: str) -> list[Part]:
    """Return the parts of a format. Raises UsageError for a letter that has no meaning."""
    parts: list[Part] = []
    rest = iter(text)
    for each in rest:
        if each == "%":
            letter = next(rest, "")
            if letter != "%" and letter not in FIELDS:
                raise UsageError(f"--format: %{letter} has no meaning; there are %{' %'.join(FIELDS)}")
            parts.append("%" if letter == "%" else FIELDS[letter])
        elif each == "\\":
            letter = next(rest, "")
            if letter not in ESCAPES:
                raise UsageError(f"--format: \\{letter} has no meaning")
            parts.append(ESCAPES[letter])
        else:
            parts.append(each)
    return parts


def formatted(parts: list[Part], message: MessageExt) -> str:
    return "".join([part if isinstance(part, str) else part(message) for part in parts])
