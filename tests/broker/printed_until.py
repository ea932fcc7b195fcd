"""The output of a program that serves."""

from __future__ import annotations

import subprocess


def printed_until(process: subprocess.Popen[str], word: str) -> str:
    """Return what it prints up to the line with that word, or until it ends."""
    assert process.stdout is not None
    text = ""
    for line in process.stdout:
        text += line
        if word in line:
            break
    return text
