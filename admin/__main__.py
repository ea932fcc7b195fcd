"""mqadmin COMMAND [options]: see `triomq.admin`.

Besides its own options every command accepts --output table|json|jsonl, --fields A,B, --no-header, --timeout SECONDS,
--watch [SECONDS], --dry-run, --yes, --context NAME and --verbose, before or after its name, and so do -n and -h. With
MQADMIN_EXIT_ZERO=1 the exit status is that of RocketMQ's mqadmin: 0 even if a command failed, 1 for an invalid command
line.
"""

from __future__ import annotations

import io
import os
import sys

from triomq.admin.command import GENERAL_OPTIONS, Command, find_command, overview
from triomq.admin.errors import AdminError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triomq.admin.verb import Verb

INTERRUPTED = 130

# Whether a value follows; that of --watch only if it is a number.
GLOBAL_OPTIONS = {name: value != "" and value[0] != "[" for name, value, _ in GENERAL_OPTIONS}


def main(arguments: list[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    as_java = os.environ.get("MQADMIN_EXIT_ZERO") == "1"
    prepare_streams()
    try:
        status = _status_of(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        from triomq.admin.output import lead_nowhere

        for descriptor in (1, 2):  # the reader of our output has closed it
            lead_nowhere(descriptor)
        return 0
    if as_java:
        return 1 if status == UsageError.exit_status else 0
    return status


def prepare_streams() -> None:
    """Let no stream end a command: one that the caller closed (`>&-`) leads nowhere, and a character that the encoding
    of the terminal lacks is a question mark, as it is with Java."""
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _status_of(words: list[str]) -> int:
    settings: dict[str, str] = {}
    try:
        _check_text(words)
        settings, words = split_global_options(words)
        return _run(words, settings)
    except UsageError as error:
        sys.stderr.write(f"mqadmin: {error}\n")
        return error.exit_status
    except AdminError as error:
        if "verbose" in settings:
            raise
        sys.stderr.write(f"mqadmin: {error}\n")
        return error.exit_status


def _check_text(words: list[str]) -> None:
    """Raise UsageError for bytes that are not text in the encoding of the terminal: no name may have them."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{word!r} is not text in the encoding of this terminal") from None


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
            if separator and name != "watch":
                raise UsageError(f"the option --{name} takes no value")
            settings[name] = value
            if name == "watch" and not separator and rest and rest[0].replace(".", "", 1).isdecimal():
                settings[name] = rest.pop(0)
        elif separator:
            settings[name] = value
        elif rest:
            settings[name] = rest.pop(0)
        else:
            raise UsageError(f"the option --{name} needs a value")
    return settings, others


def split_leading_options(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the options of every program (-n and -h) before the name of the command, and the words from its name on.
    Raises UsageError for any other option there."""
    rest = list(words)
    leading: list[str] = []
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        head, separator, _ = word.partition("=")
        if head in ("-n", "--namesrvAddr") and not separator:
            if not rest:
                raise UsageError(f"the option {word} needs a value")
            leading += [word, rest.pop(0)]
        elif word in ("-h", "--help") or head == "--namesrvAddr" or (word.startswith("-n") and word[1:2] != "-"):
            leading.append(word)
        else:
            raise UsageError(f"{word} cannot stand before the name of a command: mqadmin help lists the commands")
    return leading, rest


def _run(words: list[str], settings: dict[str, str]) -> int:
    if words == ["--version"]:
        from triomq import __version__

        _say(f"mqadmin (TrioMQ) {__version__}, compatible with RocketMQ 4.9.7")
        return 0
    leading, words = split_leading_options(words)
    if not words or words == ["help"]:
        from triomq.admin.verb import verb_overview

        _say(overview() + "\n" + verb_overview())
        return 0
    if words[0] == "__complete":
        from triomq.admin.verbs.completion import complete_names

        _say("\n".join(complete_names(" ".join(words[1:]))))
        return 0
    is_help = words[0] == "help"
    if is_help:
        words = words[1:]
    found = _find(words)
    if found is None:
        return _unknown(words)
    program, rest = found
    if is_help:
        _say(program.usage())
        return 0
    try:
        options = program.parse([*leading, *rest])
    except UsageError as error:
        _say(program.usage())
        sys.stderr.write(f"mqadmin {program.name}: {error}\n")
        return error.exit_status
    if "h" in options:
        _say(program.usage())
        return 0
    return _execute(program, options, settings)


def _find(words: list[str]) -> tuple[Command | Verb, list[str]] | None:
    command = find_command(words[0])
    if command is not None:
        return command, words[1:]
    from triomq.admin.verb import find_verb

    return find_verb(words)


def _unknown(words: list[str]) -> int:
    from triomq.admin.verb import nearest_name, verbs_of

    lines = verbs_of(words[0])
    _say("\n".join([f"{words[0]} needs one more word:", *lines]) if lines else f"The sub command {words[0]} not exist.")
    near = nearest_name(words)
    if near:
        sys.stderr.write(f"mqadmin: did you mean {near}?\n")
    return UsageError.exit_status


def _execute(program: Command | Verb, options: dict[str, str], settings: dict[str, str]) -> int:
    from triomq.admin.execute import environment_settings, execute
    from triomq.admin.run import ShowHelp

    try:
        return execute(program, options, {**environment_settings(), **settings})
    except ShowHelp:
        _say(program.usage())
        return UsageError.exit_status
    except AdminError as error:
        if "verbose" in settings:
            raise
        sys.stderr.write(f"mqadmin {program.name}: {error}\n")
        return error.exit_status


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
