"""Servers to test the client against: processes that say when they are up."""

from __future__ import annotations

import os
import subprocess
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

BROKER_SETTINGS = (
    "enablePropertyFilter=true",
    "traceTopicEnable=true",
    "transactionTimeOut=1000",
    "transactionCheckInterval=2000",
    "messageDelayLevel=1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s 1s",
)


@dataclass(frozen=True)
class Cluster:
    """A NameServer and a broker that are up."""

    name_server: str
    broker: str


def peer_script() -> Path | None:
    """TRIOMQ_PEER, or shared/bench/apache/peer next to the project or above it."""
    named = os.environ.get("TRIOMQ_PEER")
    candidates = (
        [Path(named)]
        if named
        else [directory / "shared" / "bench" / "apache" / "peer" for directory in Path(__file__).resolve().parents]
    )
    return next((path for path in candidates if path.is_file()), None)


class Daemon:
    """A process that says in its output when it is up."""

    def __init__(self, *command: str, environment: Mapping[str, str] | None = None) -> None:
        self.lines: deque[str] = deque(maxlen=200)
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            if "boot success" in line:
                break
        else:
            self.process.wait()
            raise RuntimeError(f"{command[0]} did not start:\n{''.join(self.lines)}")
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(self.process.stdout)

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
