"""mqadmin COMMAND [options]: see `triomq.admin`.

Besides its own options every command accepts --output table|json|jsonl, --no-header, --timeout SECONDS and --verbose,
before or after its name. With MQADMIN_EXIT_ZERO=1 the exit status is that of RocketMQ's mqadmin: 0 even if a command
failed, 1 for an invalid command line.
"""

from __future__ import annotations

import os
import sys

from triomq.admin.command import Command, find_command, overview
from triomq.admin.errors import AdminError, UsageError

INTERRUPTED = 130

GLOBAL_OPTIONS = {"output": True, "timeout": True, "no-header": False, "verbose": False}


def main(arguments: list[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_java = os.environ.get("MQADMIN_EXIT_ZERO") == "1"
    settings: dict[str, str] = {}
    try:
        settings, words = split_global_options(words)
        status = _run(words, settings)
    except UsageError as error:
        sys.stderr.write(f"mqadmin: {error}\n")
        status = error.exit_status
    except AdminError as error:
        if "verbose" in settings:
            raise
        sys.stderr.write(f"mqadmin {words[0] if words else ''}: {error}\n")
        status = error.exit_status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader of our output has closed it
        return 0
    if as_java:
        return 1 if status == UsageError.exit_status else 0
    return status


def split_global_options(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Return the options that every command accepts, and the other words."""
    settings: dict[str, str] = {}
    others: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        name, separator, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or name not in GLOBAL_OPTIONS:
            others.append(word)
        elif not GLOBAL_OPTIONS[name]:
            settings[name] = ""
        elif separator:
            settings[name] = value
        elif rest:
            settings[name] = rest.pop(0)
        else:
            raise UsageError(f"the option --{name} needs a value")
    return settings, others


def _run(words: list[str], settings: dict[str, str]) -> int:
    if not words:
        _say(overview())
        return 0
    if words[0] == "help":
        return _help(words[1:])
    command = find_command(words[0])
    if command is None:
        _say(f"The sub command {words[0]} not exist.")
        return UsageError.exit_status
    try:
        options = command.parse(words[1:])
    except UsageError as error:
        _say(command.usage())
        sys.stderr.write(f"mqadmin {command.name}: {error}\n")
        return error.exit_status
    if "h" in options:
        _say(command.usage())
        return 0
    return _execute(command, options, settings)


def _help(words: list[str]) -> int:
    if not words:
        _say(overview())
        return 0
    command = find_command(words[0])
    if command is None:
        _say(f"The sub command {words[0]} not exist.")
        return UsageError.exit_status
    _say(command.usage())
    return 0


def _execute(command: Command, options: dict[str, str], settings: dict[str, str]) -> int:
    from triomq.admin.commands import function_of
    from triomq.admin.output import FORMATS, TEXT, Output
    from triomq.admin.run import Run, ShowHelp
    from triomq.admin.session import TIMEOUT_SECONDS, Session, credentials_of_environment

    form = settings.get("output", TEXT)
    if form not in FORMATS:
        raise UsageError(f"--output must be one of {', '.join(FORMATS)}, not {form!r}")
    try:
        timeout_seconds = float(settings.get("timeout", TIMEOUT_SECONDS))
    except ValueError:
        raise UsageError(f"--timeout must be seconds, not {settings['timeout']!r}") from None
    if not 0 < timeout_seconds <= 3600:
        raise UsageError("--timeout must be between 0 and 3600 seconds")
    out = Output(sys.stdout, form, with_header="no-header" not in settings)
    name_servers = options.get("n") or os.environ.get("NAMESRV_ADDR", "")
    tls = os.environ.get("MQADMIN_TLS") == "1"
    with Session(
        name_servers, timeout_seconds=timeout_seconds, credentials=credentials_of_environment(), tls=tls
    ) as session:
        run = Run(session, options, out)
        try:
            function_of(command.name)(run)
        except ShowHelp:
            _say(command.usage())
            return UsageError.exit_status
        out.finish()
        run.finish()
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
