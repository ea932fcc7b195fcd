"""Options of mqbroker and mqnamesrv. Those with a letter are RocketMQ's (ServerUtil, BrokerStartup, NamesrvStartup).

Short options may be joined (-pc FILE). Words that are not options cause a warning and are ignored. Help and version go
to stdout and end with exit code 0; an unknown option prints the help and ends with 1.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import structlog
from msgspec import Struct

from triomq.daemon.configuration import ConfigurationLayers
from triomq.daemon.errors import ExitCode
from triomq.daemon.version import version_text
from triomq.protocol.settings import to_text

log = structlog.get_logger("triomq.daemon.command_line")


class Option(Struct, frozen=True):
    """One option. `letter` is empty for options that have a long name only."""

    letter: str
    name: str
    takes_value: bool
    meaning: str


OPTIONS: tuple[Option, ...] = (
    Option("c", "configFile", True, "configuration file: Java properties, or YAML when named .yml or .yaml"),
    Option("h", "help", False, "print this help"),
    Option("m", "printImportantConfig", False, "print the important settings and end"),
    Option("n", "namesrvAddr", True, "NameServer addresses, such as '192.168.0.1:9876;192.168.0.2:9876'"),
    Option("p", "printConfigItem", False, "print all settings and end"),
    Option("", "explain", False, "print all settings (with -m the important ones) and what each means, and end"),
    Option("", "own", False, "--explain, of the settings that RocketMQ does not have only"),
    Option("", "check", False, "check the configuration and the directories it names, start nothing, and end"),
    Option("", "version", False, "print the version and end"),
)


class CommandLine(Struct, frozen=True):
    """The parsed options. ignored: words that are not options."""

    config_file: Path | None = None
    namesrv_addr: str | None = None
    print_all: bool = False
    print_important: bool = False
    explain: bool = False
    own: bool = False
    check: bool = False
    ignored: tuple[str, ...] = ()

    @property
    def prints(self) -> bool:
        """Whether to print the settings instead of running."""
        return self.print_all or self.print_important or self.explain


def options_of(letters: str) -> list[Option]:
    """Return the options of a program whose option letters are `letters`, such as "chnp"."""
    return [option for option in OPTIONS if option.letter in letters]


def parse_command_line(program: str, arguments: Sequence[str], *, letters: str) -> CommandLine:
    """Parse a command line. `letters`: the known options ("chnp"). Help, version and errors raise SystemExit."""
    from getopt import GetoptError, gnu_getopt

    options = options_of(letters)
    short = "".join(option.letter + (":" if option.takes_value else "") for option in options if option.letter)
    long = [option.name + ("=" if option.takes_value else "") for option in options]
    try:
        given, ignored = gnu_getopt(list(arguments), short, long)
    except GetoptError as error:
        print(f"{program}: {error}\n{usage(program, letters)}", file=sys.stderr)  # noqa: T201
        raise SystemExit(ExitCode.USAGE) from None
    names = {f"-{option.letter}": option.name for option in options}
    values = {names.get(option, option.lstrip("-")): value for option, value in given}
    if "help" in values:
        print(usage(program, letters))  # noqa: T201
        raise SystemExit(ExitCode.STOPPED)
    if "version" in values:
        print(version_text(program))  # noqa: T201
        raise SystemExit(ExitCode.STOPPED)
    return CommandLine(
        config_file=Path(values["configFile"]) if "configFile" in values else None,
        namesrv_addr=values.get("namesrvAddr"),
        print_all="printConfigItem" in values,
        print_important="printImportantConfig" in values,
        explain="explain" in values or "own" in values,
        own="own" in values,
        check="check" in values,
        ignored=tuple(ignored),
    )


def usage(program: str, letters: str) -> str:
    """Return the help text: one line that shows all options, then one line per option."""
    options = options_of(letters)
    words, names = [], []
    for option in options:
        argument = " <arg>" if option.takes_value else ""
        flag = f"-{option.letter}" if option.letter else f"--{option.name}"
        words.append(f"[{flag}{argument}]")
        names.append((f" {flag},--{option.name}" if option.letter else f"    {flag}") + argument)
    width = max(map(len, names)) + 4
    lines = [f"{name:<{width}}{option.meaning}" for name, option in zip(names, options, strict=True)]
    return "\n".join([f"usage: {program} {' '.join(words)}", *lines])


def warn_of_ignored_words(options: CommandLine) -> None:
    """Log a warning for words that are not options. The usual cause is a missing -c or a missing quote."""
    if options.ignored:
        log.warning("words ignored: they are not options", words=" ".join(options.ignored))


def listing(options: CommandLine, records: Sequence[Any], layers: ConfigurationLayers) -> str:
    """Return what -p, -m and --explain print."""
    important_only = options.print_important and not options.print_all
    if options.explain:
        from triomq.daemon.settings_reference import explained

        return explained(records, layers, important_only=important_only, own_only=options.own)
    return settings_listing(records, important_only=important_only)


def settings_listing(records: Iterable[Any], *, important_only: bool = False) -> str:
    """Return what -p and -m print: key=value lines, record by record. Unset values are empty."""
    lines: list[str] = []
    for record in records:
        lines += [f"{key}={text}" for key, text in to_text(record, important_only=important_only, null="").items()]
    return "".join(line + "\n" for line in lines)
