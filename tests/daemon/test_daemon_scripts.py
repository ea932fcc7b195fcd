"""The start scripts in bin/: starting a daemon never changes an installed environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of bin/ in a separate project, with a marker in its .venv that must survive."""
    directory = tmp_path / "project"
    (directory / "bin").mkdir(parents=True)
    for name in ("environment.sh", "mqbroker", "mqnamesrv", "mqshutdown", "quickstart"):
        shutil.copy2(ROOT / "bin" / name, directory / "bin" / name)
    (directory / "pyproject.toml").write_text('[project]\nname = "nothing"\nversion = "1"\n')
    return directory


def installed(project: Path) -> Path:
    """A .venv from an earlier installation."""
    venv = project / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / ".installed-plain").write_text("1 1\n")
    (venv / "installed.py").write_text("in use by running daemons\n")
    return venv


def start(project: Path, script: str = "mqbroker", path: str | None = None) -> subprocess.CompletedProcess[str]:
    # A directory of tools at the front of PATH records what a script runs with Python.
    environment = {"PATH": path or os.environ["PATH"], "HOME": str(project)}
    return subprocess.run(
        [str(project / "bin" / script), "-h"], env=environment, capture_output=True, text=True, timeout=60
    )


def recording_python(tmp_path: Path) -> tuple[str, Path]:
    """A PATH whose Pythons record their arguments and fail, and the file with the record."""
    tools, record = tmp_path / "tools", tmp_path / "calls"
    tools.mkdir()
    for name in ("python3.15", "python3.14", "python3.13", "python3.12", "python3.11", "python3", "python"):
        tool = tools / name
        # The first call, which checks whether this Python can create environments, succeeds.
        tool.write_text(
            f'#!/bin/sh\n[ "$1" = -c ] && {{ [ "${{0##*/}}" = python3.11 ]; exit; }}\n'
            f'[ "$1" = --version ] && exit\necho "$@" >>"{record}"\nexit 1\n'
        )
        tool.chmod(0o755)
    record.write_text("")
    return f"{tools}:{os.environ['PATH']}", record


@pytest.mark.parametrize("script", ["mqbroker", "mqnamesrv", "mqshutdown", "quickstart"])
def test_an_environment_whose_python_cannot_be_executed_is_left_as_it_is(
    project: Path, tmp_path: Path, script: str
) -> None:
    venv = installed(project)
    (venv / "bin" / "python").symlink_to("/nonexistent/home/of/another/account/python3")
    path, record = recording_python(tmp_path)
    done = start(project, script, path)
    assert done.returncode != 0
    assert (venv / "installed.py").read_text() == "in use by running daemons\n"
    assert record.read_text() == "", "nothing is made anew"
    assert f"{project}/.venv/bin/python cannot be executed" in done.stderr
    assert "was left as it is" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to start as another account")
def test_an_environment_that_another_account_may_not_enter_is_left_as_it_is(project: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="triomq-") as name:
        shared = Path(name) / "project"
        shutil.copytree(project, shared)
        venv = installed(shared)
        (venv / "bin" / "python").symlink_to(sys.executable)
        Path(name).chmod(0o755)
        shared.chmod(0o777)
        venv.chmod(0o700)
        done = subprocess.run(
            [str(shared / "bin" / "mqbroker"), "-h"],
            env={"PATH": os.environ["PATH"]},
            user=65534,
            group=65534,
            extra_groups=[],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 1
        assert "cannot be executed by this account" in done.stderr
        assert (venv / "installed.py").exists()


def test_what_a_failed_first_installation_made_is_removed_and_nothing_else(project: Path, tmp_path: Path) -> None:
    path, record = recording_python(tmp_path)
    (project / "data").write_text("kept")
    done = start(project, path=path)
    assert done.returncode == 1
    assert "-m venv" in record.read_text()
    assert not (project / ".venv").exists()
    assert (project / "data").read_text() == "kept"


def test_an_environment_that_lacks_packages_is_completed_but_never_cleared(project: Path) -> None:
    venv = project / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "kept").write_text("")
    (venv / "bin" / "python").write_text(f'#!/bin/sh\necho "$@" >>"{project}/calls"\nexit 1\n')
    (venv / "bin" / "python").chmod(0o755)
    done = start(project)
    assert done.returncode == 1
    assert (venv / "kept").exists()
    calls = (project / "calls").read_text()
    assert "-m pip install" in calls
    assert "venv" not in calls.replace(str(project), "")


def test_the_scripts_are_valid_shell() -> None:
    for script in sorted(path for path in (ROOT / "bin").rglob("*") if path.is_file()):
        if script.read_bytes()[:9] == b"#!/bin/sh" or script.suffix == ".sh":
            done = subprocess.run(["sh", "-n", str(script)], capture_output=True, text=True, timeout=20)
            assert (script.name, done.stderr) == (script.name, "")
