"""What a checkout says its version is, in every state that a clone may be in, and what that costs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from triomq import _version
from triomq._version import RELEASE, version_of

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="no git")


def git(directory: Path, *words: str) -> str:
    settings = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-c", "protocol.file.allow=always", *words]
    done = subprocess.run(
        command, cwd=directory, env={**os.environ, **settings}, capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.strip()


def commit(directory: Path) -> str:
    git(directory, "commit", "--quiet", "--allow-empty", "-m", "one")
    return git(directory, "rev-parse", "HEAD")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout with two commits."""
    directory = tmp_path / "clone"
    directory.mkdir()
    git(directory, "init", "--quiet", "--initial-branch", "main")
    commit(directory)
    commit(directory)
    return directory


def head(directory: Path) -> str:
    return git(directory, "rev-parse", "HEAD")[:8]


def test_two_commits_have_two_versions_and_the_later_one_is_higher(clone: Path) -> None:
    first = version_of(str(clone))
    assert first == f"{RELEASE}.dev2+g{head(clone)}"
    commit(clone)
    assert version_of(str(clone)) == f"{RELEASE}.dev3+g{head(clone)}"


@pytest.mark.parametrize("annotated", [[], ["-a", "-m", "x"]], ids=["light", "annotated"])
def test_the_commit_with_the_tag_is_the_release(clone: Path, annotated: list[str]) -> None:
    git(clone, "tag", *annotated, "v9.9.9")
    assert version_of(str(clone)) == f"{RELEASE}.dev2+g{head(clone)}"
    git(clone, "tag", *annotated, f"v{RELEASE}")
    assert version_of(str(clone)) == RELEASE
    git(clone, "clone", "--quiet", "--depth", "1", "--branch", f"v{RELEASE}", f"file://{clone}", "../shallow")
    assert version_of(str(clone.parent / "shallow")) == RELEASE, "as CI checks out a tag"


def test_a_shallow_clone_knows_its_commit_and_not_its_number(clone: Path) -> None:
    git(clone, "clone", "--quiet", "--depth", "1", f"file://{clone}", "../shallow")
    assert version_of(str(clone.parent / "shallow")) == f"{RELEASE}.dev0+g{head(clone)}"


def test_packed_detached_and_second_work_trees_are_read(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = version_of(str(clone))
    git(clone, "worktree", "add", "--quiet", "-b", "other", "../second")
    assert version_of(str(clone.parent / "second")) == expected
    git(clone, "pack-refs", "--all")
    assert version_of(str(clone)) == expected
    assert version_of(str(clone.parent / "second")) == expected
    git(clone, "checkout", "--quiet", "--detach")
    assert version_of(str(clone)) == expected
    monkeypatch.setenv("GIT_DIR", str(clone.parent))  # as in a hook of another repository
    assert version_of(str(clone)) == expected


def test_without_git_the_commit_is_known_and_without_history_the_release(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = f"{RELEASE}.dev0+g{head(clone)}"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert version_of(str(clone)) == expected
    assert version_of(str(tmp_path / "unpacked")) == RELEASE
    (clone / ".git" / "HEAD").write_bytes(b"ref: refs/heads/\xff\0")
    assert version_of(str(clone)) == RELEASE


def test_git_that_hangs_does_not_hold_up_a_start(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "bin" / "git"
    slow.parent.mkdir()
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    expected = f"{RELEASE}.dev0+g{head(clone)}"
    monkeypatch.setattr(_version, "GIT_SECONDS", 0.05)
    monkeypatch.setenv("PATH", f"{slow.parent}:{os.environ['PATH']}")
    assert version_of(str(clone)) == expected


def test_git_runs_once_for_each_commit(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    kept = tmp_path / "cache" / "version.txt"
    first = version_of(str(clone), str(kept))
    commit(clone)
    second = version_of(str(clone), str(kept))
    assert (first[:10], second[:10]) == (f"{RELEASE}.dev2", f"{RELEASE}.dev3")
    monkeypatch.setattr(_version, "_git", lambda *_: pytest.fail("git was run"))
    assert version_of(str(clone), str(kept)) == second
    assert [file.name for file in kept.parent.iterdir()] == [kept.name]


def test_a_cache_that_cannot_be_written_is_none(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    (tmp_path / "file").touch()
    assert version_of(str(clone), str(tmp_path / "file" / "version.txt")) == f"{RELEASE}.dev2+g{head(clone)}"
