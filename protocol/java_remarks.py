"""The remarks of refusals as brokers send them: with the class of Java's exception before the reason, and the place in
Java's source behind it, as RocketMQ's do. They tell operators nothing."""

from __future__ import annotations

import re


def without_java(remark: str) -> str:
    """Return the reason alone."""
    remark = re.sub(r"^([a-z_]\w*\.)+[A-Z]\w*(Exception|Error): ?", "", remark)
    return re.sub(r",? ([a-z_]\w*\.)+[A-Z]\w*\.\w+\(\w+\.java:\d+\)$", "", remark)
