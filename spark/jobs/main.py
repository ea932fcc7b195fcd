"""`mqpipeline NAME`: jobs over topics and store directories.

Each job is a module with `SUMMARY`, `add_arguments(parser)` and `run(arguments) -> exit code`. Jobs also run under
spark-submit: `spark-submit .../spark/jobs/main.py NAME ...`.

Exit codes: 0 done; 1 done, but something is wrong or missing; 2 not done.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from triomq.protocol.extras import install_hint
from triomq.spark.errors import MQSparkError
from triomq.spark.jobs.session import JobFailed, add_spark_options, one_line, stop_session

JOBS = ("archive", "replay", "audit", "rebuild", "lag", "trace", "table", "copy", "quality", "compact")
ELSEWHERE = {
    "table": "triomq.pipeline.tables.job",
    "copy": "triomq.pipeline.copying.job",
    "quality": "triomq.pipeline.quality.job",
    "compact": "triomq.pipeline.compacting.job",
}
"""Jobs of other packages."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = argparse.ArgumentParser(prog="mqpipeline", description="Jobs over RocketMQ topics and store directories.")
    commands = top.add_subparsers(dest="job", metavar="NAME", required=True)
    for name in JOBS:
        module = import_module(ELSEWHERE.get(name, f"triomq.spark.jobs.{name}"))
        command = commands.add_parser(
            name, help=module.SUMMARY, description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.add_arguments(command)
        if getattr(module, "NEEDS_SPARK", True):
            add_spark_options(command)
        command.set_defaults(run=module.run)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    try:
        return run(argv)
    finally:
        stop_session()


def run(argv: Sequence[str] | None = None) -> int:
    """Run one job in the active session, or in a new one that stays open. Return the exit code."""
    name = "mqpipeline"
    try:
        arguments = parser().parse_args(argv)
        name = f"mqpipeline {arguments.job}"
        code: int = arguments.run(arguments)
        return code
    except (JobFailed, MQSparkError) as error:
        message = str(error)
    except ImportError as error:
        if not (error.name or "").startswith(("pyspark", "pyarrow", "py4j")):
            raise
        message = f"{error.name} is not installed: {install_hint('spark')}"
    except Exception as error:
        if not type(error).__module__.startswith(("pyspark", "py4j")):
            raise
        message = one_line(error)
    sys.stderr.write(f"{name}: {message}\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
