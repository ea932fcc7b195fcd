"""Starts Apache RocketMQ 5 for tests of the client."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from apache5_peer import broker_command, namesrv_command
from client_cluster import Daemon


def start_namesrv(directory: Path, port: int) -> Daemon:
    return Daemon(*namesrv_command(directory, port))


def start_broker(directory: Path, port: int, name_server: str, settings: Sequence[str]) -> Daemon:
    """Start a broker with `settings`, each "key=value"."""
    pairs = dict(setting.split("=", 1) for setting in settings)
    return Daemon(*broker_command(directory, port, name_server, pairs))
