"""doctor: examine a whole cluster and say what is wrong, why it matters, and the command that mends it.

Exit status: 0 nothing found, 1 warnings, 2 something critical.
"""

from __future__ import annotations

from triomq.admin.diagnosis import CRITICAL, INFORMATION, WARNING, Finding
from triomq.admin.diagnosis.brokers import examine_brokers
from triomq.admin.diagnosis.groups import examine_groups
from triomq.admin.diagnosis.local import examine_files
from triomq.admin.diagnosis.name_servers import examine_name_servers
from triomq.admin.diagnosis.topics import examine_topics
from triomq.admin.errors import AdminError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from triomq.admin.run import Run

    Examination = Callable[[Run], Iterable[Finding]]

EXAMINATIONS: tuple[tuple[str, Examination], ...] = (
    ("nameServers", examine_name_servers),
    ("brokers", examine_brokers),
    ("topics", examine_topics),
    ("groups", examine_groups),
    ("files", examine_files),
)
RANK = {CRITICAL: 0, WARNING: 1, INFORMATION: 2}
COLOURS = {CRITICAL: "red", WARNING: "yellow", INFORMATION: "green"}
MAX_FINDINGS = 500
PATIENCE_SECONDS = 3.0
"""How long a daemon may take to respond. One that took longer is not asked again."""


def doctor(run: Run) -> None:
    run.session.required_name_servers()
    run.session.ask_once(PATIENCE_SECONDS)
    found: list[Finding] = []
    for name, examination in EXAMINATIONS:
        try:
            for finding in examination(run):
                found.append(finding)
                if len(found) == MAX_FINDINGS:
                    break
        except AdminError as error:
            found.append(
                Finding(
                    CRITICAL,
                    f"{name}-unknown",
                    name,
                    f"{name} could not be examined: {error}",
                    "what is unknown may be broken",
                    "`mqadmin health`",
                )
            )
    found.sort(key=lambda finding: RANK[finding.severity])
    for finding in found:
        run.out.line(f"{run.out.painted(finding.severity, COLOURS[finding.severity])}: {finding.what}")
        run.out.line(f"    why:  {finding.why}")
        run.out.line(f"    mend: {finding.mend}")
        run.out.item(**finding.item())
    if not found:
        run.out.line("Nothing is wrong.")
    run.exit_status = max([{CRITICAL: 2, WARNING: 1, INFORMATION: 0}[finding.severity] for finding in found], default=0)
