"""The pid file of a running daemon, by which mqshutdown finds it.

<user.home>/.triomq/run/<program>.<pid>.pid holds the process id. mqshutdown also looks at the command line of that
process before it signals it, so a file left behind by a killed daemon does no harm.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

log = structlog.get_logger("triomq.daemon.pid_file")


@contextmanager
def pid_file(directory: Path, program: str) -> Iterator[None]:
    """Keep the file while the block runs. If the directory is not writable, only log a warning."""
    path = directory / f"{program}.{os.getpid()}.pid"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{os.getpid()}\n")
    except OSError as error:
        log.warning(
            "pid file not written; mqshutdown will not find this process", path=str(path), reason=error.strerror
        )
    try:
        yield
    finally:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("pid file left behind", path=str(path), reason=error.strerror)
