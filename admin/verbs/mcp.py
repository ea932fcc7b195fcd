"""mcp: the tools of an assistant, over the Model Context Protocol on standard input and output.

The package mcp and an event loop are imported only here: no other command needs them.
"""

from __future__ import annotations

import signal

from triomq.admin.errors import AdminError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triomq.admin.assistant.calls import Desk
    from triomq.admin.run import Run

MAX_CALL_SECONDS = 600.0
LEAST_BYTES, MAX_BYTES = 1024, 16 * 1024 * 1024


def mcp(run: Run) -> None:
    from triomq.admin.assistant.calls import ANSWER_BYTES, CALL_SECONDS, Desk
    from triomq.admin.changes import ReadingSession

    if isinstance(run.session, ReadingSession):
        raise UsageError("mcp runs until its input ends: --watch does not fit it")
    seconds = run.decimal("seconds", CALL_SECONDS)
    if not 1 <= seconds <= MAX_CALL_SECONDS:
        raise UsageError(f"--seconds must be between 1 and {MAX_CALL_SECONDS:g}")
    size_bytes = run.number("bytes", ANSWER_BYTES)
    if not LEAST_BYTES <= size_bytes <= MAX_BYTES:
        raise UsageError(f"--bytes must be between {LEAST_BYTES} and {MAX_BYTES}")
    run.session.required_name_servers()
    desk = Desk(run.session, allow_changes=run.has("allow-changes"), call_seconds=seconds, answer_bytes=size_bytes)
    run.change("serve", "answer an assistant on standard input and output until the input ends", lambda: _serve(desk))


def _serve(desk: Desk) -> None:
    try:
        from triomq.admin.assistant.server import serve
    except ImportError as error:
        from triomq.protocol.extras import install_hint

        raise AdminError(f"mcp needs the package mcp ({error}); {install_hint('mcp')}") from None
    # The thread that reads standard input cannot be interrupted: Ctrl-C ends the process at once.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    serve(desk)
