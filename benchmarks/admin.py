"""Measure the CPU time of mqadmin commands, compared with an empty Python program: the minimum of several runs.

    python benchmarks/admin.py [--runs N] [--java]

`clusterList` needs a cluster; this program runs one. With --java, RocketMQ's own mqadmin runs there, too.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))


# As bin/mqadmin and the console script start it; `python -m` would add the imports of runpy.
MQADMIN = ("-c", "import sys; from triomq.admin.__main__ import main; sys.exit(main())")


JAVA = ROOT / "tests" / "apache" / "peer"


def least_cpu_ms(words: list[str], runs: int) -> float:
    """Return user and system time of a child process in ms, the smallest of `runs`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    found = []
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, env=environment, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(found) * 1000


def main() -> int:
    from triomq.testing import LocalCluster

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--java", action="store_true", help="also RocketMQ's mqadmin; needs Java 17 and Maven")
    options = parser.parse_args()
    with LocalCluster() as cluster:
        server = ["-n", cluster.name_server]
        programs = {
            "python -c pass": ["-c", "pass"],
            "mqadmin help": [*MQADMIN, "help"],
            "mqadmin help updateTopic": [*MQADMIN, "help", "updateTopic"],
            "mqadmin clusterList": [*MQADMIN, "clusterList", *server],
            "mqadmin topicList": [*MQADMIN, "topicList", *server],
            "mqadmin lag": [*MQADMIN, "lag", *server],
            "mqadmin printMsg": [*MQADMIN, "printMsg", "-t", "TBW102", *server],
        }
        commands = {name: [sys.executable, "-P", *words] for name, words in programs.items()}
        if options.java:
            subprocess.run([JAVA, "fetch"], stdout=subprocess.DEVNULL, check=True)
            commands["RocketMQ's clusterList"] = [str(JAVA), "admin", "clusterList", *server]
        base = 0.0
        for name, words in commands.items():
            cost = least_cpu_ms(words, options.runs)
            base = base or cost
            print(f"{name:22} {cost:7.1f} ms  {cost / base:5.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
