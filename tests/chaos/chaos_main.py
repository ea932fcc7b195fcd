"""The program of bin/dev/soak-chaos: real daemons in network namespaces, real clients of all languages, and faults.

Two NameServers, a SYNC_MASTER with its slave, and a master with SYNC_FLUSH take five kinds of faults, drawn from a
seed, while clients of each kind send and consume. Then everything is mended, and what was promised is checked: each
acknowledged message is where its acknowledgement said, and each group got it; offsets have no gap; the order of each
queue is that of its senders; every store verifies; the slave has its master's log; no daemon ended by itself.

The network, the disks and all processes belong to namespaces of this run and end with it, however it ends. Its
directory, with the logs, is removed if all went well.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from chaos_checks import Stored, Told, find_losses, missing
from chaos_clients import Receiver, Sender
from chaos_cluster import MASTERS, NAME_SERVERS, ROLES, TOPIC, Cluster, Member, build_clock
from chaos_network import enter, way_in
from chaos_plan import KINDS, Fault, draw

from triomq.protocol import java_properties, sys_flag
from triomq.protocol.settings import bind
from triomq.store.config import StoreSettings
from triomq.store.upkeep import offline

CLIENTS = ("python", "java4", "java5", "go", "node", "cpp")
SAY_SECONDS = 10
TICK_SECONDS = 0.1
DRAIN_SECONDS = 180
MIB = 1 << 20


def main() -> None:
    options = read_options()
    if options.inside:
        signal.signal(signal.SIGTERM, interrupted)
        sys.exit(inside(options, json.loads(Path(options.inside).read_text())))
    try:
        words = way_in()
        directory = Path(options.directory or tempfile.mkdtemp(prefix="triomq-chaos-"))
        directory.mkdir(parents=True, exist_ok=True)
        plan = directory / "commands.json"
        plan.write_text(json.dumps(commands(options.clients)))
    except OSError as error:
        print(f"soak-chaos cannot run here: {error}", file=sys.stderr)
        sys.exit(2)
    again = ["--inside", str(plan), "--directory", str(directory)]
    os.execvp(words[0], [*words, "--", sys.executable, "-P", "-m", "chaos_main", *sys.argv[1:], *again])


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bin/dev/soak-chaos", description="Real daemons and clients under faults.")
    parser.add_argument("--minutes", type=float, default=60, help="how long faults happen (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="of the faults (default: another each time, printed)")
    parser.add_argument("--faults", type=names_of(KINDS), default=KINDS, help=f"some of {','.join(KINDS)}")
    parser.add_argument("--clients", type=names_of(CLIENTS), default=CLIENTS, help=f"some of {','.join(CLIENTS)}")
    parser.add_argument("--pause-ms", type=int, default=100, help="of a sender between messages (default: %(default)s)")
    parser.add_argument("--directory", help="for logs (default: a new one; it is kept only after a failure)")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    return parser.parse_args()


def names_of(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        if unknown := set(names) - set(known):
            raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: not among {', '.join(known)}")
        return names

    return read


def commands(kinds: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the command of each client. They are built here, because the run itself has no network."""
    from interop_builds import ToolMissing
    from interop_driver_set import driver_command

    found = {}
    for kind in kinds:
        try:
            found[kind] = driver_command(kind)
        except ToolMissing as error:
            print(f"without {kind}: {error}", flush=True)
    if not found:
        raise OSError("none of these clients can run here")
    return found


def interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def inside(options: argparse.Namespace, argv: dict[str, list[str]]) -> int:
    directory = Path(options.directory)
    try:
        enter()
        disk_bytes = int((48 + 4 * options.minutes) * MIB)
        cluster = Cluster(directory, build_clock(directory), disk_bytes)
        problems = Run(cluster, argv, directory, options).whole()
    except KeyboardInterrupt:
        print(f"interrupted; the logs are in {directory}", flush=True)
        return 130
    for problem in problems:
        print(f"PROBLEM {problem}", flush=True)
    if problems:
        for name in ROLES:
            shutil.copytree(cluster.members[name].store, directory / f"{name}-store", dirs_exist_ok=True)
        print(f"{len(problems)} problems; logs and stores are in {directory}", flush=True)
        return 1
    for name in ROLES:
        cluster.members[name].free_disk()
    shutil.rmtree(directory)
    print("no problems", flush=True)
    return 0


class Run:
    """One run, from the start of the cluster to the last check."""

    def __init__(
        self, cluster: Cluster, argv: dict[str, list[str]], directory: Path, options: argparse.Namespace
    ) -> None:
        self._cluster = cluster
        self._argv = argv
        self._directory = directory
        self._options = options
        self._done: Counter[str] = Counter()
        self._under: list[Fault] = []
        self._problems: list[str] = []
        self._began = time.monotonic()
        self._said = -float(SAY_SECONDS)
        self._senders: list[Sender] = []
        self._receivers: list[Receiver] = []

    def whole(self) -> list[str]:
        options = self._options
        seed = options.seed if options.seed is not None else random.randrange(1 << 30)
        seconds = options.minutes * 60
        faults = draw(seed, tuple(ROLES), NAME_SERVERS, seconds, options.faults)
        print(
            f"seed {seed}: {len(faults)} faults in {options.minutes:g} minutes; clients {', '.join(self._argv)}; "
            f"logs in {self._directory}",
            flush=True,
        )
        self._cluster.start()
        self._start_clients()
        self._began = time.monotonic()
        try:
            self._suffer(faults, seconds)
        finally:
            for fault in self._under:  # after an interruption
                self._cluster.members[fault.member].mend(fault)
        self._calm_down()
        return [*self._problems, *self._cluster.problems]

    def _start_clients(self) -> None:
        inside = self._cluster.clients.inside
        names = self._cluster.name_servers
        for kind, argv in self._argv.items():
            place = self._directory / kind
            self._receivers.append(Receiver(kind, [*inside, *argv], place / "receive", names))
            self._senders.append(Sender(kind, [*inside, *argv], place / "send", names, self._options.pause_ms))

    def _suffer(self, faults: list[Fault], seconds: float) -> None:
        """Do the faults in their time."""
        ahead = list(faults)
        while (now := time.monotonic() - self._began) < seconds:
            for fault in [fault for fault in self._under if fault.end <= now]:
                self._member(fault).mend(fault)
                self._under.remove(fault)
            while ahead and ahead[0].at <= now:
                fault = ahead.pop(0)
                self._member(fault).begin(fault, self._cluster.members)
                self._under.append(fault)
                self._done[fault.kind] += 1
            self._watch()
            time.sleep(TICK_SECONDS)
        while self._under:
            fault = self._under.pop()
            self._member(fault).mend(fault)

    def _member(self, fault: Fault) -> Member:
        return self._cluster.members[fault.member]

    def _watch(self) -> None:
        for member in self._cluster:
            member.look()
        for receiver in self._receivers:
            receiver.look()
        now = time.monotonic()
        if now - self._said >= SAY_SECONDS:
            self._said = now
            print(self._line(), flush=True)

    def _line(self) -> str:
        sent = " ".join(f"{sender.kind} {len(sender.told)}" for sender in self._senders)
        received = {each.kind: sum(numbers.count for numbers in each.received.values()) for each in self._receivers}
        faults = " ".join(f"{kind} {self._done[kind]}" for kind in KINDS)
        under = "; ".join(map(str, self._under)) or "no fault"
        got = " ".join(f"{kind} {number}" for kind, number in received.items())
        return f"{time.monotonic() - self._began:5.0f} s | faults {faults} | acknowledged {sent} | got {got} | {under}"

    def _calm_down(self) -> None:
        print("mended; waiting for what is under way", flush=True)
        self._cluster.wait_registered(90)
        time.sleep(5)  # senders meet a whole cluster for a while
        for sender in self._senders:
            sender.stop()
        for sender in self._senders:
            sender.join()
        told = {sender.kind: sender.told for sender in self._senders}
        self._drain(told)
        print(self._line(), flush=True)
        for receiver in self._receivers:
            receiver.end()
        self._cluster.wait_equal(90)
        self._cluster.stop()
        self._problems += find_losses(told, self._stored())
        self._verify()
        self._report(told)

    def _drain(self, told: dict[str, list[Told]]) -> None:
        """Wait until each group got everything. A consumer that stops getting is replaced once: what its group has not
        confirmed comes again."""
        waiting = list(self._receivers)
        for _ in range(2):
            deadline = time.monotonic() + DRAIN_SECONDS
            while waiting and time.monotonic() < deadline:
                waiting = [receiver for receiver in waiting if missing(told, receiver.received)]
                self._watch()
                time.sleep(TICK_SECONDS)
            for receiver in waiting:
                counts = {kind: len(numbers) for kind, numbers in missing(told, receiver.received).items()}
                print(f"group {receiver.kind} lacks {counts}; another consumer takes over", flush=True)
                receiver.replace()
        for receiver in self._receivers:
            self._problems += receiver.problems
            if receiver.ordered is not None:
                self._problems += receiver.ordered.problems
            for kind, numbers in missing(told, receiver.received).items():
                self._problems.append(f"group {receiver.kind} did not get {len(numbers)} of {kind}: {numbers[:10]}")

    def _stored(self) -> list[Stored]:
        found = []
        for broker, name in MASTERS.items():
            log = offline.OfflineLog.plain(settings_of(self._cluster.members[name]))
            for fields, body in log.records():
                if bytes(fields.topic) == TOPIC.encode() and not fields.sys_flag & sys_flag.TRANSACTION_PREPARED:
                    found.append(Stored(broker, fields.queue_id, fields.queue_offset, bytes(body)))
            log.close()
        return found

    def _verify(self) -> None:
        for name in ROLES:
            findings = offline.verify(settings_of(self._cluster.members[name]))
            print(f"{name}: {findings.records} records in {findings.queues} queues, {len(findings.problems)} problems")
            self._problems += [f"{name}: {problem}" for problem in findings.problems]

    def _report(self, told: dict[str, list[Told]]) -> None:
        minutes = (time.monotonic() - self._began) / 60
        faults = ", ".join(f"{self._done[kind]} {kind}" for kind in KINDS)
        total = sum(map(len, told.values()))
        print(f"{minutes:.1f} minutes, {sum(self._done.values())} faults ({faults}), {total} messages acknowledged")
        for sender in self._senders:
            statuses = ", ".join(f"{count} {name}" for name, count in sorted(sender.statuses.items()))
            print(
                f"  {sender.kind}: {statuses}; {sender.failed} commands failed, {sender.replaced} processes replaced"
                f"{'; last: ' + sender.last_error[:200] if sender.last_error else ''}"
            )
        for each in self._receivers:
            got = sum(numbers.count for numbers in each.received.values())
            print(f"  group {each.kind}: {got} messages, {each.copies} again, {each.replaced} consumers replaced")
        starts = ", ".join(f"{member.name} {member.starts}" for member in self._cluster)
        print(f"  starts of daemons: {starts}", flush=True)


def settings_of(member: Member) -> StoreSettings:
    values = java_properties.parse(member.configuration.read_text())
    settings, _ = bind(StoreSettings, values, source=str(member.configuration))
    return settings


if __name__ == "__main__":
    main()
