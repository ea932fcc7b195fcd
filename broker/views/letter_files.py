"""The dead letters of a group as files: JSON lines, and a table for spreadsheets. Read one letter at a time, so a file
costs the broker a letter of memory; one that stopped at a bound says so in its last line."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Final

from triomq.broker.views.bodies import plain_begin
from triomq.broker.views.found import Found
from triomq.broker.views.letters import Letters
from triomq.dashboard.views import Ask, Data, Download, File, NotThere
from triomq.protocol import dead_letters
from triomq.protocol import property_names as names
from triomq.protocol.address import HostPort
from triomq.protocol.errors import BodyError
from triomq.protocol.system_topics import dlq_topic

MOST_LETTERS: Final = 20_000
"""Of one file."""
MOST_FILE_BYTES: Final = 128 * 1024 * 1024
MOST_BODY_BYTES: Final = 8 * 1024 * 1024
COLUMNS: Final = (
    "offsetMsgId",
    "msgId",
    "queueId",
    "queueOffset",
    "storeTime",
    "bornTime",
    "originTopic",
    "originMsgId",
    "tags",
    "keys",
    "tries",
    "reason",
    "resentAs",
    "body",
    "bodyBase64",
)
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""What makes a cell a formula in a spreadsheet, also in full width."""
_STOPPED: Final = "stopped here: a file has a bound; mqadmin dlq export writes all letters"


Line = Callable[[Data], bytes]


class LetterFiles:
    def __init__(self, letters: Letters) -> None:
        self._letters = letters

    def downloads(self) -> list[Download]:
        """Return the files."""
        return [Download("/letters.jsonl", self.json_lines), Download("/letters.csv", self.table)]

    def json_lines(self, ask: Ask) -> File:
        """Make a file with one letter a line. Names are those of `mqadmin dlq export`."""
        group = self._group(ask)
        return File(f"dead-letters-{group}.jsonl", "application/x-ndjson", self._bounded(group, ask, _json_line))

    def table(self, ask: Ask) -> File:
        """Make a file for spreadsheets. A cell that would be a formula there begins with an apostrophe."""
        group = self._group(ask)
        return File(f"dead-letters-{group}.csv", "text/csv; charset=utf-8", self._table(group, ask))

    def _group(self, ask: Ask) -> str:
        group = ask.query.get("group", "")
        if not (self._letters.is_known(group) and ask.may_read(dlq_topic(group))):
            raise NotThere(f"there are no dead letters of group {group!r} that you may see")
        return group

    def _table(self, group: str, ask: Ask) -> Iterator[bytes]:
        yield "\ufeff".encode() + _csv_line(dict(zip(COLUMNS, COLUMNS, strict=True)))
        yield from self._bounded(group, ask, _csv_line)

    def _bounded(self, group: str, ask: Ask, line_of: Line) -> Iterator[bytes]:
        count = size = 0
        for found in self._letters.every(group, ask):
            if found is None:
                yield b""
                continue
            if count == MOST_LETTERS or size >= MOST_FILE_BYTES:
                yield line_of({COLUMNS[0]: _STOPPED})
                return
            line = line_of(self._item(group, found))
            count, size = count + 1, size + len(line)
            yield line

    def _item(self, group: str, found: Found) -> Data:
        fields, texts = found.fields, found.properties
        item: Data = {
            "offsetMsgId": found.id,
            "msgId": texts.get(names.UNIQ_KEY) or found.id,
            "topic": fields.topic.decode("utf-8", "replace"),
            "queueId": fields.queue_id,
            "queueOffset": fields.queue_offset,
            "storeTimestamp": fields.store_timestamp,
            "storeTime": _iso(fields.store_timestamp),
            "bornTimestamp": fields.born_timestamp,
            "bornTime": _iso(fields.born_timestamp),
            "bornHost": HostPort.from_packed(fields.born_host).text,
            "originTopic": texts.get(names.RETRY_TOPIC),
            "originMsgId": texts.get(names.ORIGIN_MESSAGE_ID),
            "tags": texts.get(names.TAGS),
            "keys": texts.get(names.KEYS),
            "tries": dead_letters.tries_of(texts, fields.reconsume_times),
            "reason": texts.get(dead_letters.REASON),
            "resentAs": self._letters.resent_as(group, found.id) or None,
            "properties": texts,
        }
        body, is_whole = found.body, True
        try:
            body, is_whole = plain_begin(body, fields.sys_flag, MOST_BODY_BYTES)
        except BodyError as error:
            item["bodyError"] = str(error)
        if not is_whole:
            item["bodyError"] = f"this is the beginning: the body has more than {MOST_BODY_BYTES} bytes"
        try:
            item["body"] = body.decode()
        except UnicodeDecodeError:
            item["bodyBase64"] = base64.b64encode(body).decode()
        return item


def _json_line(item: Data) -> bytes:
    return json.dumps(item, ensure_ascii=False).encode(errors="replace") + b"\n"


def _csv_line(item: Data) -> bytes:
    row = io.StringIO()
    csv.writer(row).writerow([_cell(item.get(name)) for name in COLUMNS])
    return row.getvalue().encode(errors="replace")


def _cell(value: object) -> str:
    """Return the text of a cell. What a spreadsheet would compute becomes text; numbers are our own."""
    if value is None or isinstance(value, int):
        return "" if value is None else str(value)
    text = str(value).replace("\0", "\ufffd")
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text


def _iso(ms: int) -> str | None:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        return None
