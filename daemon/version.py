"""What runs here: the version of TrioMQ, of the protocol that it speaks, and of Python."""

import platform

from triomq import __version__
from triomq.protocol import frame

ROCKETMQ_VERSION = "4.9.7"


def is_compiled() -> bool:
    """True when the hot modules run compiled by mypyc (bin/build), False when they run as plain Python."""
    return not str(frame.__file__).endswith(".py")


def version_text(program: str) -> str:
    """One line for --version."""
    how = "compiled" if is_compiled() else "plain Python"
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{program} (TrioMQ) {__version__}, compatible with RocketMQ {ROCKETMQ_VERSION}, {how} on {python}"
