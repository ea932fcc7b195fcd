"""A NameServer and brokers inside a program, for tests and trials: ready in a fraction of a second, gone without a
trace. Users import these names from `triomq.testing`.

    async with LocalCluster() as cluster:                # in a trio program: tasks of this very run
        async with Producer("g", name_server=cluster.name_server) as producer: ...

    with LocalCluster() as cluster: ...                  # anywhere else: a thread with a trio run of its own

    with ProcessCluster() as cluster: ...                # a child process: `kill()` it to see what survives

    clock = VirtualClock()                               # hours pass when the test says so, for any client
    with LocalCluster(clock=clock) as cluster: clock.advance(7200)

Ports are free ones unless given, the store is a temporary directory unless given. A temporary store is never synced,
which changes nothing but after a crash of the machine. `settings` are broker settings by their RocketMQ keys.
"""

from triomq.broker.embedded.local_cluster import LocalCluster
from triomq.broker.embedded.process_cluster import ProcessCluster
from triomq.broker.embedded.virtual_clock import VirtualClock, run_now_ms

__all__ = ["LocalCluster", "ProcessCluster", "VirtualClock", "run_now_ms"]
