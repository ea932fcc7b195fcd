"""Real texts whose lines travel through the broker, and checks that all arrived unchanged and in order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

LICENSES = Path("/usr/share/common-licenses")

# One sentence each in many scripts, with characters that often break: astral characters, combining marks, joiners,
# right-to-left, a lone carriage return, tabs, trailing blanks, NUL, empty lines, and a last line without a line end.
MANY_SCRIPTS = (
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία.\n"
    "Съешь ещё этих мягких французских булок, да выпей чаю.\n"
    "視野無限廣,窗外有藍天。\n"
    "いろはにほへと ちりぬるを わかよたれそ つねならむ\n"
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.\n"
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה\n"
    "نص حكيم له سر قاطع وذو شأن عظيم\n"
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण\n"
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า\n"
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.\n"
    "Příliš žluťoučký kůň úpěl ďábelské ódy.\n"
    "\U0001d517\U0001d525\U0001d522 \U0001f98a \U0001f469\u200d\U0001f469\u200d\U0001f467 and \U0001f1fa\U0001f1f3\n"
    "e\u0301 is not é; o\u0308 is not ö; \u200e and \u200f are marks\n"
    "\ttabs\tand   blanks   \n"
    "a carriage return\r\n"
    "\n"
    "\x00\x01\x02 control characters, quotes \" ' \\ and %s {0} $x <b>&amp;</b>\n"
    "   \n" + "long " * 2000 + "line\n" + "no line end at the end"
)


def corpus(directory: Path, *, full: bool = True) -> Path:
    """Write the text of a transfer to `directory`; return the file."""
    parts = [MANY_SCRIPTS.encode(), b"\n"]
    names = ("GPL-3", "Artistic", "CC0-1.0") if full else ("BSD",)
    parts += [(LICENSES / name).read_bytes() for name in names if (LICENSES / name).exists()]
    path = directory / ("corpus.txt" if full else "short.txt")
    path.write_bytes(b"".join(parts))
    return path


def lines_of(path: Path) -> list[bytes]:
    """Return the lines with their line ends, split at \\n only."""
    parts = path.read_bytes().split(b"\n")
    lines = [part + b"\n" for part in parts[:-1]]
    return [*lines, parts[-1]] if parts[-1] else lines


def numbered(directory: Path, number: int, name: str = "numbers.txt", text: str = "message") -> Path:
    """Write a file of `number` short, distinct lines."""
    path = directory / name
    path.write_bytes("".join(f"{text} {i}\n" for i in range(number)).encode())
    return path


def line_of(message: dict[str, Any]) -> int:
    return int(message["properties"]["line"])


def by_queue(messages: Iterable[dict[str, Any]]) -> dict[int, list[dict[str, Any]]]:
    queues: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for message in messages:
        queues[message["queue"]].append(message)
    return dict(queues)


def assert_bodies(lines: list[bytes], messages: list[dict[str, Any]], *, duplicates: bool = False) -> None:
    """Check that each line arrived unchanged, and exactly once unless `duplicates` are permitted (after a failure)."""
    seen: dict[int, int] = defaultdict(int)
    for message in messages:
        number = line_of(message)
        seen[number] += 1
        assert message["body"] == lines[number], f"line {number} changed: {message['body']!r} != {lines[number]!r}"
    missing = sorted(set(range(len(lines))) - set(seen))
    assert not missing, f"{len(missing)} of {len(lines)} lines lost, first {missing[:10]}"
    twice = [number for number, times in seen.items() if times > 1]
    assert duplicates or not twice, f"{len(twice)} lines came more than once, first {twice[:10]}"


def assert_offsets(messages: list[dict[str, Any]], first_offset: int = 0) -> None:
    """Check that the offsets of each queue have no gap and follow the order of the lines."""
    for queue, inside in by_queue(messages).items():
        inside.sort(key=lambda message: message["queue_offset"])
        offsets = [message["queue_offset"] for message in inside]
        assert offsets == list(range(first_offset, first_offset + len(inside))), (
            f"queue {queue}: offsets {offsets[:20]}"
        )
        assert_ascending(inside, f"queue {queue} by offset")


def assert_ascending(messages: list[dict[str, Any]], what: str) -> None:
    for before, after in pairwise(messages):
        assert line_of(before) < line_of(after), f"{what}: line {line_of(after)} came after {line_of(before)}"


def assert_arrival_order(messages: list[dict[str, Any]]) -> None:
    """Check that the consumer received the lines of each queue in the order of sending."""
    for queue, inside in by_queue(messages).items():
        assert_ascending(inside, f"queue {queue} by arrival")


def assert_same_as_sent(sent: list[dict[str, Any]], messages: list[dict[str, Any]]) -> None:
    """Check that the consumer sees the queue, queue offset and message id that the producer received."""
    told = {event["line"]: event for event in sent}
    for message in messages:
        event = told[line_of(message)]
        assert event["status"] == "SEND_OK"
        for name in ("queue", "queue_offset", "msg_id"):
            assert message[name] == event[name], (
                f"line {event['line']}: {name} {message[name]} but was told {event[name]}"
            )
