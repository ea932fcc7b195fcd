"""The help of `mqpipeline`, where pyspark is not installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from triomq.spark.jobs.main import JOBS

WITHOUT_PYSPARK = """
import sys

sys.modules.update(dict.fromkeys(["pyspark", "py4j", "pyarrow", "pandas", "numpy"]))

from triomq.spark.jobs.main import main

sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("words", [[], *([job] for job in JOBS)], ids=lambda words: " ".join(words) or "mqpipeline")
def test_help_needs_no_pyspark(words: list[str]) -> None:
    command = [sys.executable, "-c", WITHOUT_PYSPARK, *words, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"usage: {' '.join(['mqpipeline', *words])} [-h]")
