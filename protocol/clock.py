"""Types of clocks. A wall clock is a callable that returns milliseconds since 1970. A clock that can jump ahead
notifies its subscribers. No module of this package calls a clock."""

from collections.abc import Callable
from typing import TypeAlias

NowMs: TypeAlias = Callable[[], int]
JumpHeard: TypeAlias = Callable[[float], None]
"""Called with the number of seconds by which the clock jumped ahead (normally it never does)."""
OnJump: TypeAlias = Callable[[JumpHeard], None]
"""Subscribes a callback to the jumps of a clock."""
