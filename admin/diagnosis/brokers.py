"""Brokers: reachable from here, clocks, disks, threads that wait, slaves in step."""

from __future__ import annotations

import re

from triomq.admin.cluster_view import attempt, broker_table, now_ms
from triomq.admin.diagnosis import CRITICAL, WARNING, Finding
from triomq.admin.diagnosis.dledger import examine_members, is_group
from triomq.admin.write_times import counts_of, longer_than, own_number, sync_p99_ms
from triomq.protocol.findings import BEHIND_BYTES, slave_behind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from triomq.admin.run import Run

CLOCK_MS = 5_000
DISK_WARNING, DISK_CRITICAL = 0.75, 0.9
WAIT_MS = 200
PAGE_CACHE_MS = 1_000
SLOW_MS, SLOW_WRITES, SLOW_SHARE = 200, 10, 0.01
LAG_MS = 500
_RUNTIME = re.compile(r"(\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds")


def examine_brokers(run: Run) -> Iterator[Finding]:
    for name, addresses in broker_table(run).items():
        tables: dict[int, dict[str, str]] = {}
        for number, address in addresses.items():
            body = attempt(run, address, 28)
            if body is None:
                yield Finding(
                    CRITICAL,
                    "broker-unreachable",
                    name,
                    f"broker {name} advertises {address}, which cannot be reached from here",
                    "clients connect to the advertised address: from a container or another network it may be wrong",
                    f"set brokerIP1 in broker.conf of {name} to an address that clients reach, and restart it",
                )
                continue
            tables[number] = body.get("table", {})
            yield from _broker(name, address, tables[number])
        if is_group(tables):
            yield from examine_members(name, addresses, tables)
        else:
            yield from _pair(run, name, addresses, tables)
        yield from _behind(name, addresses, tables)


def _broker(name: str, address: str, table: dict[str, str]) -> Iterator[Finding]:
    ahead = _clock_ms(table)
    if ahead is not None and abs(ahead) > CLOCK_MS:
        yield Finding(
            WARNING,
            "clock",
            name,
            f"the clock of broker {name} ({address}) is {abs(ahead) // 1000} s {'ahead' if ahead > 0 else 'behind'}",
            "delays, retention and resets by time follow the broker's clock",
            "synchronize both clocks: timedatectl set-ntp true",
        )
    ratio = _number(table, "commitLogDiskRatio")
    if ratio > DISK_WARNING:
        yield Finding(
            CRITICAL if ratio > DISK_CRITICAL else WARNING,
            "disk",
            name,
            f"the disk of broker {name} ({address}) is {ratio:.0%} full",
            "a broker whose disk is full refuses messages, and deletes old ones early",
            f"mqadmin deleteExpiredCommitLog -b {address}, then lower fileReservedTime or add space",
        )
    for pool, verb in (("send", "producers"), ("pull", "consumers")):
        waited = _number(table, f"{pool}ThreadPoolQueueHeadWaitTimeMills")
        if waited > WAIT_MS:
            yield Finding(
                WARNING,
                f"{pool}-wait",
                name,
                f"requests of {verb} wait {waited:.0f} ms at broker {name}",
                "the broker has more requests than it can finish: clients will see SYSTEM_BUSY",
                "add a broker, or send and read in larger batches; mqadmin brokerStatus -b " + address,
            )
    yield from _slow_writes(name, address, table)
    yield from _own(name, address, table)
    locked = _number(table, "pageCacheLockTimeMills")
    if locked > PAGE_CACHE_MS:
        yield Finding(
            WARNING,
            "slow-disk",
            name,
            f"a write at broker {name} takes {locked:.0f} ms",
            "every message waits for it",
            f"look at the disk of {address}: iostat -x 1",
        )


def _slow_writes(name: str, address: str, table: dict[str, str]) -> Iterator[Finding]:
    counts = counts_of(table)
    slow = longer_than(counts, SLOW_MS)
    if slow >= SLOW_WRITES and slow >= SLOW_SHARE * sum(counts):
        yield Finding(
            WARNING,
            "slow-writes",
            name,
            f"{slow} of {sum(counts)} writes of broker {name} took longer than {SLOW_MS} ms",
            "producers wait for them, and with SYNC_FLUSH every message does",
            f"mqadmin selftest DIR on the disk of {address} measures it; keep other programs off it: iostat -x 1",
        )


def _own(name: str, address: str, table: dict[str, str]) -> Iterator[Finding]:
    """Judge what only TrioMQ's brokers report."""
    p99 = sync_p99_ms(table, SLOW_WRITES)
    if p99 is not None and p99 > SLOW_MS:
        yield Finding(
            WARNING,
            "slow-syncs",
            name,
            f"1 of 100 syncs of the log of broker {name} takes {p99:.0f} ms or longer",
            "with SYNC_FLUSH every message waits for one; with ASYNC_FLUSH a power failure costs more messages",
            f"mqadmin selftest DIR on the disk of {address} measures it; keep other programs off it: iostat -x 1",
        )
    lag = own_number(table, "eventLoopLagMax")
    if lag is not None and lag > LAG_MS:
        yield Finding(
            WARNING,
            "loop-lag",
            name,
            f"the event loop of broker {name} was {lag:.0f} ms late within the last two minutes",
            "all clients wait meanwhile, and sends that waited too long are refused with SYSTEM_BUSY",
            f"see whether other programs take the processor of {address}: top; its log names tasks that block the loop",
        )


def _pair(run: Run, name: str, addresses: dict[int, str], tables: dict[int, dict[str, str]]) -> Iterator[Finding]:
    """Examine a master and its slaves."""
    if 0 not in addresses:
        yield Finding(
            CRITICAL,
            "no-master",
            name,
            f"broker {name} has slaves but no master",
            "its topics can be read but not written",
            f"start the master of {name}, brokerId=0",
        )
    elif 0 in tables and len(addresses) == 1 and _role(run, addresses[0]) == "SYNC_MASTER":
        yield Finding(
            CRITICAL,
            "no-slave",
            name,
            f"broker {name} is a SYNC_MASTER without a slave",
            "producers get SLAVE_NOT_AVAILABLE for every message",
            f"start a slave of {name}, or mqadmin updateBrokerConfig -b {addresses[0]} -k brokerRole -v ASYNC_MASTER",
        )


def _behind(name: str, addresses: dict[int, str], tables: dict[int, dict[str, str]]) -> Iterator[Finding]:
    """Find slaves that lack much of the log."""
    if 0 not in tables:
        return
    end = _number(tables[0], "commitLogMaxOffset")
    for number, table in tables.items():
        behind = end - _number(table, "commitLogMaxOffset")
        if number and behind > BEHIND_BYTES:
            yield slave_behind(name, number, behind, addresses[number], addresses[0])


def _role(run: Run, address: str) -> str:
    from triomq.admin.errors import AdminError
    from triomq.protocol.java_properties import parse

    try:
        text = run.session.call(address, 26).body.decode("utf-8", "replace")
    except AdminError:
        return ""
    return parse(text).get("brokerRole", "")


def _clock_ms(table: dict[str, str]) -> int | None:
    """Return how far the broker's clock is ahead: it reports when it started, and how long ago that is."""
    found = _RUNTIME.search(table.get("runtime", ""))
    began = table.get("bootTimestamp", "")
    if found is None or not began.isdecimal():
        return None
    days, hours, minutes, seconds = (int(text) for text in found.groups())
    return int(began) + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 - now_ms()


def _number(table: dict[str, str], key: str) -> float:
    try:
        return float(table.get(key) or 0.0)
    except ValueError:
        return 0.0
