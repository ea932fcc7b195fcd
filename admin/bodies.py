"""JSON bodies as RocketMQ writes them: fastjson leaves map keys that are numbers without quotes.

Those are quoted here and the rest is left to the standard library. What else fastjson writes (objects as keys,
references) goes to the complete reader of `triomq.protocol`, which takes longer to import.
"""

from __future__ import annotations

import json
import re

from triomq.admin.errors import AdminError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_STRING_OR_NUMBER_KEY = re.compile(r'"(?:[^"\\]|\\.)*"|(?<=[{,])(\s*)(-?\d+)(?=\s*:)')


def loads(body: bytes) -> Any:
    """Return the value of a body. Raises AdminError for a body that neither reader can parse."""
    text = body.decode("utf-8", "replace")
    if not text.strip():
        raise AdminError("the response has no body")
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return json.loads(_STRING_OR_NUMBER_KEY.sub(_quoted, text))
    except ValueError:
        from triomq.protocol.bodies.fastjson_reader import loads as read_fastjson
        from triomq.protocol.errors import BodyError

        try:
            return read_fastjson(body)
        except BodyError as error:
            raise AdminError(f"the body of the response is not JSON: {error}") from error


def dumps(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _quoted(match: re.Match[str]) -> str:
    return match[0] if match[2] is None else f'{match[1]}"{match[2]}"'
