"""Execution of a command that was read from the command line: once, repeatedly (--watch), or only as a plan
(--dry-run, and the question before what destroys).
"""

from __future__ import annotations

import io
import os
import sys
import time
from contextlib import suppress

from triomq.admin.contexts import Place, place_of
from triomq.admin.errors import AdminError, UsageError
from triomq.admin.output import FORMATS, SILENT, TEXT, Output, warn
from triomq.admin.run import PlanEnds, Run, ShowHelp
from triomq.admin.session import TIMEOUT_SECONDS, Session, credentials_of_environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.admin.changes import PlanningSession
    from triomq.admin.command import Command
    from triomq.admin.verb import Verb

    Program = Command | Verb

MAX_SECONDS = 3600
WATCH_SECONDS = 2.0
CLEAR = "\x1b[H\x1b[2J"

# Commands of RocketMQ after which messages, offsets, accounts or settings are gone.
DESTROYING = frozenset(
    {
        "deleteTopic",
        "deleteSubGroup",
        "deleteKvConfig",
        "deleteAclConfig",
        "cloneGroupOffset",
        "resetOffsetByTime",
        "skipAccumulatedMessage",
        "cleanExpiredCQ",
        "deleteExpiredCommitLog",
        "cleanUnusedTopic",
    }
)


def execute(program: Program, options: dict[str, str], settings: dict[str, str]) -> int:
    """Return the exit status. Raises ShowHelp if a required option is missing."""
    timeout = _seconds(settings, "timeout", TIMEOUT_SECONDS)
    place = _place(program, options, settings)
    out = _output(program, settings, sys.stdout)
    if "watch" in settings:
        return _watch(program, options, settings, (place, timeout))
    is_plan = "dry-run" in settings
    if not is_plan and is_destroying(program) and "yes" not in settings:
        terminal = is_terminal()
        if not terminal and getattr(program, "needs_yes", False):
            _show_plan(plan_of(program, options, (place, timeout)), _output(program, {}, sys.stderr))
            raise UsageError("nothing was changed: --yes does this, --dry-run only shows it")
        if terminal:
            _confirm(plan_of(program, options, (place, timeout)))
    if is_plan:
        _show_plan(plan_of(program, options, (place, timeout)), out)
        return 0
    with _session(Session, place, timeout) as session:
        run = Run(session, options, out)
        run.has_consent = "yes" in settings
        return _run_once(program, run)


def _place(program: Program, options: dict[str, str], settings: dict[str, str]) -> Place:
    """Return where the command goes. One that asks no cluster works whatever the account and the contexts are."""
    if getattr(program, "is_local", False):
        return Place("", None, False, "")
    return place_of(options.get("n", ""), settings.get("context", ""), credentials_of_environment())


def _run_once(program: Program, run: Run) -> int:
    program.function()(run)
    run.out.finish()
    run.finish()
    return run.exit_status


def _session(kind: type[Session], place: Place, timeout_seconds: float) -> Session:
    return kind(
        place.name_servers,
        timeout_seconds=timeout_seconds,
        credentials=place.credentials,
        tls=place.tls,
        ca_file=place.ca_file,
    )


def _output(program: Program, settings: dict[str, str], stream: Any) -> Output:
    form = settings.get("output", TEXT)
    if form not in FORMATS:
        raise UsageError(f"--output must be one of {', '.join(FORMATS)}, not {form!r}")
    fields = [name for name in settings.get("fields", "").split(",") if name]
    if fields:
        from triomq.admin.shapes import PLAN, shape_of

        shape = PLAN if "dry-run" in settings else shape_of(program.name)
        known = [name.rstrip("?") for name in shape]
        for name in fields:
            if name not in known and "*" not in known:
                raise UsageError(f"{program.name} has no field {name!r}: it has {', '.join(known)}")
    return Output(stream, form, with_header="no-header" not in settings, fields=fields)


def _seconds(settings: dict[str, str], name: str, default: float) -> float:
    text = settings.get(name) or str(default)
    try:
        seconds = float(text)
    except ValueError:
        raise UsageError(f"--{name} must be seconds, not {text!r}") from None
    if not 0 < seconds <= MAX_SECONDS:
        raise UsageError(f"--{name} must be between 0 and {MAX_SECONDS} seconds")
    return seconds


# -- plans -------------------------------------------------------------------------------------------------------------


def is_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def is_destroying(program: Program) -> bool:
    return program.name in DESTROYING or getattr(program, "needs_yes", False)


def plan_of(program: Program, options: dict[str, str], place: tuple[Place, float]) -> list[dict[str, Any]]:
    """Return the steps that the command would take. Nothing is changed."""
    from triomq.admin.changes import PlanningSession

    with _session(PlanningSession, *place) as session:
        assert isinstance(session, PlanningSession)
        return steps_of(program, session, Run(session, options, Output(sys.stdout, SILENT), session.add))


def steps_of(program: Program, session: PlanningSession, run: Run) -> list[dict[str, Any]]:
    """Return the steps of a run that only plans."""
    from triomq.admin.changes import merged

    with suppress(PlanEnds):
        program.function()(run)
        run.finish()
    return merged(session.steps)


def _show_plan(steps: list[dict[str, Any]], out: Output) -> None:
    from triomq.admin.changes import step_text

    out.line(out.painted("Nothing would change." if not steps else f"Would do, in {len(steps)} steps:", "bold"))
    for step in steps:
        out.line(f"  {step_text(step)}")
        out.item(**step)
    out.finish()


def _confirm(steps: list[dict[str, Any]]) -> None:
    """Show the plan on the terminal and ask. Raises AdminError without consent."""
    from triomq.admin.changes import step_text

    for step in steps:
        warn(step_text(step))
    wanted = next((str(step["confirm"]) for step in steps if step.get("confirm")), "y")
    question = "Do this? [y/N] " if wanted == "y" else f"Messages will be lost. Type {wanted} to do this: "
    sys.stderr.write(question)
    sys.stderr.flush()
    if sys.stdin.readline().strip() != wanted:
        raise AdminError("nothing was changed")


# -- watching ----------------------------------------------------------------------------------------------------------


def _watch(program: Program, options: dict[str, str], settings: dict[str, str], where: tuple[Place, float]) -> int:
    """Repeat the command until it is interrupted. A round that fails shows why; the next one tries again."""
    from triomq.admin.changes import ReadingSession

    interval = _seconds(settings, "watch", WATCH_SECONDS)
    on_terminal = sys.stdout.isatty()
    with _session(ReadingSession, *where) as session:
        while True:
            stream = _Round(sys.stdout)
            status = ""
            try:
                _run_once(program, Run(session, options, _output(program, settings, stream)))
            except (UsageError, ShowHelp):
                raise
            except AdminError as error:
                status = f"mqadmin {program.name}: {error}\n"
            if on_terminal:
                moment = time.strftime("%H:%M:%S")
                sys.stdout.write(f"{CLEAR}Every {interval:g} s: mqadmin {program.name}, {moment}\n\n")
            sys.stdout.write(stream.getvalue())
            sys.stdout.flush()
            sys.stderr.write(status)
            session.forget_cluster_info()
            time.sleep(interval)  # a command line waits as long as its option says


class _Round(io.StringIO):
    """What one round writes: it appears at once, and colours depend on where it goes."""

    def __init__(self, target: Any) -> None:
        super().__init__()
        self._target = target

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return str(self._target.encoding)

    def isatty(self) -> bool:
        return bool(self._target.isatty())


def environment_settings() -> dict[str, str]:
    """Return the options that MQADMIN_OUTPUT, MQADMIN_TIMEOUT and so on hold."""
    names = {"output": "MQADMIN_OUTPUT", "timeout": "MQADMIN_TIMEOUT", "fields": "MQADMIN_FIELDS"}
    found = {name: os.environ[variable] for name, variable in names.items() if os.environ.get(variable)}
    for name, variable in (("no-header", "MQADMIN_NO_HEADER"), ("verbose", "MQADMIN_VERBOSE")):
        if os.environ.get(variable) == "1":
            found[name] = ""
    return found
