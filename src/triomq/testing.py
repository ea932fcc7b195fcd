"""A whole cluster inside of a test: ready in a fraction of a second, on free ports, with virtual time on request.

The pytest plugin with the fixtures `rocketmq`, `rocketmq_proc` and `rocketmq_factory` loads by itself
(triomq.client.pytest_plugin).
"""

from triomq.broker.embedded import LocalCluster, ProcessCluster
from triomq.broker.embedded.virtual_clock import VirtualClock, run_now_ms

__all__ = [
    "LocalCluster",
    "ProcessCluster",
    "VirtualClock",
    "run_now_ms",
]
