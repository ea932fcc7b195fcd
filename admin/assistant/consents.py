"""Consents: a token stands for one plan of one call, once, for a short time."""

from __future__ import annotations

import json
import secrets
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

VALID_SECONDS = 300.0
MAX_TOKENS = 100


class Consents:
    """`_plans` has (deadline, call, plan) by token, the oldest first. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._plans: dict[str, tuple[float, str, str]] = {}

    def offer(self, call: Any, steps: list[dict[str, Any]]) -> str:
        """Return a token for the steps of a call; of more than MAX_TOKENS the oldest is no longer valid."""
        token = secrets.token_urlsafe(16)
        with self._lock:
            if len(self._plans) >= MAX_TOKENS:
                del self._plans[next(iter(self._plans))]
            self._plans[token] = (time.monotonic() + VALID_SECONDS, _text(call), _plan_text(steps))
        return token

    def take(self, token: str, call: Any) -> str | None:
        """Return the plan that a token stands for, and make the token invalid; None unless it is that of this call."""
        with self._lock:
            deadline, offered, plan = self._plans.pop(token, (0.0, "", ""))
        return plan if time.monotonic() < deadline and offered == _text(call) else None


def is_plan(plan: str, steps: list[dict[str, Any]]) -> bool:
    """Return whether steps are those of a plan. What was there before may differ: a group that consumes moves on."""
    return plan == _plan_text(steps)


def _plan_text(steps: list[dict[str, Any]]) -> str:
    return _text([{name: value for name, value in step.items() if name != "before"} for step in steps])


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
