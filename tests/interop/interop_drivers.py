"""Controls real clients: a driver process reads commands from its stdin and prints events, one JSON object per line.

One process serves a whole test session (a Java virtual machine takes seconds to start); each command has an id.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from interop_processes import Child

Event = dict[str, Any]
READY_SECONDS = 30
DEFAULT_SECONDS = 60


class DriverFailed(AssertionError):
    """A command failed in the client, or its events did not arrive in time."""


class Running:
    """One running command. The driver's reader thread appends its events under the driver's condition."""

    def __init__(self, driver: Driver, command_id: str, text: str) -> None:
        self.driver = driver
        self.id = command_id
        self.text = text
        self.events: list[Event] = []

    def of(self, event: str) -> list[Event]:
        with self.driver.changed:
            return [found for found in self.events if found["event"] == event]

    @property
    def messages(self) -> list[Event]:
        return self.of("message")

    @property
    def is_over(self) -> bool:
        return bool(self.events) and self.events[-1]["event"] in ("done", "failed")

    def _fail(self, reason: str) -> DriverFailed:
        last = [{**event, "body": "..."} if "body" in event else event for event in self.events[-3:]]
        return DriverFailed(
            f"{self.driver.name}: {self.text}: {reason}; {len(self.events)} events, last {last}\n"
            + self.driver.child.log_tail()
        )

    def wait_for(self, condition: Callable[[], object], what: str, timeout_seconds: float = DEFAULT_SECONDS) -> None:
        """Wait until `condition()` holds; evaluate it after each event."""
        deadline = time.monotonic() + timeout_seconds
        with self.driver.changed:
            while not condition():
                if self.events and self.events[-1]["event"] == "failed":
                    raise self._fail(f"failed while waiting: {what}")
                if self.driver.ended:
                    raise self._fail(f"the driver process ended while waiting: {what}")
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._fail(f"not within {timeout_seconds} s: {what}")
                self.driver.changed.wait(min(left, 1))

    def wait_event(self, event: str, number: int = 1, timeout_seconds: float = DEFAULT_SECONDS) -> list[Event]:
        """Wait for at least `count` events of a kind; return all of that kind."""
        self.wait_for(lambda: len(self.of(event)) >= number, f"{number} x {event}", timeout_seconds)
        return self.of(event)

    def wait_messages(self, number: int, timeout_seconds: float = DEFAULT_SECONDS) -> list[Event]:
        return self.wait_event("message", number, timeout_seconds)

    def wait_done(self, timeout_seconds: float = DEFAULT_SECONDS) -> list[Event]:
        self.wait_for(lambda: self.events and self.events[-1]["event"] == "done", "done", timeout_seconds)
        return self.events

    def stop(self, timeout_seconds: float = DEFAULT_SECONDS) -> list[Event]:
        """Shut the client down cleanly; return all events."""
        self.driver.tell(f"{self.id}\tstop")
        return self.wait_done(timeout_seconds)


def stop_all(commands: list[Running], timeout_seconds: float = DEFAULT_SECONDS) -> None:
    """Shut clients down in parallel: some need seconds."""
    for command in commands:
        command.driver.tell(f"{command.id}\tstop")
    for command in commands:
        command.wait_done(timeout_seconds)


class Driver:
    """One driver process."""

    def __init__(self, name: str, argv: list[str], directory: Path) -> None:
        self.name = name
        self.changed = threading.Condition(threading.RLock())
        self.ended = False
        self._ready = False
        self._commands: dict[str, Running] = {}
        self._ids = count(1)
        directory.mkdir(parents=True, exist_ok=True)
        environment = dict(os.environ, HOME=str(directory))
        self.child = Child(argv, log_path=directory / f"{name}.log", env=environment, piped=True)
        self._reader = threading.Thread(target=self._read, name=f"{name}-events", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.child.stdout:
            event = json.loads(line)
            if "body" in event:
                event["body"] = base64.b64decode(event["body"] or "")
            with self.changed:
                command = self._commands.get(event["id"])
                if command is not None:
                    command.events.append(event)
                elif event["event"] == "ready":
                    self._ready = True
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def _wait_ready(self) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self._ready or self.ended, READY_SECONDS)
            if not self._ready:
                raise DriverFailed(f"{self.name} did not start:\n{self.child.log_tail()}")

    def tell(self, line: str) -> None:
        self.child.stdin.write(line.encode() + b"\n")
        self.child.stdin.flush()

    def begin(self, command: str, **options: Any) -> Running:
        """Start a command; `order_by_queue=4` becomes `--order-by-queue 4`, None omits an option."""
        self._wait_ready()
        words = [command]
        for name, value in options.items():
            if value is not None:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                words += ["--" + name.replace("_", "-"), text]
        running = Running(self, str(next(self._ids)), " ".join(words))
        with self.changed:
            self._commands[running.id] = running
        self.tell("\t".join([running.id, *words]))
        return running

    def receive(self, **options: Any) -> Running:
        """Start a consumer and wait until the client reports that it has started."""
        running = self.begin("receive", **options)
        running.wait_event("started")
        return running

    def run(self, command: str, timeout_seconds: float = DEFAULT_SECONDS, **options: Any) -> list[Event]:
        """Run a command to its end and return its events."""
        return self.begin(command, **options).wait_done(timeout_seconds)

    def unfinished(self) -> list[Running]:
        """Return the commands that still run."""
        with self.changed:
            self._commands = {} if self.ended else {c.id: c for c in self._commands.values() if not c.is_over}
            return list(self._commands.values())

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def end(self, first_signal: int = signal.SIGTERM) -> None:
        self.child.end(first_signal)
        self._reader.join(10)
