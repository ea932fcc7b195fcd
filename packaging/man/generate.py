#!/usr/bin/env python3
"""Write the manual pages: packaging/man/generate.py DIRECTORY

Options come from the tables behind -h, settings from their declarations, so that pages, help and code say the same. The
pages are made when a package is built and are not kept in the source tree.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from triomq import __version__
from triomq.admin.command import Command
from triomq.admin.table import ROWS as ADMIN_COMMANDS
from triomq.admin.verb import Verb
from triomq.admin.verb_table import VERBS as ADMIN_VERBS
from triomq.broker.configuration import Configuration
from triomq.broker.settings.ha_tls import HaTlsSettings
from triomq.client.app.run import parser as application_parser
from triomq.daemon.command_line import options_of
from triomq.daemon.health import parser as health_parser
from triomq.daemon.settings_reference import facts
from triomq.daemon.shutdown import HELP as SHUTDOWN_HELP
from triomq.namesrv.config import NamesrvSettings
from triomq.protocol.settings import declarations
from triomq.remoting.config import ServerSettings
from triomq.remoting.member_tls import MemberTlsSettings
from triomq.remoting.tls import TlsSettings
from triomq.spark.jobs.main import parser as pipeline_parser

BROKER_LETTERS, NAMESRV_LETTERS = "chmnp", "chnp"

SIGNALS = (
    ("SIGTERM, SIGINT", "Stop. What was accepted is finished and stored first; further signals change nothing."),
    ("SIGHUP", "Reopen the log files, and apply what may change at run time from the configuration file."),
)
EXIT_CODES = (
    ("0", "stopped as asked"),
    ("1", "wrong options"),
    ("3", "asked to stop, and ended by force after the deadline"),
    ("253", "configuration or data that it does not start with"),
    ("255", "could not start, or failed while running"),
)
ADMIN_EXIT_CODES = (
    ("0", "done"),
    ("1", "failed"),
    ("2", "wrong words on the command line"),
    ("3", "the topic, group, broker or message does not exist"),
    ("4", "a NameServer or broker cannot be reached, or did not respond in time"),
    ("5", "not allowed"),
    ("6", "partly done: the message names who refused"),
    ("130", "interrupted"),
)
VARIABLES = (
    ("NAMESRV_ADDR", "NameServers, where neither an option nor the file names any"),
    ("ROCKETMQ_HOME", "directory with conf/"),
    ("JAVA_OPT, JAVA_OPT_EXT", "their -Dname=value parts count as RocketMQ's system properties"),
    ("TRIOMQ_LOG_DIR", "directory of the log files, by default ~/logs/rocketmqlogs; - stands for standard error"),
    ("TRIOMQ_LOG_LEVEL", "debug, info (default), warning or error"),
    ("NOTIFY_SOCKET, WATCHDOG_USEC", "set by systemd for services of Type=notify"),
)


def escaped(text: str) -> str:
    """Text that roff prints as it is."""
    lines = text.replace("\\", "\\e").replace("-", "\\-").split("\n")
    return "\n".join("\\&" + line if line[:1] in (".", "'") else line for line in lines)


def titled(name: str, section: int, summary: str) -> str:
    return (
        f'.TH {name.upper()} {section} "" "TrioMQ {__version__}" "TrioMQ manual"\n'
        f".SH NAME\n{escaped(name)} \\- {escaped(summary)}\n"
    )


def listed(title: str, entries: Sequence[tuple[str, str]]) -> str:
    body = "".join(f".TP\n.B {escaped(term)}\n{escaped(meaning)}\n" for term, meaning in entries)
    return f".SH {title}\n{body}"


def daemon_page(program: str, summary: str, description: str, letters: str) -> str:
    options = options_of(letters)
    words = " ".join(f"[\\-{option.letter}{' FILE' * (option.letter == 'c')}]" for option in options if option.letter)
    entries = []
    for option in options:
        names = f"-{option.letter}, --{option.name}" if option.letter else f"--{option.name}"
        entries.append((names + " ARG" * option.takes_value, option.meaning))
    return "".join(
        (
            titled(program, 8, summary),
            f".SH SYNOPSIS\n.B {program}\n{words}\n",
            f".SH DESCRIPTION\n{escaped(description)}\n",
            listed("OPTIONS", entries),
            listed("SIGNALS", SIGNALS),
            listed("ENVIRONMENT", VARIABLES),
            listed("EXIT STATUS", EXIT_CODES),
            f".SH SEE ALSO\n.BR {program}.conf (5),\n.BR mqshutdown (8)\n",
        )
    )


def settings_page(program: str, records: Sequence[type]) -> str:
    """All keys in alphabetical order; those that are accepted and ignored in one list at the end."""
    every = {one.key: one for record in records for one in declarations(record)}
    used = [(key, every[key]) for key in sorted(every, key=str.lower) if not every[key].ignored]
    entries = [(key, "; ".join((one.meaning, *facts(one)))) for key, one in used]
    ignored = ", ".join(key for key in sorted(every, key=str.lower) if every[key].ignored)
    return "".join(
        (
            titled(f"{program}.conf", 5, f"configuration file of {program}"),
            ".SH DESCRIPTION\n",
            escaped("A Java properties file (key=value), or YAML when its name ends in .yml or .yaml. ")
            + escaped(f"`{program} --explain` prints every setting with its present value.\n"),
            listed("SETTINGS", entries),
            ".SH ACCEPTED AND IGNORED\n" + escaped(f"Keys of RocketMQ without effect: {ignored}.\n") * bool(ignored),
            f".SH SEE ALSO\n.BR {program} (8)\n",
        )
    )


def shutdown_page() -> str:
    usage, *lines = SHUTDOWN_HELP.splitlines()
    entries = [tuple(line.strip().split(maxsplit=1)) for line in lines]
    return "".join(
        (
            titled("mqshutdown", 8, "ask running brokers or NameServers to stop"),
            f".SH SYNOPSIS\n.B {escaped(usage.removeprefix('usage: '))}\n",
            ".SH DESCRIPTION\nSends SIGTERM to every daemon of a kind that the account started, and does not wait for "
            "their end.\n",
            listed("ARGUMENTS", [(term, meaning) for term, meaning in entries]),
            listed("EXIT STATUS", (("0", "at least one was asked"), ("1", "wrong arguments"), ("255", "none runs"))),
            ".SH SEE ALSO\n.BR mqbroker (8),\n.BR mqnamesrv (8)\n",
        )
    )


def options_of_parser(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            continue
        value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
        names = f"{', '.join(action.option_strings)} {value}".strip()
        yield names, (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")


def health_page() -> str:
    parser = health_parser()
    return "".join(
        (
            titled("mqhealth", 8, "check that a broker or a NameServer responds"),
            ".SH SYNOPSIS\n.B mqhealth\n[options] broker | namesrv ADDRESS\n",
            ".SH DESCRIPTION\nSends one request of the protocol and waits for its response.\n",
            listed("OPTIONS", list(options_of_parser(parser))),
            listed("EXIT STATUS", (("0", "the daemon responds"), ("1", "it does not, or wrong arguments"))),
        )
    )


def sections_of_jobs(parser: argparse.ArgumentParser) -> str:
    """A section for each word that the program takes first, with its options."""
    jobs = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    summaries = {choice.dest: choice.help or "" for choice in jobs._choices_actions}
    sections = []
    for name, job in jobs.choices.items():
        body = "".join(f".TP\n.B {escaped(term)}\n{escaped(text)}\n" for term, text in options_of_parser(job))
        sections.append(f".SH {name.upper()}\n{escaped(summaries[name])}\n{body}")
    return "".join(sections)


def pipeline_page() -> str:
    parser = pipeline_parser()
    codes = (("0", "done"), ("1", "done, and something is wrong or missing"), ("2", "not done, or wrong arguments"))
    return "".join(
        (
            titled("mqpipeline", 1, "jobs over RocketMQ topics and store directories"),
            ".SH SYNOPSIS\n.B mqpipeline\nNAME [options]\n",
            f".SH DESCRIPTION\n{escaped(parser.description or '')}\n"
            "All jobs but copy and table require Java 17 and the extra `spark`.\n",
            sections_of_jobs(parser),
            listed("EXIT STATUS", codes),
        )
    )


def application_page() -> str:
    parser = application_parser()
    codes = (("0", "stopped as asked"), ("1", "no such application, or it could not start"), ("2", "wrong arguments"))
    return "".join(
        (
            titled("triomq", 1, "run an application of the Python client"),
            ".SH SYNOPSIS\n.B triomq\nrun MODULE:NAME [options]\n",
            f".SH DESCRIPTION\n{escaped(parser.description or '')}\n",
            sections_of_jobs(parser),
            listed("EXIT STATUS", codes),
        )
    )


def admin_page() -> str:
    """Every command with its options, as `mqadmin help COMMAND` prints them."""
    commands = [(row[0], row[1], Command(row).usage()) for row in ADMIN_COMMANDS]
    verbs = [(row[0], row[2], Verb(row).usage()) for row in ADMIN_VERBS]
    described = "".join(
        f".SS {escaped(name)}\n{escaped(summary) * (summary not in usage)}\n.PP\n.nf\n{escaped(usage)}\n.fi\n"
        for name, summary, usage in (*verbs, *commands)
    )
    return "".join(
        (
            titled("mqadmin", 1, "administer TrioMQ and Apache RocketMQ 4.9"),
            ".SH SYNOPSIS\n.B mqadmin\nCOMMAND [options]\n",
            ".SH DESCRIPTION\nHas the commands and options of RocketMQ's tool, prints what that one prints, and has "
            "commands of its own.\n",
            f".SH COMMANDS\n{described}",
            listed("EXIT STATUS", ADMIN_EXIT_CODES),
        )
    )


def pages() -> dict[str, str]:
    """File name -> text of every manual page."""
    broker_records = [type(record) for record in Configuration().records()]
    return {
        "mqbroker.8": daemon_page(
            "mqbroker", "TrioMQ broker, compatible with Apache RocketMQ 4.9", BROKER_DESCRIPTION, BROKER_LETTERS
        ),
        "mqnamesrv.8": daemon_page(
            "mqnamesrv", "TrioMQ NameServer, compatible with Apache RocketMQ 4.9", NAMESRV_DESCRIPTION, NAMESRV_LETTERS
        ),
        "mqshutdown.8": shutdown_page(),
        "mqhealth.8": health_page(),
        "mqadmin.1": admin_page(),
        "mqpipeline.1": pipeline_page(),
        "triomq.1": application_page(),
        "mqbroker.conf.5": settings_page("mqbroker", [*broker_records, TlsSettings, HaTlsSettings, MemberTlsSettings]),
        "mqnamesrv.conf.5": settings_page("mqnamesrv", [NamesrvSettings, ServerSettings, TlsSettings]),
    }


BROKER_DESCRIPTION = """\
Stores messages and serves producers and consumers on three ports: listenPort (10911), the fast port two below it, and
the replication port one above it. Runs in the foreground and prints one line when it accepts requests."""
NAMESRV_DESCRIPTION = """\
Tells clients which brokers have which topics. Listens on port 9876, runs in the foreground and prints one line when it
accepts requests."""


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print("usage: generate.py DIRECTORY", file=sys.stderr)
        return 1
    directory = Path(arguments[0])
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (directory / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
