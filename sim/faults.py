"""What goes wrong in a run: each kind of fault of a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import trio

from sim.cluster import Broker, Node
from sim.history import History
from sim.network import Network
from sim.plan import Fault
from sim.trace import Trace

SHORTEST_FAILURE_SECONDS = 1.0
SNAPSHOT_SECONDS = 3.0
AFTER_SECONDS = 10.0
"""How long after a fault the cluster may still do what it does because of it."""


class Faults:
    """Does what a plan says. `counts` holds how often each kind happened."""

    def __init__(self, network: Network, nodes: Mapping[str, Node], history: History, trace: Trace) -> None:
        self._network = network
        self._nodes = nodes
        self._history = history
        self._trace = trace
        self.counts: Counter[str] = Counter()

    async def do(self, fault: Fault, began: float) -> None:
        """Wait for the moment of a fault, and let it happen and end."""
        if fault.kind == "restore":
            await self._restore(fault, began)
            return
        await trio.sleep_until(began + fault.at)
        if fault.kind in ("partition", "oneway", "reset", "lag"):
            act: Callable[[], Awaitable[None]] = partial(self._disturb_network, fault)
        elif fault.kind in ("slow", "full", "failing", "unlinked"):
            act = partial(self._disturb_disk, fault)
        else:
            act = partial(self._end_and_start, fault)
        await self._during(fault, act)

    async def _during(self, fault: Fault, act: Callable[[], Awaitable[None]]) -> None:
        self._trace.add(f"fault {fault}")
        self.counts[fault.kind] += 1
        with self._disturbing():
            await act()

    @contextmanager
    def _disturbing(self) -> Iterator[None]:
        begin = trio.current_time()
        number = len(self._history.disturbed)
        self._history.disturbed.append((begin, float("inf")))
        try:
            yield
        finally:
            self._history.disturbed[number] = (begin, trio.current_time() + AFTER_SECONDS)

    async def _disturb_network(self, fault: Fault) -> None:
        one = self._nodes[fault.targets[0]].host
        if fault.kind == "lag":
            one.lag_seconds = 0.5
            await trio.sleep(fault.seconds)
            one.lag_seconds = 0.0
            return
        other = self._nodes[fault.targets[1]].host
        if fault.kind == "reset":
            self._network.reset(one, other)
            return
        self._network.cut(one, other)
        if fault.kind == "partition":
            self._network.cut(other, one)
        await trio.sleep(fault.seconds)
        self._network.heal(one, other)

    async def _disturb_disk(self, fault: Fault) -> None:
        broker = self._broker(fault)
        disk = broker.disk
        if fault.kind in ("slow", "full"):
            attribute = f"is_{fault.kind}"
            setattr(disk, attribute, True)
            if fault.kind == "full":
                disk.full_since = trio.current_time()
            await trio.sleep(fault.seconds)
            setattr(disk, attribute, False)
            return
        # A disk that fails, and a file without a name: an administrator restarts the broker, after mending that. What
        # is not synced meanwhile is lost.
        if fault.kind == "failing":
            disk.is_failing = True
            await self._lose(broker, SHORTEST_FAILURE_SECONDS)
            disk.is_failing = False
            await self._lose(broker, fault.seconds)
            await broker.kill(as_if="power")
            disk.evict()
        elif disk.unlink_newest_log_file():
            await self._lose(broker, SHORTEST_FAILURE_SECONDS + fault.seconds)
            await broker.kill(as_if="power")
            disk.replace_unlinked()
        await broker.start()

    @staticmethod
    async def _lose(broker: Broker, seconds: float) -> None:
        """Wait, while the broker loses what it does not sync."""
        end = trio.current_time() + seconds
        while trio.current_time() < end:
            broker.died_at.append((trio.current_time(), "power"))
            await trio.sleep(min(1.0, end - trio.current_time()))

    async def _end_and_start(self, fault: Fault) -> None:
        node = self._nodes[fault.targets[0]]
        ends: dict[str, Callable[[], Awaitable[None]]] = {
            "kill": node.kill,
            "power": node.lose_power,
            "stop": node.stop,
        }
        if isinstance(node, Broker):
            ends["write"] = partial(node.crash_within_a_write, fault.number * 7 % 20, power=fault.number % 2 == 0)
            ends["rebuild"] = node.kill
            ends["error"] = partial(node.err_within_a_commit, fault.number * 7 % 20)
        await ends[fault.kind]()
        if fault.kind == "rebuild":
            self._broker(fault).disk.lose_queues()
        await trio.sleep(fault.seconds)
        await node.start()

    async def _restore(self, fault: Fault, began: float) -> None:
        """Copy the disk of a broker that is stopped for it; later go back to the copy."""
        broker = self._broker(fault)
        await trio.sleep_until(began + fault.at - SNAPSHOT_SECONDS)
        with self._disturbing():
            await broker.stop()
            copied_at = trio.current_time()
            broker.disk.copy()
            await broker.start()
        await trio.sleep_until(began + fault.at + SNAPSHOT_SECONDS)
        await self._during(fault, partial(self._go_back, broker, copied_at))

    async def _go_back(self, broker: Broker, copied_at: float) -> None:
        slave = self._nodes.get(f"{broker.name}-slave")
        await broker.kill()
        broker.disk.restore()
        broker.restored.append((copied_at, trio.current_time()))
        if isinstance(slave, Broker):
            slave.kept_bytes = slave.log_end()
        await broker.start()

    def _broker(self, fault: Fault) -> Broker:
        broker = self._nodes[fault.targets[0]]
        assert isinstance(broker, Broker)
        return broker
