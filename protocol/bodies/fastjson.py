"""The JSON dialect of RocketMQ's bodies and configuration files: re-exports the reader and the writer."""

from __future__ import annotations

from triomq.protocol.bodies.fastjson_reader import loads, loads_lenient
from triomq.protocol.bodies.fastjson_writer import dumps, dumps_pretty, dumps_standard

__all__ = ["dumps", "dumps_pretty", "dumps_standard", "loads", "loads_lenient"]
