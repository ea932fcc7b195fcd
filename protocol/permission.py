"""Permission bits of a topic or of a whole broker (org.apache.rocketmq.common.constant.PermName)."""

from __future__ import annotations

from typing import Final

INHERIT: Final = 1  # the topic may serve as a template for automatic creation
WRITE: Final = 2
READ: Final = 4
READ_WRITE: Final = READ | WRITE


def is_readable(perm: int) -> bool:
    """Return whether consumers may pull."""
    return perm & READ == READ


def is_writeable(perm: int) -> bool:
    """Return whether producers may send."""
    return perm & WRITE == WRITE


def is_inherited(perm: int) -> bool:
    """Return whether the topic may serve as a template for automatic creation."""
    return perm & INHERIT == INHERIT


def perm_text(perm: int) -> str:
    """Return three letters, as Java's perm2String does: "RW-", "R--", "RWX"."""
    return (
        ("R" if is_readable(perm) else "-")
        + ("W" if is_writeable(perm) else "-")
        + ("X" if is_inherited(perm) else "-")
    )
