"""Options of mqbroker and mqnamesrv (RocketMQ: ServerUtil, BrokerStartup, NamesrvStartup).

    -c, --configFile FILE         configuration file
    -n, --namesrvAddr ADDRESSES   NameServer addresses
    -p, --printConfigItem         print all settings and end
    -m, --printImportantConfig    print the important settings and end (broker)
    -h, --help

Short options may be joined (-pc FILE); words that are not options are ignored with a warning. Help ends with exit
code 0 and goes to stdout; an unknown option prints the help and ends with 1.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from triomq.daemon.errors import ExitCode
from triomq.protocol.settings import to_text

log = structlog.get_logger("triomq.daemon.command_line")

_OPTIONS: tuple[tuple[str, str, bool, str], ...] = (
    ("c", "configFile", True, "configuration file: Java properties, or YAML when named .yml or .yaml"),
    ("h", "help", False, "print this help"),
    ("m", "printImportantConfig", False, "print the important settings and end"),
    ("n", "namesrvAddr", True, "NameServer addresses, such as '192.168.0.1:9876;192.168.0.2:9876'"),
    ("p", "printConfigItem", False, "print all settings and end"),
)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """What the options say. ignored: words that are no option."""

    config_file: Path | None = None
    namesrv_addr: str | None = None
    print_all: bool = False
    print_important: bool = False
    ignored: tuple[str, ...] = ()


def parse_command_line(program: str, arguments: Sequence[str], *, letters: str) -> CommandLine:
    """`letters`: the options this program has, such as "chnp". Raises SystemExit for -h and for wrong options."""
    from getopt import GetoptError, gnu_getopt

    options = [option for option in _OPTIONS if option[0] in letters]
    short = "".join(letter + (":" if takes_value else "") for letter, _, takes_value, _ in options)
    long = [name + ("=" if takes_value else "") for _, name, takes_value, _ in options]
    try:
        given, ignored = gnu_getopt(list(arguments), short, long)
    except GetoptError as error:
        print(f"{program}: {error}\n{usage(program, letters)}", file=sys.stderr)  # noqa: T201
        raise SystemExit(ExitCode.USAGE) from None
    by_name = {"--" + name: letter for letter, name, _, _ in options}
    values = {by_name.get(option, option[1:]): value for option, value in given}
    if "h" in values:
        print(usage(program, letters))  # noqa: T201
        raise SystemExit(ExitCode.STOPPED)
    return CommandLine(
        config_file=Path(values["c"]) if "c" in values else None,
        namesrv_addr=values.get("n"),
        print_all="p" in values,
        print_important="m" in values,
        ignored=tuple(ignored),
    )


def usage(program: str, letters: str) -> str:
    """The help text: one line that shows all options, then one line per option."""
    options = [option for option in _OPTIONS if option[0] in letters]
    words = " ".join(f"[-{letter} <arg>]" if takes_value else f"[-{letter}]" for letter, _, takes_value, _ in options)
    names = [
        f" -{letter},--{name}" + (" <arg>" if takes_value else "") for letter, name, takes_value, _ in options
    ]
    width = max(map(len, names)) + 4
    lines = [f"{name:<{width}}{meaning}" for name, (_, _, _, meaning) in zip(names, options, strict=True)]
    return "\n".join([f"usage: {program} {words}", *lines])


def warn_of_ignored_words(options: CommandLine) -> None:
    """A word that is no option is most often a forgotten -c or a quote that is missing."""
    if options.ignored:
        log.warning("words that are not options are ignored", words=" ".join(options.ignored))


def settings_listing(records: Iterable[Any], *, important_only: bool = False) -> str:
    """What -p and -m print: key=value lines, record after record, empty text for what is not set."""
    lines: list[str] = []
    for record in records:
        lines += [f"{key}={text}" for key, text in to_text(record, important_only=important_only, null="").items()]
    return "".join(line + "\n" for line in lines)
