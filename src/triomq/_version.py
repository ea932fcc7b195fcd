"""The version of this build: 0.1.0 for a release, 0.1.0.dev1547+g48f05db1 for the 1547th commit before it (PEP 440).

A distribution has it baked in. A checkout derives it from its .git directory: the commit by reading files, its number
by asking git, once for each commit. The answer is kept in __pycache__, so that later starts do not run git. Without git
and in a shallow clone the number is 0; without a .git directory the version is that of the next release. Builds run
this file alone.
"""

from __future__ import annotations

import os
import sys

RELEASE = "0.1.0"
"""The next release. In the commit with the tag v<RELEASE> it is the version."""

BUILT = ""
"""The version of a distribution: setup.py replaces this line in its copy."""

GIT_SECONDS = 2
"""How long git may take. It takes some 20 ms; a repository on a network that hangs must not hold up a start."""

HASH_DIGITS = 8
_HERE = os.path.dirname(os.path.abspath(__file__))


def version() -> str:
    """Return the version of what runs. Never raises."""
    if BUILT:
        return BUILT
    return version_of(os.path.dirname(os.path.dirname(_HERE)), os.path.join(_HERE, "__pycache__", "triomq-version.txt"))


def version_of(checkout: str, kept: str = "") -> str:
    """Return the version of a checkout. `kept`: the file that keeps it between calls."""
    directory = _git_directory(checkout)
    commit = _commit(directory)
    if not commit:
        return RELEASE
    before = _read(kept) if kept else ""
    if before.startswith(RELEASE) and before.endswith(f" {commit}"):
        return before.partition(" ")[0]
    found = _asked(directory, commit)
    if not found:
        return f"{RELEASE}.dev0+g{commit[:HASH_DIGITS]}"
    if kept and not sys.dont_write_bytecode:
        _keep(kept, f"{found} {commit}")
    return found


def _asked(directory: str, commit: str) -> str:
    """Ask git. Returns nothing where it cannot say."""
    tags = _git(directory, "tag", "--points-at", commit)
    if tags is None:
        return ""
    if f"v{RELEASE}" in tags.split():
        return RELEASE
    if _git(directory, "rev-parse", "--is-shallow-repository") != "false":
        return ""
    number = _git(directory, "rev-list", "--count", commit)
    return f"{RELEASE}.dev{number}+g{commit[:HASH_DIGITS]}" if number else ""


def _git(directory: str, *words: str) -> str | None:
    """Return the output of a git command. With --git-dir git asks neither whose the files are nor for GIT_DIR."""
    import subprocess

    command = ["git", f"--git-dir={directory}", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=GIT_SECONDS, check=True)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _git_directory(checkout: str) -> str:
    """Return the directory that .git is, or names: a worktree has a file."""
    path = os.path.join(checkout, ".git")
    text = _read(path)
    if text.startswith("gitdir: "):
        return os.path.join(checkout, text.removeprefix("gitdir: "))
    return path


def _commit(directory: str) -> str:
    """Return the commit that is checked out, 40 or 64 hexadecimal digits. Returns nothing where no file tells."""
    head = _read(os.path.join(directory, "HEAD"))
    if head.startswith("ref: "):
        head = _commit_of(directory, head.removeprefix("ref: "))
    is_hash = len(head) in (40, 64) and not set(head) - set("0123456789abcdef")
    return head if is_hash else ""


def _commit_of(directory: str, ref: str) -> str:
    common = os.path.join(directory, _read(os.path.join(directory, "commondir")))
    loose = _read(os.path.join(common, ref))
    if loose:
        return loose
    for line in _read(os.path.join(common, "packed-refs")).splitlines():
        commit, _, name = line.partition(" ")
        if name == ref:
            return commit
    return ""


def _read(path: str) -> str:
    """Return a text without its last newline; nothing where it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""


def _keep(path: str, text: str) -> None:
    """Write a file that other processes may be reading or writing. A failure costs the next start 20 ms."""
    mine = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(mine, "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(mine, path)
    except OSError:
        return


if __name__ == "__main__":
    sys.stdout.write(version() + "\n")
