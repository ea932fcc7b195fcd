"""Limits of SQL92 expressions, which also those check who never compile one."""

from __future__ import annotations

from typing import Final

MAX_EXPRESSION_CHARACTERS: Final = 32_767
REMEMBERED_CHARACTERS: Final = 1024
"""A longer expression is compiled in steps (sql92.compile_steps), and only as long as somebody holds it."""
