"""Calls of tools: each runs a command or verb in the calling thread, with a time limit and a limit of its answer.

A tool that reads has a session that refuses every request that changes something. One that changes is called twice: the
first call returns the plan and a token, the second one has the token, plans again, and does it if the plan is the same.
"""

from __future__ import annotations

import io
import json
import zlib

from triomq.admin.assistant.arguments import input_schema, parsed
from triomq.admin.assistant.consents import VALID_SECONDS, Consents, is_plan
from triomq.admin.assistant.offers import CHANGING, READING
from triomq.admin.assistant.sessions import CallSession, PlanningCall, ReadingCall
from triomq.admin.command import find_command
from triomq.admin.errors import AdminError, UsageError
from triomq.admin.execute import is_destroying, steps_of
from triomq.admin.output import JSON, SILENT, Output
from triomq.admin.run import Run, ShowHelp
from triomq.admin.schema import PLAN_NAME, schema_of
from triomq.admin.verb import find_verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn, TypeVar

    from triomq.admin.assistant.arguments import Program, Schema
    from triomq.admin.session import Session

    C = TypeVar("C", bound=CallSession)

CALL_SECONDS = 30.0
ANSWER_BYTES = 64 * 1024
MAX_TEXT = 8 * 1024
"""Characters of one text in an answer, such as the body of a message."""
MAX_COUNTED = 1000
"""Items beyond the limit of an answer that are counted; then the command ends."""
TOKEN = "token"


class Answer:
    """`content` is JSON that fits the output schema of the tool; None for an error without any. `text` says what the
    JSON does not."""

    __slots__ = ("content", "is_error", "text")

    def __init__(self, content: dict[str, Any] | None, text: str = "", *, is_error: bool = False) -> None:
        self.content = content
        self.text = text
        self.is_error = is_error


class AnswerFull(Exception):
    """There are MAX_COUNTED items more than the answer has room for."""


class AnswerOutput(Output):
    """Keeps the items of a command up to a size, in bytes of JSON, and counts the others. `may_stop`: whether the
    command may be ended in the middle, as one that only reads."""

    def __init__(self, limit_bytes: int, *, may_stop: bool) -> None:
        super().__init__(io.StringIO(), JSON)
        self._may_stop = may_stop
        self.kept: list[dict[str, Any]] = []
        self.left_out = 0
        self._room_bytes = limit_bytes

    def item(self, **fields: Any) -> None:
        if not self.left_out:
            fields = {name: _shortened(value) for name, value in fields.items()}
            self._room_bytes -= len(json.dumps(fields)) + 2
            if self._room_bytes >= 0:
                self.kept.append(fields)
                return
        self.left_out += 1
        if self._may_stop and self.left_out >= MAX_COUNTED:
            raise AnswerFull


class CallRun(Run):
    """The run of a call: it writes no files, and does not pause beyond the call's time limit."""

    def __init__(self, session: CallSession, options: dict[str, str], out: Output, planned: Any = None) -> None:
        super().__init__(session, options, out, planned)
        self._call_session = session
        self.has_consent = True

    def write_file(self, path: str, data: bytes) -> NoReturn:
        raise UsageError(f"a tool writes no files: {path} would be one of {len(data)} bytes")

    def any_number(self) -> int:
        """Return the same for the same options: what is planned is what is done."""
        return zlib.crc32(json.dumps(self._options, sort_keys=True).encode())

    def pause(self, seconds: float) -> None:
        if seconds >= self._call_session.remaining():
            raise UsageError(f"{seconds:g} s would be longer than one call may take")
        super().pause(seconds)


class Tool:
    """A command or verb as a tool. Its name has no blank: `offsets_show`."""

    def __init__(self, command: str, *, changes: bool) -> None:
        self.name = command.replace(" ", "_")
        self.program = _program(command)
        self.changes = changes

    @property
    def is_destroying(self) -> bool:
        return is_destroying(self.program)

    @property
    def description(self) -> str:
        text = f"{self.program.help.rstrip('.')}."
        if self.changes:
            text += " The first call changes nothing: it returns the plan and a token. Show the plan to the user; only"
            text += f" a second call with the same arguments and the token does it, within {VALID_SECONDS:g} seconds."
        return text

    @property
    def input_schema(self) -> Schema:
        schema = input_schema(self.program)
        if self.changes:
            text = "of the plan that the first call returned: do exactly that"
            schema["properties"][TOKEN] = {"type": "string", "description": text}
        return schema

    @property
    def output_schema(self) -> Schema:
        whole: Schema = {"type": "integer", "minimum": 0}
        properties: Schema = {
            "items": {"type": "array", "items": schema_of(self.program.name)["items"]},
            "leftOut": {**whole, "description": "how many more items there are, at least; the answer has no room"},
            "exitStatus": {
                "type": ["integer", "null"],
                "description": "0, or what the description of the tool says; null if the command did not end",
            },
        }
        required = list(properties)
        if self.changes:
            properties["done"] = {"type": "boolean", "description": "false for a plan"}
            properties["plan"] = {"type": "array", "items": schema_of(PLAN_NAME)["items"]}
            properties[TOKEN] = {"type": "string", "description": "for the second call"}
            properties["validSeconds"] = {"type": "number", "description": "how long the token is valid"}
            required = ["done"]
        return {"type": "object", "properties": properties, "required": required}


class Desk:
    """Answers calls for one cluster: that of `session`, which is only copied. Threads may call it at once."""

    def __init__(
        self,
        session: Session,
        *,
        allow_changes: bool,
        call_seconds: float = CALL_SECONDS,
        answer_bytes: int = ANSWER_BYTES,
    ) -> None:
        self.name_servers = list(session.name_servers)
        self._session = session
        self._call_seconds = call_seconds
        self._answer_bytes = answer_bytes
        self._consents = Consents()
        found = [Tool(name, changes=False) for name in READING]
        found += [Tool(name, changes=True) for name in CHANGING] if allow_changes else []
        self.tools = {tool.name: tool for tool in found}

    def answer(self, name: str, arguments: dict[str, Any]) -> Answer:
        """Run a tool. What fails is an answer, too."""
        tool = self.tools.get(name)
        if tool is None:
            return Answer(None, f"there is no tool {name!r}{_why_not(name)}", is_error=True)
        try:
            if tool.changes:
                return self._changed(tool, dict(arguments))
            return self._done(tool, ReadingCall, parsed(tool.program, arguments))
        except (AdminError, ShowHelp) as error:
            return Answer(None, _error_text(tool, error), is_error=True)
        except Exception as error:  # a peer's answer without the expected fields; the server continues
            return Answer(None, f"mqadmin {tool.program.name} failed: {type(error).__name__}: {error}", is_error=True)

    def _changed(self, tool: Tool, arguments: dict[str, Any]) -> Answer:
        token = arguments.pop(TOKEN, None)
        options = parsed(tool.program, arguments)
        call = [tool.name, options]
        consented = None
        if token is not None:
            consented = self._consents.take(str(token), call)
            if consented is None:
                text = "the token is not valid for this call: it was used, is too old, or belongs to other arguments"
                raise UsageError(f"{text}. Nothing was changed; a call without a token returns a plan")
        with self._call(PlanningCall) as session:
            run = CallRun(session, options, Output(io.StringIO(), SILENT), session.add)
            steps = steps_of(tool.program, session, run)
        if consented is not None and is_plan(consented, steps):
            answer = self._done(tool, CallSession, options)
            answer.content = {"done": not answer.is_error, **(answer.content or {})}
            return answer
        return self._plan(call, steps, is_other=consented is not None)

    def _plan(self, call: Any, steps: list[dict[str, Any]], *, is_other: bool) -> Answer:
        if len(json.dumps(steps)) > self._answer_bytes:
            text = f"the plan has {len(steps)} steps, more than an answer has room for"
            raise UsageError(
                f"{text}. Nothing was changed; a person can do it with mqadmin {call[0].replace('_', ' ')}"
            )
        content: dict[str, Any] = {"done": False, "plan": steps}
        if not steps:
            return Answer(content, "Nothing would change.")
        content |= {TOKEN: self._consents.offer(call, steps), "validSeconds": VALID_SECONDS}
        text = "Nothing was changed yet. Show this plan to the user before the call with the token."
        if is_other:
            return Answer(content, f"The plan is another one now than that of the token. {text}", is_error=True)
        return Answer(content, text)

    def _done(self, tool: Tool, kind: type[CallSession], options: dict[str, str]) -> Answer:
        """Run a command once. One that fails on its way returns what it had."""
        out = AnswerOutput(self._answer_bytes, may_stop=not tool.changes)
        status: int | None = None
        text = ""
        failed = False
        with self._call(kind) as session:
            run = CallRun(session, options, out)
            try:
                tool.program.function()(run)
                run.finish()
                status = run.exit_status
            except AnswerFull:
                pass
            except (AdminError, ShowHelp) as error:
                failed = True
                text = _error_text(tool, error)
                if not out.kept:
                    return Answer(None, text, is_error=True)
        if out.left_out:
            counted = f"at least {out.left_out}" if status is None else str(out.left_out)
            text = f"{text} {counted} more were left out: the answer has no room for them. Ask for less.".lstrip()
        content = {"items": out.kept, "leftOut": out.left_out, "exitStatus": status}
        return Answer(content, text, is_error=failed)

    def _call(self, kind: type[C]) -> C:
        session = self._session.another_of(kind)
        session.limit(self._call_seconds)
        return session


def _program(command: str) -> Program:
    found = find_command(command)
    if found is not None:
        return found
    verb = find_verb(command.split(" "))
    assert verb is not None, command
    return verb[0]


def _why_not(name: str) -> str:
    return ": the server was started without --allow-changes" if name.replace("_", " ") in CHANGING else ""


def _error_text(tool: Tool, error: AdminError | ShowHelp) -> str:
    if isinstance(error, ShowHelp):
        return f"an option is missing. {tool.program.usage()}"
    return f"mqadmin {tool.program.name}: {error} (exit status {error.exit_status})"


def _shortened(value: object) -> object:
    if isinstance(value, str) and len(value) > MAX_TEXT:
        return f"{value[:MAX_TEXT]}... ({len(value) - MAX_TEXT} more characters)"
    return value
