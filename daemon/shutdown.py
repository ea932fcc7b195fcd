"""mqshutdown: sends SIGTERM to running daemons so that they stop, as RocketMQ's script of that name does.

It signals only processes whose id a daemon of this program wrote to its run directory, and whose command line is still
that of such a daemon, because another process may have that id by now.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from triomq.daemon.environment import read_environment

HELP = """\
usage: mqshutdown broker | namesrv
 broker     ask every broker that this account started to stop
 namesrv    ask every NameServer that this account started to stop
 -h,--help  print this help"""
_MODULES = {"broker": "triomq.broker", "namesrv": "triomq.namesrv"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit code: 0 if at least one daemon was asked to stop, 1 for wrong arguments, 255 if none runs."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words in (["-h"], ["--help"]):
        print(HELP)  # noqa: T201
        return 0
    if len(words) != 1 or words[0] not in _MODULES:
        print(HELP.splitlines()[0], file=sys.stderr)  # noqa: T201
        return 1
    kind = words[0]
    program = f"mq{kind}"
    found = 0
    for path in sorted(read_environment(os.environ).run_directory.glob(f"{program}.*.pid")):
        pid = running_daemon(path, kind)
        if pid is None:
            path.unlink(missing_ok=True)
            continue
        print(f"The {program}({pid}) is running...")  # noqa: T201
        try:
            os.kill(pid, signal.SIGTERM)
        except OSError as error:
            print(f"{program}({pid}) cannot be signalled: {error.strerror}", file=sys.stderr)  # noqa: T201
            continue
        found += 1
        print(f"Send shutdown request to {program}({pid}) OK")  # noqa: T201
    if not found:
        print(f"No {program} running.")  # noqa: T201
        return 255
    return 0


def running_daemon(path: Path, kind: str) -> int | None:
    """Return the process id in a pid file if that process is a daemon of this kind, else None."""
    try:
        pid = int(path.read_text())
    except (OSError, ValueError):
        return None
    return pid if pid > 1 and is_daemon(command_line(pid), kind) else None


def command_line(pid: int) -> list[str]:
    """Return the words of a process's command line; empty if there is no such process."""
    recorded = Path(f"/proc/{pid}/cmdline")
    if recorded.parent.parent.joinpath("self").exists():
        try:
            return recorded.read_bytes().decode("utf-8", "replace").rstrip("\0").split("\0")
        except OSError:
            return []
    done = subprocess.run(["ps", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.split()


def is_daemon(words: Sequence[str], kind: str) -> bool:
    """Return whether the words are those of `python -m triomq.broker ...` or of an installed `mqbroker`."""
    names = [Path(word).name for word in words]
    if f"mq{kind}" in names[:2]:
        return True
    return any(option == "-m" and module == _MODULES[kind] for option, module in pairwise(words))


if __name__ == "__main__":
    sys.exit(main())
