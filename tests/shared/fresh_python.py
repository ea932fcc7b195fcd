"""What a program prints in a Python of its own, which has imported nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"


def printed(program: str) -> list[str]:
    """Return the words that a program prints. Raises CalledProcessError if it fails."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        env={"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.split()
