"""The JSON that each verb writes; see `shapes`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CONTEXT = {
    "name": "string", "current": "boolean", "nameServers": "string", "accessKey": "string?", "tls": "boolean",
    "caFile": "string?",
}  # fmt: skip

QUOTA = {"address": "string", "kind": "string", "name": "string", "quotas": "string"}

VERB_SHAPES: dict[str, dict[str, Any]] = {
    "context add": CONTEXT,
    "context use": CONTEXT,
    "context list": CONTEXT,
    "context remove": CONTEXT,
    "quota set": QUOTA,
    "quota remove": QUOTA,
    "quota list": QUOTA,
    "selftest": {"directory": "string", "passed": "boolean", "report": ["string"]},
}
