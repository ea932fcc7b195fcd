"""`triomq run` as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from client_cluster import until

import triomq

SOURCE = Path(triomq.__file__).resolve().parents[1]


@contextmanager
def running(directory: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "triomq.client.app.run", "run", *words]
    with (directory / "stderr").open("wb") as stderr:
        process = subprocess.Popen(command, cwd=directory, env=environment, stderr=stderr)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


async def appears(path: Path) -> None:
    """Wait until a file is there."""
    await until(path.exists)
