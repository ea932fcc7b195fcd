"""`mqpipeline table` killed at random while it commits. Run as a program for twenty kills of each format:

python tests/pipeline/table_kills.py [KILLS]
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from pathlib import Path

from tables_kept import FORMATS, create, keep, places, rows, send, started, words

from triomq.testing import LocalCluster

DEADLINE_SECONDS = 60.0
ROWS_EACH = 120
MOST_SECONDS = 0.3


def kill_while_it_commits(cluster: LocalCluster, topic: str, folder: Path, kind: str, kills: int) -> tuple[int, int]:
    """Kill a run `kills` times within 0.3 s of its first change of the table, with messages to commit. Return the
    number of rows and of distinct places after a last run that is left alone."""
    rng = random.Random(7)
    create(cluster, topic)
    given = words(cluster.name_server, topic, folder, kind, "--commit-rows", "5", "--commit-seconds", "0.05")
    for _ in range(kills):
        send(cluster, topic, ROWS_EACH)
        before = files(folder)
        job = started(given)
        try:
            deadline = time.monotonic() + DEADLINE_SECONDS
            while files(folder) == before and time.monotonic() < deadline and job.poll() is None:
                time.sleep(0.005)
            time.sleep(rng.uniform(0.0, MOST_SECONDS))
            assert job.poll() is None, job.communicate()
        finally:
            job.kill()
            job.communicate()
    assert keep(cluster, topic, folder, kind) == 0
    found = places(rows(folder, topic, kind))
    return len(found), len(set(found))


def files(folder: Path) -> set[str]:
    # Not rglob, which fails when a folder is removed meanwhile.
    return {f"{where}/{name}" for where, _, names in os.walk(folder) for name in names}


def main(kills: int) -> int:
    is_good = True
    with LocalCluster(cluster_name="shop") as cluster, tempfile.TemporaryDirectory() as folder:
        for kind in FORMATS:
            count, distinct = kill_while_it_commits(cluster, f"Kills{kind}", Path(folder) / kind, kind, kills)
            sys.stdout.write(f"{kind}: {kills} kills, {count} rows, {distinct} distinct, {kills * ROWS_EACH} sent\n")
            is_good &= count == distinct == kills * ROWS_EACH
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
