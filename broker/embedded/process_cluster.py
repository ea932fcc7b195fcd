"""An embedded cluster in a child process (embedded/__main__.py), for tests that kill it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from triomq.broker.embedded.plan import STOP_SECONDS, ClusterPlan
from triomq.remoting.process_bound import ProcessBound


class ProcessCluster(ProcessBound):
    """An embedded cluster in a child process, for tests that kill it, or that must not share an interpreter with it."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        store: Path | str | None = None,
        name_server_port: int = 0,
        broker_port: int = 0,
        cluster_name: str = "DefaultCluster",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._plan = ClusterPlan(brokers, store, name_server_port, broker_port, cluster_name, settings)
        self.name_server = ""
        self.brokers: dict[str, str] = {}
        self.store = Path()
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> Self:
        """Start the child; return when the brokers are registered. Raises RuntimeError with the child's output if it
        does not start."""
        plan = self._plan
        command = [sys.executable, "-m", "triomq.broker.embedded", "--brokers", str(plan.brokers)]
        command += ["--name-server-port", str(plan.name_server_port), "--broker-port", str(plan.broker_port)]
        command += ["--cluster-name", plan.cluster_name, "--settings", json.dumps(plan.settings)]
        if plan.store is not None:
            command += ["--store", str(plan.store)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._process = process
        assert process.stdout is not None
        seen: list[str] = []
        for line in process.stdout:
            if line.startswith("{"):
                ready = json.loads(line)
                self.name_server, self.brokers = ready["name_server"], ready["brokers"]
                self.store = Path(ready["store"])
                threading.Thread(target=process.stdout.read, daemon=True).start()
                return self
            seen.append(line)
        process.wait()
        raise RuntimeError(f"the cluster did not start (exit code {process.returncode}):\n{''.join(seen)}")

    def close(self) -> None:
        """Stop the child; its store is closed properly."""
        process = self._process
        if process is None:
            return
        self._process = None
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """Kill the child, as in a crash. The store stays, even a temporary one (`store` is its path)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
