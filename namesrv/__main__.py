"""mqnamesrv: options, configuration, log, and then the controller until a signal comes (RocketMQ: NamesrvStartup)."""

from __future__ import annotations

from triomq.daemon.deferred import defer, import_without

defer("asyncio", "ssl")  # before anything imports them
import_without("structlog", "better_exceptions", "colorama", "greenlet", "rich")

import os
import sys
from collections.abc import Sequence
from functools import partial

import trio

from triomq.daemon.command_line import CommandLine, listing, parse_command_line, warn_of_ignored_words
from triomq.daemon.configuration import (
    ConfigurationLayers,
    check_namesrv_addresses,
    load_configuration,
    warn_of_keys_without_effect,
)
from triomq.daemon.environment import Environment, read_environment
from triomq.daemon.errors import ExitCode, StartError
from triomq.daemon.lines import open_missing_streams
from triomq.daemon.logs import NAMESRV_LOG_FILES, LogFiles, configure_logs, log_directory
from triomq.daemon.pid_file import pid_file
from triomq.daemon.run import report, report_check, run
from triomq.daemon.settings_file import SettingsFile
from triomq.namesrv.config import NamesrvSettings, bind_settings, namesrv_defaults
from triomq.namesrv.controller import serve
from triomq.namesrv.product_environment import DEFAULT_DOMAIN, DEFAULT_SUBGROUP, AddressServer
from triomq.namesrv.runtime_config import RuntimeConfig
from triomq.protocol.settings import SettingError
from triomq.remoting.config import ServerSettings
from triomq.remoting.tls import TlsSettings

PROGRAM = "mqnamesrv"
STOP_DEADLINE_SECONDS = 10.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the NameServer; return the exit code of the process."""
    options = parse_command_line(PROGRAM, sys.argv[1:] if arguments is None else arguments, letters="chnp")
    open_missing_streams()
    environment = read_environment(os.environ)
    try:
        layers = _load(options, environment)
        records = bind_settings(layers)
        layers.expect(TlsSettings)
        if records[0].namesrv_addr:
            check_namesrv_addresses(records[0].namesrv_addr, layers.source("namesrvAddr"))
        if options.prints:
            print(listing(options, records, layers), end="")  # noqa: T201
            return 0
        if options.check:
            from triomq.namesrv.configuration_check import configuration_problems

            configure_logs(environment, NAMESRV_LOG_FILES, to_files=False)
            _warn(options, layers)
            return report_check(PROGRAM, configuration_problems(*records, TlsSettings.from_values(layers.values)))
        files = configure_logs(environment, NAMESRV_LOG_FILES)
    except (StartError, SettingError) as error:
        return report(PROGRAM, error)
    _warn(options, layers)
    try:
        return _run(environment, layers, records, files)
    finally:
        files.close()


def _run(
    environment: Environment,
    layers: ConfigurationLayers,
    records: tuple[NamesrvSettings, ServerSettings],
    files: LogFiles,
) -> ExitCode:
    """Run the NameServer until a signal ends it."""
    config = RuntimeConfig(*records, extra=layers.unknown_values())
    settings_file = SettingsFile(layers, [type(record) for record in records])
    work = partial(
        serve,
        *records,
        config=config,
        address_server=AddressServer(
            layers.get("rocketmq.namesrv.domain") or DEFAULT_DOMAIN,
            layers.get("rocketmq.namesrv.domain.subgroup") or DEFAULT_SUBGROUP,
        ),
        tls=TlsSettings.from_values(layers.values),
    )
    serialize_type = (layers.get("rocketmq.serialize.type") or "JSON").upper()
    boot_line = f"The Name Server boot success. serializeType={serialize_type}"

    async def serve_process(*, task_status: trio.TaskStatus[str]) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(work)
            task_status.started(boot_line)

    async def reload() -> None:
        files.reopen()
        await settings_file.reload(config.take, config.values)

    with pid_file(environment.run_directory, PROGRAM):
        hint = str(log_directory(environment) or "")
        return run(PROGRAM, serve_process, stop_deadline_seconds=STOP_DEADLINE_SECONDS, log_hint=hint, reload=reload)


def _warn(options: CommandLine, layers: ConfigurationLayers) -> None:
    warn_of_ignored_words(options)
    warn_of_keys_without_effect(layers)


def _load(options: CommandLine, environment: Environment) -> ConfigurationLayers:
    overrides: dict[str, str] = {}
    if options.namesrv_addr is not None:
        overrides["namesrvAddr"] = options.namesrv_addr
    if options.config_file is not None:
        # As in RocketMQ, an administrator's changes go into the file the server was started with.
        overrides["configStorePath"] = str(options.config_file)
    return load_configuration(
        environment,
        file=options.config_file,
        overrides=overrides,
        defaults=namesrv_defaults(environment.user_home),
    )


if __name__ == "__main__":
    sys.exit(main())
