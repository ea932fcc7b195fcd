"""The real Java mqadmin in one process that stays up, so that many commands cost one start."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue

from interop_builds import HERE, need_java
from interop_processes import Child

END_OF_OUTPUT = "\x1e"
STOP = "stop"
COMMAND_SECONDS = 30
QUIET_LOG = "<configuration><root level='OFF'/></configuration>"
OPENS = [
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
]


class JavaAdmin:
    """`run("clusterList", "-n", address)` returns the output of the command (both streams). `options` are those of the
    Java machine, `class_path` has the jars of another version than the peer's."""

    def __init__(self, peer: Path, directory: Path, options: Sequence[str] = (), class_path: str | None = None) -> None:
        if class_path is None:
            class_path = subprocess.run(
                [str(peer), "cp"], capture_output=True, text=True, timeout=400, check=True
            ).stdout.strip()
        (directory / "conf").mkdir(parents=True)
        (directory / "conf" / "logback_tools.xml").write_text(QUIET_LOG)
        self._account_file = directory / "conf" / "tools.yml"
        source = str(HERE / "mqadmin" / "AdminBatch.java")
        self.child = Child(
            [
                need_java(),
                *OPENS,
                *options,
                "-XX:TieredStopAtLevel=1",
                f"-Duser.home={directory}",
                "-cp",
                class_path,
                source,
            ],
            log_path=directory / "mqadmin.log",
            env=dict(os.environ, ROCKETMQ_HOME=str(directory), HOME=str(directory)),
            piped=True,
        )
        self._lines: Queue[str] = Queue(maxsize=10_000)
        threading.Thread(target=self._read, name="mqadmin-output", daemon=True).start()

    def _read(self) -> None:
        for line in self.child.stdout:
            self._lines.put(line.decode().rstrip("\n"))

    @contextmanager
    def account(self, access_key: str, secret_key: str) -> Iterator[None]:
        """Sign commands with this account until the block ends; each command reads the file again."""
        before = self._account_file.read_text() if self._account_file.exists() else None
        self._account_file.write_text(f"accessKey: {access_key}\nsecretKey: {secret_key}\n")
        try:
            yield
        finally:
            if before is None:
                self._account_file.unlink()
            else:
                self._account_file.write_text(before)

    def run(self, *words: str) -> str:
        self._tell("\t".join(words))
        return self._output(words, until=None)

    def run_until(self, pattern: str, *words: str) -> str:
        """Run a command that never ends. Stop it once a line matches; return its output until then."""
        self._tell("\t".join(words))
        try:
            return self._output(words, until=re.compile(pattern))
        finally:
            self._tell(STOP)
            self._output((STOP, *words), until=None)

    def _tell(self, line: str) -> None:
        self.child.stdin.write(line.encode() + b"\n")
        self.child.stdin.flush()

    def _output(self, words: Sequence[str], until: re.Pattern[str] | None) -> str:
        lines: list[str] = []
        while True:
            try:
                line = self._lines.get(timeout=COMMAND_SECONDS)
            except Empty:
                so_far = "\n".join(lines)
                raise AssertionError(
                    f"mqadmin {' '.join(words)}: no end within {COMMAND_SECONDS} s:\n{so_far}"
                ) from None
            if line == END_OF_OUTPUT:
                assert until is None, f"mqadmin {' '.join(words)} ended:\n{chr(10).join(lines)}"
                return "\n".join(lines).strip("\n")
            lines.append(line)
            if until is not None and until.search(line):
                return "\n".join(lines)

    def close(self) -> None:
        self.child.end()
