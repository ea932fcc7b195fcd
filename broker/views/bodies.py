"""The body of a message as a page shows it: text, JSON with indents, or hex. Pure, and bounded whatever the body is."""

from __future__ import annotations

import json
import re
from collections.abc import Generator
from typing import Final

from triomq.protocol import compression, sys_flag
from triomq.protocol.errors import BodyError

FORMS: Final = ("text", "json", "hex")
MOST_BODY_BYTES: Final = 64 * 1024
MOST_JSON_CHARACTERS: Final = 32 * 1024
MOST_JSON_DEPTH: Final = 32
MOST_HEX_BYTES: Final = 4 * 1024
_ROW_BYTES: Final = 16
_STEP_TOKENS: Final = 512
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[][{},:]|[^][{},:"\s]+', re.DOTALL)
_NO_TEXT: Final = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f\ufffd\u202a-\u202e\u2066-\u2069]")


def plain_begin(body: bytes, flags: int, most_bytes: int) -> tuple[bytes, bool]:
    """Return the beginning of a body, decompressed, and whether that is all of it. Raises BodyError."""
    if not flags & sys_flag.COMPRESSED or not body:
        return body[:most_bytes], len(body) <= most_bytes
    begin = compression.decompress_begin(body, sys_flag.compression_type(flags), most_bytes + 1)
    return begin[:most_bytes], len(begin) <= most_bytes


def text_of(body: bytes, *, is_whole: bool) -> str | None:
    """Return a body as text; None if it is not UTF-8 or has characters that change how others are shown. The last
    character of a part may be cut off."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        if is_whole or error.reason != "unexpected end of data":
            return None
        text = body[: error.start].decode()
    return None if _NO_TEXT.search(text) else text


def line_of(body: bytes, flags: int, most_bytes: int) -> str:
    """Return the beginning of a body in one line: text, or hex of what is not text."""
    try:
        begin, is_whole = plain_begin(body, flags, most_bytes)
    except BodyError as error:
        return f"({error})"
    text = text_of(begin, is_whole=is_whole)
    line = " ".join(text.split()) if text is not None else begin[: most_bytes // 3].hex(" ")
    is_short = is_whole and (text is not None or len(begin) <= most_bytes // 3)
    return line if is_short else line + " …"


def indented(text: str) -> Generator[None, None, str | None]:
    """Return JSON with indents, None if it is not JSON, or too long or deep. Names, numbers and their order stay as
    they are in the text; an item ends a step."""
    if len(text) > MOST_JSON_CHARACTERS or not text.lstrip().startswith(("{", "[")):
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    parts: list[str] = []
    depth = 0
    is_empty = False  # the last token began an object or a list
    for number, found in enumerate(_TOKEN.finditer(text), 1):
        token = found[0]
        if token in "}]":
            depth -= 1
            parts.append(token if is_empty else _new_line(depth) + token)
        else:
            if is_empty:
                parts.append(_new_line(depth))
            if token in "{[":
                depth += 1
                if depth > MOST_JSON_DEPTH:
                    return None
                parts.append(token)
            elif token == ",":
                parts.append(token + _new_line(depth))
            else:
                parts.append(": " if token == ":" else token)
        is_empty = token in "{["
        if number % _STEP_TOKENS == 0:
            yield
    return "".join(parts)


def _new_line(depth: int) -> str:
    return "\n" + "  " * depth


def hex_rows(body: bytes) -> str:
    """Return the first MOST_HEX_BYTES as rows of offset, bytes and their ASCII characters."""
    rows = []
    for at in range(0, min(len(body), MOST_HEX_BYTES), _ROW_BYTES):
        row = body[at : min(at + _ROW_BYTES, MOST_HEX_BYTES)]
        shown = "".join([chr(byte) if 32 <= byte < 127 else "." for byte in row])
        rows.append(f"{at:08x}  {row.hex(' '):<{3 * _ROW_BYTES - 1}}  {shown}")
    return "\n".join(rows)


def shown_body(body: bytes, flags: int, form: str) -> Generator[None, None, dict[str, object]]:
    """Return a body as the page of a message shows it: in this form, or in the best one if it cannot be shown so."""
    try:
        begin, is_whole = plain_begin(body, flags, MOST_BODY_BYTES)
    except BodyError as error:
        return {
            "form": "hex",
            "forms": ["hex"],
            "text": hex_rows(body),
            "is_whole": len(body) <= MOST_HEX_BYTES,
            "error": str(error),
        }
    text = text_of(begin, is_whole=is_whole)
    pretty = (yield from indented(text)) if text is not None and is_whole else None
    found = {"json": pretty, "text": text, "hex": hex_rows(begin)}
    forms = [name for name in FORMS if found[name] is not None]
    chosen = form if form in forms else next(name for name in found if found[name] is not None)
    is_all = is_whole and (chosen != "hex" or len(begin) <= MOST_HEX_BYTES)
    return {"form": chosen, "forms": forms, "text": found[chosen], "is_whole": is_all, "error": ""}
