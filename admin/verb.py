"""A verb: a command that RocketMQ's mqadmin does not have. Its help, and reading of its command line.

Options are long, with a short letter for some; arguments have no dash. As `Command` it imports nothing but its table.
"""

from __future__ import annotations

from triomq.admin.command import GENERAL_OPTIONS
from triomq.admin.errors import UsageError
from triomq.admin.verb_table import VERBS, VerbRow

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from triomq.admin.run import Run

NAME_SERVERS = ("namesrvAddr", "n", "ADDRESSES", "the NameServers, HOST:PORT;HOST:PORT")
HELP = ("help", "h", "", "show this text")
NEAR = 0.75
"""The likeness (difflib's ratio) from which a name is suggested: one letter more or less in a word of three."""
SEPARATOR = "\0"  # between the values of a repeated option: no word of a command line has it


class Verb:
    """`needs_yes`: it destroys, and not even a script runs it without --yes. `is_local`: it asks no cluster. Values of
    a command line are found by the long name of an option, and by the name of an argument.
    """

    def __init__(self, row: VerbRow) -> None:
        self.name, arguments, self.help, options, notes = row
        self.arguments = arguments.split()
        self.needs_yes = "yes" in notes
        self.is_local = "local" in notes
        self.options = [*options, NAME_SERVERS, HELP]

    def function(self) -> Callable[[Run], None]:
        """Return what runs it."""
        from triomq.admin.verbs import function_of

        return function_of(self.name)

    def usage(self) -> str:
        """Return the whole help text, without its last newline."""
        heads = []
        for name, letter, value, _ in self.options:
            short = f"-{letter}, " if letter else "    "
            heads.append(f"  {short}--{name}{' ' + value.removesuffix('...') if value else ''}")
        general = [f"      --{name} {value}".rstrip() for name, value, _ in GENERAL_OPTIONS]
        column = max([len(head) for head in heads + general]) + 2
        lines = [" ".join(["usage: mqadmin", self.name, *self.arguments, "[options]"]), "", self.help, ""]
        for head, (_, _, value, text) in zip(heads, self.options, strict=True):
            lines.append(head.ljust(column) + text + (" (may be repeated)" if value.endswith("...") else ""))
        lines += ["", "Every command has:"]
        lines += [head.ljust(column) + text for head, (_, _, text) in zip(general, GENERAL_OPTIONS, strict=True)]
        return "\n".join(lines)

    def parse(self, words: list[str]) -> dict[str, str]:
        """Return the values by name. Raises UsageError for words that do not fit this verb."""
        values: dict[str, str] = {}
        free: list[str] = []
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if word == "--":
                free += rest
                break
            if word.startswith("-") and len(word) > 1 and not word[1:2].isdigit():
                self._read_option(word, rest, values)
            else:
                free.append(word)
        if "help" in values:
            return {"h": ""}
        self._place(free, values)
        if "namesrvAddr" in values:
            values["n"] = values["namesrvAddr"]
        return values

    def _read_option(self, word: str, rest: list[str], values: dict[str, str]) -> None:
        head, separator, text = word.partition("=")
        if word.startswith("--"):
            found = [option for option in self.options if option[0] == head[2:]]
            found = found or [option for option in self.options if len(head) > 2 and option[0].startswith(head[2:])]
        else:
            found = [option for option in self.options if option[1] and option[1] == word[1]]
            head = word[:2]
            separator = word[2:3]
            text = word[2:].removeprefix("=")
        if len(found) != 1:
            raise UsageError(f"{'unrecognized' if not found else 'ambiguous'} option: {head}")
        [(name, _, value, _)] = found
        if not value:
            if separator:
                raise UsageError(f"the option {head} takes no value")
            values[name] = ""
            return
        if not separator:
            if not rest:
                raise UsageError(f"the option {head} needs a value")
            text = rest.pop(0)
        is_repeated = value.endswith("...") and name in values
        values[name] = values[name] + SEPARATOR + text if is_repeated else text

    def _place(self, free: list[str], values: dict[str, str]) -> None:
        """Give the words without a dash to the arguments."""
        for argument in self.arguments:
            name = argument.strip("[].")
            if argument.endswith("...]"):
                if free:
                    values[name] = SEPARATOR.join(free)
                free = []
            elif free:
                values[name] = free.pop(0)
            elif not argument.startswith("["):
                raise UsageError(f"{name} is missing")
        if free:
            raise UsageError(f"unexpected: {' '.join(free)}")


def find_verb(words: list[str]) -> tuple[Verb, list[str]] | None:
    """Return the verb that the words begin with, and the other words."""
    for count in (2, 1):
        name = " ".join(words[:count])
        for row in VERBS:
            if row[0] == name and len(words) >= count:
                return Verb(row), words[count:]
    return None


def verbs_of(word: str) -> list[str]:
    """Return a line for each verb whose first word this is: `offsets show`, `offsets reset`."""
    return [f"   {row[0]:<20} {row[2]}" for row in VERBS if row[0].split(" ")[0] == word]


def nearest_name(words: list[str]) -> str:
    """Return the name of the command or verb that the first words are most like; empty if none is near."""
    from difflib import get_close_matches

    from triomq.admin.table import ALIASES, ROWS

    names = [*ALIASES, *(row[0] for row in ROWS)]
    names += [name for row in VERBS for name in (row[0], row[0].split(" ")[0])]
    by_case = {name.lower(): name for name in names}
    for count in (2, 1):
        found = get_close_matches(" ".join(words[:count]).lower(), by_case, 1, NEAR)
        if found and found[0] != words[0].lower():  # a first word alone is known, and needs the second one
            return by_case[found[0]]
    return ""


def verb_overview() -> str:
    """Return a line for each verb."""
    lines = ["", "Commands that RocketMQ's mqadmin does not have:"]
    return "\n".join([*lines, *[f"   {row[0]:<20} {row[2]}" for row in VERBS]])
