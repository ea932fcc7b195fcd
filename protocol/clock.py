"""The types of clocks: a wall clock is a callable that answers milliseconds since 1970, a clock that can jump ahead
lets itself be subscribed to. Nothing in this package calls one."""

from collections.abc import Callable
from typing import TypeAlias

NowMs: TypeAlias = Callable[[], int]
JumpHeard: TypeAlias = Callable[[float], None]
"""Called with the seconds by which a run's clock has jumped ahead (it normally never does)."""
OnJump: TypeAlias = Callable[[JumpHeard], None]
"""Subscribes to the jumps of a clock."""
