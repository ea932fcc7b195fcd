"""Files that tests build or download, once for each content (a hash of the sources), outside of the source tree.

Tests run in several processes at once; only one of them builds or downloads at a time.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

BUILD_SECONDS = 400


def cache_directory() -> Path:
    """Return the directory for files that tests build or download and keep between runs."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "triomq-interop"


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Exclude other processes while the block runs. The lock ends with its process, however that ends."""
    cache_directory().mkdir(parents=True, exist_ok=True)
    with (cache_directory() / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def source_hash(source: Path, extra: str) -> str:
    digest = hashlib.sha256(extra.encode())
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        if "target" not in path.parts and "node_modules" not in path.parts:
            digest.update(str(path.relative_to(source)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def built(source: Path, variant: str, build: Callable[[Path], None]) -> Path:
    """Return the directory with the built driver. `build` runs in a copy of `source`; it counts if it succeeds."""
    target = cache_directory() / f"{variant}-{source_hash(source, variant)}"
    with one_at_a_time():
        if target.exists():
            return target
        workplace = Path(tempfile.mkdtemp(prefix=f"{variant}-", dir=target.parent))
        try:
            shutil.copytree(source, workplace, dirs_exist_ok=True)
            build(workplace)
            workplace.rename(target)
        finally:
            shutil.rmtree(workplace, ignore_errors=True)
    return target


def run_tool(argv: list[str], directory: Path) -> None:
    done = subprocess.run(
        argv, cwd=directory, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_SECONDS
    )
    if done.returncode != 0:
        output = (done.stdout + done.stderr)[-4000:]
        raise AssertionError(f"{' '.join(argv)} failed with {done.returncode}:\n{output}")
