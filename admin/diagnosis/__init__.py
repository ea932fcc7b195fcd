"""What `mqadmin doctor` examines: a module for each subject, whose examination yields findings."""

from __future__ import annotations

CRITICAL, WARNING, INFORMATION = "CRITICAL", "WARNING", "INFORMATION"


class Finding:
    """`code` names the fault for programs; `mend` is a command line or what to change."""

    __slots__ = ("code", "mend", "severity", "subject", "what", "why")

    def __init__(self, severity: str, code: str, subject: str, what: str, why: str, mend: str) -> None:
        self.severity = severity
        self.code = code
        self.subject = subject
        self.what = what
        self.why = why
        self.mend = mend

    def item(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in ("severity", "code", "subject", "what", "why", "mend")}
