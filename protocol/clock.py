"""Types of clocks: a wall clock is a callable that returns milliseconds since 1970; a clock that can jump ahead
notifies subscribers. Nothing in this package calls one."""

from collections.abc import Callable
from typing import TypeAlias

NowMs: TypeAlias = Callable[[], int]
JumpHeard: TypeAlias = Callable[[float], None]
"""Called with the number of seconds by which the clock jumped ahead (normally it never does)."""
OnJump: TypeAlias = Callable[[JumpHeard], None]
"""Subscribes to the jumps of a clock."""
