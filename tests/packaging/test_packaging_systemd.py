"""The systemd units are valid and hardened, and agree with the daemons."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from triomq.broker.__main__ import STOP_DEADLINE_SECONDS as BROKER_STOP_SECONDS
from triomq.daemon.errors import ExitCode
from triomq.namesrv.__main__ import STOP_DEADLINE_SECONDS as NAMESRV_STOP_SECONDS

ROOT = Path(__file__).resolve().parents[2]
UNITS = ("mqbroker.service", "mqnamesrv.service")
STOP_SECONDS = {"mqbroker.service": BROKER_STOP_SECONDS, "mqnamesrv.service": NAMESRV_STOP_SECONDS}

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def service(unit: str) -> dict[str, str]:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read(ROOT / "packaging/systemd" / unit)
    return dict(parser["Service"])


def analyzed(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run systemd-analyze on copies whose commands exist here."""
    for unit in UNITS:
        text = (ROOT / "packaging/systemd" / unit).read_text()
        (tmp_path / unit).write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", text))
    return subprocess.run(
        ["systemd-analyze", *words, *(str(tmp_path / unit) for unit in UNITS)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "SYSTEMD_PAGER": ""},
    )


@needs_systemd
def test_the_units_are_valid(tmp_path: Path) -> None:
    done = analyzed(tmp_path, "verify", "--man=no", "--recursive-errors=no")
    assert (done.returncode, done.stderr) == (0, "")


@needs_systemd
def test_the_units_are_hardened(tmp_path: Path) -> None:
    done = analyzed(tmp_path, "security", "--offline=true", "--no-pager", "--threshold=12")
    assert done.returncode == 0, f"exposure above 1.2:\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_waits_longer_than_the_daemon_gives_itself(unit: str) -> None:
    assert int(service(unit)["TimeoutStopSec"]) >= STOP_SECONDS[unit] + 5


@pytest.mark.parametrize("unit", UNITS)
def test_what_a_restart_cannot_mend_is_not_restarted(unit: str) -> None:
    codes = set(map(int, service(unit)["RestartPreventExitStatus"].split()))
    assert codes == {ExitCode.USAGE, ExitCode.REFUSED}


@pytest.mark.parametrize("unit", UNITS)
def test_the_log_directory_is_the_one_that_is_rotated(unit: str) -> None:
    environment = dict(pair.split("=", 1) for pair in service(unit)["Environment"].split())
    assert f"{environment['TRIOMQ_LOG_DIR']}/*.log {{" in (ROOT / "packaging/logrotate/triomq").read_text()
    assert unit in (ROOT / "packaging/logrotate/triomq").read_text()


@pytest.mark.skipif(shutil.which("logrotate") is None, reason="logrotate is not installed")
def test_the_logrotate_configuration_is_valid(tmp_path: Path) -> None:
    text = (ROOT / "packaging/logrotate/triomq").read_text()
    copy = tmp_path / "triomq"
    copy.write_text(text.replace("/var/log/triomq", str(tmp_path)).replace("    su triomq triomq\n", ""))
    copy.chmod(0o644)
    done = subprocess.run(
        ["logrotate", "--debug", "--state", str(tmp_path / "state"), str(copy)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "error" not in done.stderr


@pytest.mark.parametrize("unit", UNITS)
def test_the_daemons_come_before_other_work_on_the_cpu(unit: str) -> None:
    assert int(service(unit)["CPUWeight"]) > 100, "the weight of a unit without the setting"
    assert -20 <= int(service(unit)["Nice"]) < 0
