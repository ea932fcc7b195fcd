"""The help texts of the commands, as they print them."""

from __future__ import annotations

import os
import subprocess
import sys

MODULES = {
    "mqbroker": ("triomq.broker", "-h"),
    "mqnamesrv": ("triomq.namesrv", "-h"),
    "python -m triomq.store": ("triomq.store", "--help"),
    "mqhealth": ("triomq.daemon.health", "--help"),
    "triomq dev": ("triomq.broker.lifecycle.dev", "--help"),
    "bin/quickstart": ("triomq.broker.lifecycle.quickstart", "--help"),
}


def command_help() -> str:
    """Return a section for each command that has options."""
    return "\n\n".join(
        f"### {name}\n\n```text\n{_printed(module, option)}\n```" for name, (module, option) in MODULES.items()
    )


def _printed(module: str, option: str) -> str:
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(
        [sys.executable, "-m", module, option], capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    return done.stdout.rstrip()
