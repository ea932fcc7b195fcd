"""The JSON that each verb writes; see `shapes`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CONTEXT = {
    "name": "string", "current": "boolean", "nameServers": "string", "accessKey": "string?", "tls": "boolean",
    "caFile": "string?",
}  # fmt: skip

VERB_SHAPES: dict[str, dict[str, Any]] = {
    "context add": CONTEXT,
    "context use": CONTEXT,
    "context list": CONTEXT,
    "context remove": CONTEXT,
    "selftest": {"directory": "string", "passed": "boolean", "report": ["string"]},
}
