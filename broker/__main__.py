"""mqbroker: options, configuration, log, and then the controller until a signal comes (RocketMQ: BrokerStartup)."""

from __future__ import annotations

from triomq.daemon.deferred import defer, import_without

defer("asyncio", "ssl")  # before anything imports them
import_without("structlog", "better_exceptions", "colorama", "greenlet", "rich")

import os
import sys
from collections.abc import Sequence

import structlog
import trio

from triomq.broker import optional
from triomq.broker.configuration import GRPC_PORT, Configuration
from triomq.broker.controller import BrokerController
from triomq.broker.start_warnings import start_warnings
from triomq.daemon.clock import system_now_ms
from triomq.daemon.command_line import CommandLine, listing, parse_command_line, warn_of_ignored_words
from triomq.daemon.configuration import (
    ConfigurationLayers,
    check_namesrv_addresses,
    load_configuration,
    warn_of_keys_without_effect,
)
from triomq.daemon.deadline import Deadline
from triomq.daemon.environment import Environment, read_environment
from triomq.daemon.errors import ExitCode, StartError
from triomq.daemon.lines import open_missing_streams
from triomq.daemon.logs import BROKER_LOG_FILES, LogFiles, configure_logs, log_directory
from triomq.daemon.pid_file import pid_file
from triomq.daemon.run import report, report_check, run
from triomq.daemon.settings_file import SettingsFile
from triomq.protocol.settings import SettingError

log = structlog.get_logger("triomq.broker")

PROGRAM = "mqbroker"
STOP_DEADLINE_SECONDS = 30.0
DISK_DEADLINE_SECONDS = 15.0
"""How long a stop waits for the disk. Everything before takes at most 10 s."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the broker; return the exit code of the process."""
    options = parse_command_line(PROGRAM, sys.argv[1:] if arguments is None else arguments, letters="chmnp")
    open_missing_streams()
    environment = read_environment(os.environ)
    try:
        layers = _load(options, environment)
        configuration = Configuration.from_layers(layers)
        if options.prints:
            print(listing(options, configuration.listed_records(), layers), end="")  # noqa: T201
            return 0
        if configuration.broker.namesrv_addr:
            check_namesrv_addresses(configuration.broker.namesrv_addr, layers.source("namesrvAddr"))
        if options.check:
            configure_logs(environment, BROKER_LOG_FILES, to_files=False)
            _warn(options, layers, configuration)
            return report_check(PROGRAM, optional.configuration_check.configuration_problems(configuration))
        files = configure_logs(environment, BROKER_LOG_FILES, subdirectory=configuration.log_subdirectory)
    except (StartError, SettingError) as error:
        return report(PROGRAM, error)
    _warn(options, layers, configuration)
    try:
        return _run(environment, layers, configuration, files)
    finally:
        files.close()


def _run(
    environment: Environment, layers: ConfigurationLayers, configuration: Configuration, files: LogFiles
) -> ExitCode:
    """Run the broker until a signal ends it."""
    silent = f"the disk did not respond within {DISK_DEADLINE_SECONDS:g} s; ended as after a crash, a start recovers"
    deadline = Deadline(PROGRAM, DISK_DEADLINE_SECONDS, ExitCode.DISK_SILENT, silent)
    controller = BrokerController(configuration, now_ms=system_now_ms, disk_deadline=deadline)

    async def serve(*, task_status: trio.TaskStatus[str]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(controller.serve)
            task_status.started(controller.boot_line())

    settings_file = SettingsFile(layers, [type(record) for record in configuration.records()])

    async def reload() -> None:
        files.reopen()
        if controller.serving is not None:
            update = controller.serving.update
            await settings_file.reload(update.take, update.values)

    with pid_file(environment.run_directory, PROGRAM):
        hint = str(log_directory(environment) or "")
        return run(PROGRAM, serve, stop_deadline_seconds=STOP_DEADLINE_SECONDS, log_hint=hint, reload=reload)


def _warn(options: CommandLine, layers: ConfigurationLayers, configuration: Configuration) -> None:
    warn_of_ignored_words(options)
    warn_of_keys_without_effect(layers)
    for warning in start_warnings(configuration):
        log.warning(warning)


def _load(options: CommandLine, environment: Environment) -> ConfigurationLayers:
    overrides = {"namesrvAddr": options.namesrv_addr} if options.namesrv_addr is not None else {}
    return load_configuration(
        environment,
        file=options.config_file,
        overrides=overrides,
        defaults={
            "listenPort": "10911",
            "grpcServerPort": str(GRPC_PORT),
            "rocketmqHome": str(environment.rocketmq_home),
            "storePathRootDir": str(environment.user_home / "store"),
        },
    )


if __name__ == "__main__":
    sys.exit(main())
