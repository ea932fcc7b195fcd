"""check lag, disk, replication, registration: one number against two thresholds, with the exit status of monitoring
plug-ins: 0 ok, 1 warning, 2 critical, 3 unknown.
"""

from __future__ import annotations

from triomq.admin import bodies
from triomq.admin.cluster_view import (
    add_in_flight,
    backlog,
    broker_table,
    group_behind_ms,
    group_names,
    master_table,
    progress,
)
from triomq.admin.errors import AdminError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from triomq.admin.cluster_view import QueueKey
    from triomq.admin.run import Run

    Measured = list[tuple[str, float]]

STATES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
COLOURS = ("green", "yellow", "red", "yellow")
UNKNOWN = 3


def _check(run: Run, name: str, limits: tuple[float, float], measure: Callable[[], Measured]) -> None:
    """Print a line with the worst subject, and performance data behind the bar; set the exit status."""
    warn = run.decimal("warn", limits[0])
    critical = run.decimal("crit", limits[1])
    if warn > critical:
        raise UsageError(f"--warn {_plain(warn)} is above --crit {_plain(critical)}")
    try:
        found = measure()
        text = ""
    except UsageError:
        raise
    except AdminError as error:
        found, text = [], str(error)
    if not found:
        status = UNKNOWN
        value = None
        subject = text or "nothing to measure"
    else:
        subject, value = max(found, key=lambda pair: pair[1])
        status = 2 if value > critical else 1 if value > warn else 0
    shown = "" if value is None else f" {_plain(value)}"
    performance = " ".join(
        [f"'{each}'={_plain(number)};{_plain(warn)};{_plain(critical)}" for each, number in found[:100]]
    )
    state = run.out.painted(STATES[status], COLOURS[status])
    run.out.line(f"{name.upper()} {state} - {subject}{shown}{' | ' + performance if performance else ''}")
    run.out.item(
        check=name,
        status=STATES[status],
        value=value,
        subject=subject,
        warn=warn,
        crit=critical,
        values=dict(found),
    )
    run.exit_status = status


def _plain(number: float) -> str:
    """Return a number without an exponent, which many monitoring systems cannot read."""
    return f"{number:.6f}".rstrip("0").rstrip(".")


def check_lag(run: Run) -> None:
    """Messages behind, or with --seconds the age of what was read last; of one group or of the worst."""

    def measure() -> Measured:
        from triomq.admin.cluster_view import now_ms

        now = now_ms()
        found: Measured = []
        progress_of: dict[str, dict[QueueKey, dict[str, Any]]] = {}
        for group in [run.get("GROUP")] if run.has("GROUP") else group_names(run):
            progress_of[group] = progress(run, group)
            if not progress_of[group] and run.has("GROUP"):
                raise AdminError(f"group {group!r} has no offsets")
        add_in_flight(run, progress_of)
        for group, table in progress_of.items():
            if run.has("seconds"):
                behind = group_behind_ms(run, table, now)
                if behind is None:
                    if run.has("GROUP"):
                        raise AdminError(f"how far group {group!r} is behind is unknown: it has read nothing yet")
                    continue
                found.append((group, behind / 1000))
            else:
                found.append((group, float(sum(map(backlog, table.values())))))
        return found

    _check(run, "lag", (60.0, 600.0) if run.has("seconds") else (10_000.0, 100_000.0), measure)


def check_disk(run: Run) -> None:
    """The share of the disk in use, in percent, as brokers report it."""

    def measure() -> Measured:
        found: Measured = []
        for name, addresses in broker_table(run).items():
            for number, address in addresses.items():
                table = bodies.loads(run.session.call(address, 28).body)["table"]
                found.append((f"{name}/{number}", round(float(table.get("commitLogDiskRatio") or 0.0) * 100, 2)))
        return found

    _check(run, "disk", (75.0, 90.0), measure)


def check_replication(run: Run) -> None:
    """How many bytes of the log a slave lacks."""

    def measure() -> Measured:
        found: Measured = []
        for name, addresses in broker_table(run).items():
            if 0 not in addresses:
                raise AdminError(f"broker {name!r} has no master")
            ends = {
                number: int(bodies.loads(run.session.call(address, 28).body)["table"].get("commitLogMaxOffset", 0))
                for number, address in addresses.items()
            }
            found += [(f"{name}/{number}", float(max(0, ends[0] - end))) for number, end in ends.items() if number]
        return found

    _check(run, "replication", (16.0 * 2**20, 256.0 * 2**20), measure)


def check_registration(run: Run) -> None:
    """How many of the --broker names, or of those that any NameServer knows, some NameServer lacks."""

    def measure() -> Measured:
        known = {
            address: set(bodies.loads(run.session.call(address, 106).body).get("brokerAddrTable", {}))
            for address in run.session.required_name_servers()
        }
        wanted = set(run.every("broker")) or set().union(*known.values()) or set(master_table(run))
        return [(address, float(len(wanted - names))) for address, names in known.items()]

    _check(run, "registration", (0.0, 0.0), measure)
