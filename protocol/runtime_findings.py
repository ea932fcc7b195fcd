"""What the runtime table of one broker (GET_BROKER_RUNTIME_INFO) says is wrong: its clock, disk, threads and times of
writes. For `mqadmin doctor` and for the dashboard."""

from __future__ import annotations

import re

from triomq.protocol.findings import CRITICAL, INFORMATION, WARNING, Finding
from triomq.protocol.write_times import counts_of, longer_than, own_number, sync_p99_ms

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CLOCK_MS = 5_000
DISK_WARNING, DISK_CRITICAL = 0.75, 0.9
WAIT_MS = 200
PAGE_CACHE_MS = 1_000
SLOW_MS, SLOW_WRITES, SLOW_SHARE = 200, 10, 0.01
LAG_MS = 500
NOT_READY = "notReady_"
"""Before the name of a check of /health/ready that fails, in keys of TrioMQ's brokers; the value says why."""
REJECTED = "aclFilesRejected"
"""The key for which files of accounts cannot be used, and why."""
_MOST_DIGITS = 18
_CURES = {
    "store": "`mqadmin brokerStatus -b ADDRESS`, and its log store.log: it names what could not be written",
    "disk": "`mqadmin deleteExpiredCommitLog -b ADDRESS`, then lower fileReservedTime or add space",
    "registration": "`mqadmin config get --broker ADDRESS namesrvAddr brokerName brokerId`: list the NameServers, and "
    "give each broker a name and id of its own",
    "replication": "start a slave that follows, or do what the reason says; `mqadmin brokerStatus -b ADDRESS` shows "
    "how far each of them is",
    "sends": "`mqadmin updateBrokerConfig -b ADDRESS -k startAcceptSendRequestTimeStamp -v 0` to accept them now",
    "ports": "`mqbroker -c FILE --check` says which port is taken; restart it then",
}
"""By the check of /health/ready."""
_RUNTIME = re.compile(r"(\d{1,9}) days, (\d{1,9}) hours, (\d{1,9}) minutes, (\d{1,9}) seconds")


def findings_of(name: str, address: str, table: Mapping[str, str], now_ms: int) -> Iterator[Finding]:
    """Yield what is wrong with a broker. `now_ms`: the time here, which its clock is compared with."""
    ahead = _clock_ms(table, now_ms)
    if ahead is not None and abs(ahead) > CLOCK_MS:
        yield Finding(
            WARNING,
            "clock",
            name,
            f"the clock of broker {name} ({address}) is {abs(ahead) // 1000} s {'ahead' if ahead > 0 else 'behind'}",
            "delays, retention and resets by time follow the broker's clock",
            "synchronize both clocks: `timedatectl set-ntp true`",
        )
    ratio = number(table, "commitLogDiskRatio")
    if ratio > DISK_WARNING:
        yield Finding(
            CRITICAL if ratio > DISK_CRITICAL else WARNING,
            "disk",
            name,
            f"the disk of broker {name} ({address}) is {ratio:.0%} full",
            "a broker whose disk is full refuses messages, and deletes old ones early",
            f"`mqadmin deleteExpiredCommitLog -b {address}`, then lower fileReservedTime or add space",
        )
    for pool, verb in (("send", "producers"), ("pull", "consumers")):
        waited = number(table, f"{pool}ThreadPoolQueueHeadWaitTimeMills")
        if waited > WAIT_MS:
            yield Finding(
                WARNING,
                f"{pool}-wait",
                name,
                f"requests of {verb} wait {waited:.0f} ms at broker {name}",
                "the broker has more requests than it can finish: clients will see SYSTEM_BUSY",
                f"add a broker, or send and read in larger batches; `mqadmin brokerStatus -b {address}`",
            )
    yield from _slow_writes(name, address, table)
    yield from _own(name, address, table)
    locked = number(table, "pageCacheLockTimeMills")
    if locked > PAGE_CACHE_MS:
        yield Finding(
            WARNING,
            "slow-disk",
            name,
            f"a write at broker {name} takes {locked:.0f} ms",
            "every message waits for it",
            f"look at the disk of {address}: `iostat -x 1`",
        )


def is_known_alone(table: Mapping[str, str]) -> bool:
    """Return whether a synchronous master says itself that it has no slave that is near."""
    return f"{NOT_READY}replication" in table


def _slow_writes(name: str, address: str, table: Mapping[str, str]) -> Iterator[Finding]:
    counts = counts_of(table)
    slow = longer_than(counts, SLOW_MS)
    if slow >= SLOW_WRITES and slow >= SLOW_SHARE * sum(counts):
        yield Finding(
            WARNING,
            "slow-writes",
            name,
            f"{slow} of {sum(counts)} writes of broker {name} took longer than {SLOW_MS} ms",
            "producers wait for them, and with SYNC_FLUSH every message does",
            f"`mqadmin selftest DIR` on the disk of {address} measures it; keep other programs off it: `iostat -x 1`",
        )


def _own(name: str, address: str, table: Mapping[str, str]) -> Iterator[Finding]:
    """Judge what only TrioMQ's brokers report."""
    failing = {key.removeprefix(NOT_READY): text for key, text in table.items() if key.startswith(NOT_READY)}
    if failing:
        shown = "; ".join([f"{check}: {text}" for check, text in failing.items()])
        yield Finding(
            CRITICAL,
            "not-ready",
            name,
            f"broker {name} ({address}) is not ready: {shown}",
            "it does not do what clients or its master expect of it, or soon may not",
            _CURES.get(next(iter(failing)), "`mqadmin brokerStatus -b ADDRESS`").replace("ADDRESS", address),
        )
    p99 = sync_p99_ms(table, SLOW_WRITES)
    if p99 is not None and p99 > SLOW_MS:
        yield Finding(
            WARNING,
            "slow-syncs",
            name,
            f"1 of 100 syncs of the log of broker {name} takes {p99:.0f} ms or longer",
            "with SYNC_FLUSH every message waits for one; with ASYNC_FLUSH a power failure costs more messages",
            f"`mqadmin selftest DIR` on the disk of {address} measures it; keep other programs off it: `iostat -x 1`",
        )
    rejected = table.get(REJECTED)
    if rejected:
        yield Finding(
            CRITICAL,
            "accounts-rejected",
            name,
            f"broker {name} ({address}) cannot use a file of accounts: {rejected}",
            "its former content is in force: accounts that were taken away still have their rights, new ones have none",
            f"mend the file at {address.rpartition(':')[0]}; `mqbroker -c FILE --check` says whether it can be used",
        )
    for file in filter(None, table.get("absentTables", "").split(",")):
        yield Finding(
            WARNING if file == "topics.json" else INFORMATION,  # without consumers there may be no other
            "absent-table",
            name,
            f"broker {name} ({address}) found no config/{file} when it started, although its log has messages",
            "it began with an empty table: topics, groups or positions that were in the file are gone",
            "if it ever had one: stop the broker, restore config/ from a backup, and start it again",
        )
    lag = own_number(table, "eventLoopLagMax")
    if lag is not None and lag > LAG_MS:
        yield Finding(
            WARNING,
            "loop-lag",
            name,
            f"the event loop of broker {name} was {lag:.0f} ms late within the last two minutes",
            "all clients wait meanwhile, and sends that waited too long are refused with SYSTEM_BUSY",
            f"see whether other programs take the processor of {address}: `top`; its log names what blocks the loop",
        )


def uptime_seconds(table: Mapping[str, str]) -> int | None:
    """Return how long a broker has run; None if it does not say it."""
    found = _RUNTIME.search(table.get("runtime", ""))
    if found is None:
        return None
    days, hours, minutes, seconds = (int(text) for text in found.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def _clock_ms(table: Mapping[str, str], now_ms: int) -> int | None:
    """Return how far the broker's clock is ahead: it reports when it started, and how long ago that is."""
    uptime = uptime_seconds(table)
    began = table.get("bootTimestamp", "")
    if uptime is None or not began.isdecimal() or len(began) > _MOST_DIGITS:
        return None
    return int(began) + uptime * 1000 - now_ms


def number(table: Mapping[str, str], key: str) -> float:
    """Return a number of a runtime table; 0.0 if it is not there, or not a number."""
    try:
        return float(table.get(key) or 0.0)
    except ValueError:
        return 0.0
