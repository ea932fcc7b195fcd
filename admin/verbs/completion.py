"""completion bash, zsh, fish: a script that a shell loads. Commands and options are in the script; names of topics,
groups, clusters and brokers come from `mqadmin __complete KIND`, which has a short time limit and a cache.
"""

from __future__ import annotations

import os
import time

from triomq.admin.command import GENERAL_OPTIONS, Command
from triomq.admin.errors import AdminError, UsageError
from triomq.admin.table import ROWS
from triomq.admin.verb import Verb
from triomq.admin.verb_table import VERBS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triomq.admin.run import Run
    from triomq.admin.session import Session

CACHE_SECONDS = 1.0
LIMIT_SECONDS = 0.3
MAX_NAMES = 1000
# A shell evaluates the words that it completes; a name with other characters could be a command.
SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.%|")
GLOBAL = tuple([f"--{name}" for name, _, _ in GENERAL_OPTIONS])

# What the value of an option is, by its long name; the arguments of verbs, too.
KINDS = {
    "topic": "topics",
    "TOPIC": "topics",
    "groupName": "groups",
    "consumerGroup": "groups",
    "group": "groups",
    "GROUP": "groups",
    "srcGroup": "groups",
    "destGroup": "groups",
    "FROM": "groups",
    "TO": "groups",
    "clusterName": "clusters",
    "cluster": "clusters",
    "brokerName": "brokers",
    "messages": "topics",
    "context": "contexts",
}


def completion(run: Run) -> None:
    shells = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    shell = run.get("SHELL")
    if shell not in shells:
        raise UsageError(f"there are scripts for {', '.join(shells)}, not for {shell!r}")
    text = shells[shell]()
    run.out.text(text)
    run.out.item(shell=shell, script=text)


def _programs() -> list[tuple[str, list[str], str]]:
    """Return (name, options, kind of the first argument) of every command and verb."""
    found = []
    for row in ROWS:
        command = Command(row)
        options = [f"-{option.letter}" for option in command.options]
        options += [f"--{option.name}" for option in command.options if " " not in option.name]
        found.append((command.name, options, ""))
    for verb in [Verb(each) for each in VERBS]:
        options = [f"--{name}" for name, _, _, _ in verb.options]
        first = verb.arguments[0].strip("[].") if verb.arguments else ""
        found.append((verb.name, options, KINDS.get(first, "")))
    return found


def _kinds_of_options() -> dict[str, list[str]]:
    """Return the options, as they stand on a command line, whose values are names, by the kind of name."""
    found: dict[str, set[str]] = {}
    for row in ROWS:
        for letter, name, takes_value, _, _ in row[2:]:
            if takes_value and name in KINDS:
                found.setdefault(KINDS[name], set()).update((f"{row[0]}:-{letter}", f"{row[0]}:--{name}"))
    for verb in VERBS:
        for name, letter, value, _ in verb[3]:
            if value and name in KINDS:
                words = {f"{verb[0]}:--{name}"} | ({f"{verb[0]}:-{letter}"} if letter else set())
                found.setdefault(KINDS[name], set()).update(words)
    found["contexts"] = {"*:--context"}
    return {kind: sorted(words) for kind, words in sorted(found.items())}


def _bash() -> str:
    """Return a function that zsh runs, too, through its bashcompinit."""
    programs = _programs()
    firsts = " ".join(sorted({name.split(" ")[0] for name, _, _ in programs} | {"help"}))
    lines = ["_mqadmin() {", '    local word="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}"']
    lines += ['    local name="${COMP_WORDS[1]}" options="" kind="" place=2', "    COMPREPLY=()"]
    lines += [
        '    if [ "$COMP_CWORD" -eq 1 ]; then',
        f"        COMPREPLY=($(compgen -W '{firsts}' -- \"$word\"))",
        "        return",
        "    fi",
    ]
    seconds: dict[str, list[str]] = {}
    for name, _, _ in programs:
        if " " in name:
            seconds.setdefault(name.split(" ")[0], []).append(name.split(" ")[1])
    lines.append('    case "$name" in')
    for first, words in sorted(seconds.items()):
        lines.append(
            f"        {first}) if [ \"$COMP_CWORD\" -eq 2 ]; then COMPREPLY=($(compgen -W '{' '.join(words)}' "
            '-- "$word")); return; fi; name="$name ${COMP_WORDS[2]}"; place=3 ;;'
        )
    lines += [f"        help) COMPREPLY=($(compgen -W '{firsts}' -- \"$word\")); return ;;", "    esac"]
    lines.append('    case "$name" in')
    for name, options, first_kind in programs:
        arguments = f' [ "$COMP_CWORD" -eq "$place" ] && kind={first_kind};' if first_kind else ""
        lines.append(f'        "{name}") options="{" ".join(options)}";{arguments} ;;')
    lines += ["    esac", '    case "$name:$previous" in']
    for kind, words in _kinds_of_options().items():
        shown = "|".join([f'"{each}"' if not each.startswith("*") else each for each in words])
        lines.append(f"        {shown}) kind={kind} ;;")
    lines += [
        "        *:--output) COMPREPLY=($(compgen -W 'table json jsonl' -- \"$word\")); return ;;",
        "    esac",
        '    if [ -n "$kind" ] && [ "${word#-}" = "$word" ]; then',
        '        COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" __complete "$kind" 2>/dev/null)" -- "$word"))',
        "        return",
        "    fi",
        f'    COMPREPLY=($(compgen -W "$options {" ".join(GLOBAL)}" -- "$word"))',
        "}",
        "complete -F _mqadmin mqadmin",
    ]
    return "\n".join(lines) + "\n"


def _zsh() -> str:
    """Return a file for fpath. zsh runs it as a function at the first completion, which it must answer as well."""
    first = '[ "${funcstack[1]}" = _mqadmin ] && _bash_complete -F _mqadmin\n'
    return f"#compdef mqadmin\nautoload -U +X bashcompinit && bashcompinit\n{_bash()}{first}"


def _fish() -> str:
    programs = _programs()
    lines = ["complete -c mqadmin -f"]
    helps = {**{row[0]: row[1] for row in ROWS}, **{row[0].split(" ")[0]: row[2] for row in VERBS}}
    for name, text in sorted(helps.items()):
        quoted = text.replace("\\", "\\\\").replace("'", "\\'")
        lines.append(f"complete -c mqadmin -n __fish_use_subcommand -a {name} -d '{quoted}'")
    for name, options, first_kind in programs:
        first, _, second = name.partition(" ")
        seen = f"__fish_seen_subcommand_from {first}"
        if second:
            lines.append(f"complete -c mqadmin -n '{seen}; and test (count (commandline -opc)) -eq 2' -a {second}")
            seen += f"; and __fish_seen_subcommand_from {second}"
        for option in options:
            flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            lines.append(f"complete -c mqadmin -n '{seen}' {flag}")
        if first_kind:
            lines.append(f"complete -c mqadmin -n '{seen}' -a '(mqadmin __complete {first_kind} 2>/dev/null)'")
    for option in GLOBAL:
        value = {"--output": " -x -a 'table json jsonl'", "--fields": " -x", "--timeout": " -x"}.get(option, "")
        lines.append(f"complete -c mqadmin -l {option[2:]}{value}")
    for kind, words in _kinds_of_options().items():
        for each in words:
            name, _, option = each.partition(":")
            flag = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
            seen = "" if name == "*" else f"-n '__fish_seen_subcommand_from {name.split(' ')[0]}' "
            lines.append(f"complete -c mqadmin {seen}{flag} -x -a '(mqadmin __complete {kind} 2>/dev/null)'")
    return "\n".join(lines) + "\n"


# -- names -------------------------------------------------------------------------------------------------------------


def complete_names(kind: str) -> list[str]:
    """Return the names of a kind, or nothing: a shell that completes has no place for errors."""
    from triomq.admin.contexts import load, place_of
    from triomq.admin.session import Session, credentials_of_environment

    try:
        if kind == "contexts":
            return sorted(load()["contexts"])
        place = place_of("", "", credentials_of_environment())
        cache = _cache_path(kind, place.name_servers)
        names = _cached(cache)
        if names is None:
            with Session(
                place.name_servers,
                timeout_seconds=LIMIT_SECONDS,
                credentials=place.credentials,
                tls=place.tls,
                ca_file=place.ca_file,
            ) as session:
                names = _asked(session, kind)
            _remember(cache, names)
    except (AdminError, OSError):
        return []
    return [name for name in names if name and set(name) <= SAFE][:MAX_NAMES]


def _asked(session: Session, kind: str) -> list[str]:
    from triomq.admin.routes import DLQ_PREFIX, RETRY_PREFIX, all_topics

    if kind in ("topics", "groups"):
        topics = all_topics(session)
        if kind == "groups":
            return sorted([name.removeprefix(RETRY_PREFIX) for name in topics if name.startswith(RETRY_PREFIX)])
        return sorted([name for name in topics if not name.startswith((RETRY_PREFIX, DLQ_PREFIX))])
    table = {"clusters": "clusterAddrTable", "brokers": "brokerAddrTable"}.get(kind)
    return sorted(session.cluster_info().get(table, {})) if table else []


def _cache_path(kind: str, name_servers: str) -> str:
    from zlib import crc32

    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "triomq", f"{kind}-{crc32(name_servers.encode()):08x}")


def _cached(path: str) -> list[str] | None:
    try:
        with open(path, encoding="utf-8") as file:
            age = time.time() - os.fstat(file.fileno()).st_mtime
            return file.read(1 << 20).split("\n") if 0 <= age <= CACHE_SECONDS else None
    except OSError:
        return None


def _remember(path: str, names: list[str]) -> None:
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(names))
    except OSError:
        pass  # the next time asks again
