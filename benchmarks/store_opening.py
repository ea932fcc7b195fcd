"""Measure how long a large store takes to open: 200 GiB of sparse log files and ten thousand queues.

    python -m benchmarks.store_opening [--gib 200] [--queues 10000] [--rounds 3]

The log has that many files of 1 GiB with one message at their beginnings, and in the last one two messages for each
queue. It is opened after a clean exit and after a kill (the checkpoint lies between the two, so the second half is read
again), each time by a process of its own, which reports wall-clock and CPU time of `load` and its resident memory
afterwards. Exit code 1 for more than 2 s or 150 MiB.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import structlog
import trio

from benchmarks.store_directory import message, now_ms
from triomq.store.config import StoreSettings
from triomq.store.message_store import DefaultMessageStore

PROJECT = Path(__file__).resolve().parent.parent
LIMIT_SECONDS = 2.0
LIMIT_BYTES = 150 << 20
TOPICS = 100


async def make(root: Path, gib: int, queues: int) -> None:
    """Make the store as a clean exit leaves it and, with -killed appended to its name, as a kill leaves it."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    store = DefaultMessageStore(StoreSettings(store_path_root_dir=str(root)), now_ms=now_ms)
    await store.load()
    filler = b"x" * 1000
    number = 0
    for _ in range(gib - 1):
        store.append(message("Topic0", 0, filler, number))
        store.commit()
        number += 1
        # As if the file were full: the next message goes to the next one.
        commit_log = store.contents.log
        commit_log.set_end(commit_log.next_file_start(commit_log.committed_offset))
    for round_number in range(2):
        for queue in range(queues):
            store.append(message(f"Topic{queue % TOPICS}", queue // TOPICS, filler, number))
            number += 1
            if number % 64 == 0:
                store.commit()
        store.commit()
        if round_number == 0:
            await store.flushing.flush_thoroughly()
    await store.flushing.flush_log()
    await store.flushing.flush_queues(0)
    store.contents.index.write_out()
    await trio.run_process(["cp", "-r", "--sparse=always", str(root), f"{root}-killed"])
    await store.close()


async def open_once(root: Path) -> dict[str, float]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    began, cpu = time.monotonic(), time.process_time()
    store = DefaultMessageStore(StoreSettings(store_path_root_dir=str(root)), now_ms=now_ms)
    await store.load()
    seconds, cpu_seconds = time.monotonic() - began, time.process_time() - cpu
    report = store.recovery_report
    status = Path("/proc/self/status").read_text()  # noqa: ASYNC240
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "records": report.records if report is not None else 0,
        "resident_bytes": int(status.split("VmRSS:")[1].split()[0]) * 1024,
        "own_bytes": int(status.split("RssAnon:")[1].split()[0]) * 1024,
        "queues": sum(map(len, store.reading.queues().values())),
    }


def measure(root: Path, copy: Path) -> dict[str, float]:
    subprocess.run(["cp", "-r", "--sparse=always", "--preserve=timestamps", str(root), str(copy)], check=True)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "benchmarks.store_opening", "--open", str(copy)],
            env=dict(os.environ, PYTHONPATH=str(PROJECT / "src")),
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        shutil.rmtree(copy)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=int, default=200)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--open", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.open is not None:
        print(json.dumps(trio.run(open_once, given.open)))
        return 0
    is_good = True
    with tempfile.TemporaryDirectory(prefix="opening-") as name:
        root = Path(name) / "store"
        trio.run(make, root, given.gib, given.queues)
        for kind, path in (("clean exit", root), ("killed", root.with_name("store-killed"))):
            rounds = [measure(path, Path(name) / "copy") for _ in range(given.rounds)]
            best = min(rounds, key=lambda found: found["seconds"])
            is_good = is_good and best["seconds"] < LIMIT_SECONDS and best["resident_bytes"] < LIMIT_BYTES
            print(
                f"{kind:10}: {best['seconds']:.2f} s ({best['cpu_seconds']:.2f} s of CPU), {best['records']:.0f} "
                f"records read, {best['queues']:.0f} queues, {best['resident_bytes'] / (1 << 20):.0f} MiB resident, "
                f"{best['own_bytes'] / (1 << 20):.0f} MiB of its own"
            )
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
