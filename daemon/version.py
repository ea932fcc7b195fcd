"""Versions: that of TrioMQ, of the protocol that it implements, and of Python."""

import platform

from triomq import __version__
from triomq.protocol.speedups import running_build

PRODUCT = "TrioMQ"
ROCKETMQ_VERSION = "4.9.7"

_BUILDS = {"compiled": "compiled", "speedups": "with C speedups", "pure": "in pure Python"}


def product_values() -> dict[str, str]:
    """Return what a daemon adds to a response so that peers know which build it is; RocketMQ has no such keys."""
    return {"product": PRODUCT, "productVersion": __version__}


def version_text(program: str) -> str:
    """Return the line that --version prints."""
    build = _BUILDS[running_build()]
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{program} ({PRODUCT}) {__version__}, compatible with RocketMQ {ROCKETMQ_VERSION}, {build} on {python}"
