"""A command of the table: its options, its help as RocketMQ prints it (commons-cli's HelpFormatter), and reading of a
command line (commons-cli's PosixParser).

Nothing here imports more than Python's own start does: `mqadmin help` and completion stay as fast as Python.
"""

from __future__ import annotations

from triomq.admin.errors import UsageError
from triomq.admin.table import ALIASES, BROKER_OR_CLUSTER, LATER, ROWS, Row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from triomq.admin.run import Run

HELP_WIDTH = 110

# What every command accepts, before or after its name: name, name of its value or "" without one, help. The value of
# one in brackets may be left out.
GENERAL_OPTIONS = (
    ("output", "FORMAT", "table, json or jsonl"),
    ("fields", "A,B", "only these columns"),
    ("timeout", "SECONDS", "how long to wait for a response"),
    ("watch", "[SECONDS]", "run it again and again"),
    ("dry-run", "", "show what it would change, and change nothing"),
    ("yes", "", "change it without a question"),
    ("context", "NAME", "the cluster that `mqadmin context add` has given this name"),
    ("no-header", "", "a table without the names of its columns"),
    ("verbose", "", "where an error came from"),
)

HELP_OPTION = ("h", "help", False, False, "Print help")
NAME_SERVERS_OPTION = (
    "n",
    "namesrvAddr",
    True,
    False,
    "Name server address list, eg: '192.168.0.1:9876;192.168.0.2:9876'",
)


class Option:
    """`letter` is its short name, `name` its long one."""

    __slots__ = ("help", "is_required", "letter", "name", "takes_value")

    def __init__(self, letter: str, name: str, takes_value: bool, is_required: bool, text: str) -> None:
        self.letter = letter
        self.name = name
        self.takes_value = takes_value
        self.is_required = is_required
        self.help = text


class Command:
    """`one_of` are the letters of which exactly one must be given, or empty."""

    __slots__ = ("_later", "_shown", "help", "name", "one_of", "options")

    def __init__(self, row: Row) -> None:
        self.name, self.help, *options = row
        self.one_of = "bc" if self.name in BROKER_OR_CLUSTER else ""
        every = [Option(*option) for option in (*options, HELP_OPTION)]
        if not any(option.letter == "n" for option in every):
            every.append(Option(*NAME_SERVERS_OPTION))
        self._shown = sorted(every, key=lambda option: option.letter.lower())
        self._later = [Option(*option) for option in LATER.get(self.name, ())]
        self.options = self._shown + self._later

    def function(self) -> Callable[[Run], None]:
        """Return what runs it."""
        from triomq.admin.commands import function_of

        return function_of(self.name)

    # -- help --------------------------------------------------------------------------------------------------------

    def usage(self) -> str:
        """Return the whole help text, without its last newline: that of RocketMQ, and what RocketMQ 5 has added."""
        parts = []
        for option in self._shown:
            text = f"-{option.letter} <arg>" if option.takes_value else f"-{option.letter}"
            if option.letter in self.one_of:
                # The group stands in place of its first option; each further one leaves a blank.
                first = option.letter == self.one_of[0]
                text = " | ".join([f"-{letter} <arg>" for letter in self.one_of]) if first else ""
            elif not option.is_required:
                text = f"[{text}]"
            parts.append(text)
        lines = _wrapped(f"usage: mqadmin {self.name} {' '.join(parts)}", len("usage: "))
        lines += _described(self._shown)
        if self._later:
            lines += ["", "of RocketMQ 5:", *_described(self._later)]
        return "\n".join(lines)

    # -- reading a command line --------------------------------------------------------------------------------------

    def parse(self, words: list[str]) -> dict[str, str]:
        """Return the values by letter; an option without a value has an empty one. Raises UsageError for words that do
        not fit this command, and for a missing required option.
        """
        values: dict[str, str] = {}
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word == "--":
                break
            if word.startswith("--"):
                self._read_long(word[2:], rest, values)
            elif word.startswith("-") and len(word) > 1:
                self._read_letters(word[1:], rest, values)
        if "h" not in values:
            self._check_required(values)
        return values

    def _read_long(self, text: str, rest: list[str], values: dict[str, str]) -> None:
        name, separator, value = text.partition("=")
        options = [option for option in self.options if option.name.strip() == name]
        if not options:
            options = [option for option in self.options if name and option.name.startswith(name)]
        if len(options) != 1:
            raise UsageError(f"{'unrecognized' if not options else 'ambiguous'} option: --{name}")
        [option] = options
        if not option.takes_value:
            if separator:
                raise UsageError(f"the option --{name} takes no value")
            values[option.letter] = ""
        else:
            values[option.letter] = value if separator else _next_value(rest, f"--{name}")

    def _read_letters(self, text: str, rest: list[str], values: dict[str, str]) -> None:
        for index, letter in enumerate(text):
            option = next((option for option in self.options if option.letter == letter), None)
            if option is None:
                raise UsageError(f"unrecognized option: -{text}")
            if option.takes_value:
                attached = text[index + 1 :].removeprefix("=")
                values[letter] = attached or _next_value(rest, f"-{letter}")
                return
            values[letter] = ""

    def _check_required(self, values: dict[str, str]) -> None:
        missing = [f"-{option.letter}" for option in self.options if option.is_required and option.letter not in values]
        if missing:
            raise UsageError(f"missing required option: {', '.join(missing)}")
        if self.one_of and len([letter for letter in self.one_of if letter in values]) != 1:
            raise UsageError(f"exactly one of {' and '.join([f'-{letter}' for letter in self.one_of])} must be given")


def find_command(name: str) -> Command | None:
    """Return the command with this name or alias, in any case."""
    wanted = {alias.lower(): each.lower() for alias, each in ALIASES.items()}.get(name.lower(), name.lower())
    return next((Command(row) for row in ROWS if row[0].lower() == wanted), None)


def overview() -> str:
    """Return what `mqadmin` prints without a command, without the last newline."""
    lines = ["The most commonly used mqadmin commands are:"]
    lines += [f"   {row[0]:<20} {row[1]}" for row in ROWS]
    return "\n".join([*lines, "", "See 'mqadmin help <command>' for more information on a specific command."])


def _next_value(rest: list[str], option: str) -> str:
    if not rest:
        raise UsageError(f"the option {option} needs a value")
    return rest.pop(0)


def _described(options: list[Option]) -> list[str]:
    heads = [f" -{option.letter},--{option.name}{' <arg>' if option.takes_value else ''}" for option in options]
    column = max([len(head) for head in heads]) + 3
    lines = []
    for head, option in zip(heads, options, strict=True):
        lines += _wrapped(head.ljust(column) + option.help, column)
    return lines


def _wrapped(text: str, indent: int) -> list[str]:
    """Return lines of at most HELP_WIDTH characters; all but the first begin with `indent` blanks."""
    lines = []
    while len(text) > HELP_WIDTH:
        end = text.rfind(" ", 0, HELP_WIDTH + 1)
        if end <= indent:
            break
        lines.append(text[:end].rstrip())
        text = " " * indent + text[end:].strip()
    return [*lines, text.rstrip()]
