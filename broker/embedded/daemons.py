"""What a LocalCluster starts: a NameServer and brokers. Importing this module imports both."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import trio

from triomq.broker.configuration import Configuration
from triomq.broker.controller import BrokerController
from triomq.broker.embedded.agenda import seconds_to_next
from triomq.broker.extensions import Extensions
from triomq.daemon.clock import system_now_ms
from triomq.namesrv.config import NamesrvSettings
from triomq.namesrv.controller import serve
from triomq.protocol.clock import NowMs, OnJump
from triomq.remoting.config import ServerSettings
from triomq.store.disk.files import Files


async def start_name_server(nursery: trio.Nursery, directory: Path, port: int, on_jump: OnJump | None) -> int:
    """Return its port; 0 chooses a free one."""
    settings = NamesrvSettings(kv_config_path=str(directory / "kvConfig.json"))
    server = ServerSettings(listen_port=port, bind_address="127.0.0.1")
    bound: int = await nursery.start(partial(serve, settings, server, on_jump=on_jump))
    return bound


async def start_broker(
    nursery: trio.Nursery,
    name: str,
    values: Mapping[str, str],
    now_ms: NowMs | None,
    files: Files,
    extensions: Extensions | None,
    on_jump: OnJump | None,
) -> BrokerController:
    """Return the controller of a broker that has started. Its clock is the system's by default."""
    controller = BrokerController(
        Configuration.from_values(values, source=f"LocalCluster, {name}"),
        now_ms=now_ms or system_now_ms,
        files=files,
        extensions=extensions,
        on_jump=on_jump,
    )
    await nursery.start(controller.serve)
    return controller


def seconds_to_next_of(controllers: list[BrokerController]) -> float:
    """Return the seconds until one of the brokers has something to do; infinity if none has."""
    return min(seconds_to_next(one.serving) for one in controllers if one.serving is not None)
