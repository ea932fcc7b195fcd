"""The Debian package is built, and then installed, run, upgraded and purged in a scratch copy of this system."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import triomq

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("dpkg-deb", "dpkg", "unshare", "chroot", "setpriv", "ip")

# It runs in its own namespaces: mounts and ports of the machine stay untouched. The upper layer of the overlay is a
# tmpfs, so the copy of the system disappears when the script ends.
SCRIPT = """
set -eu
package=$1 scratch=$2
mount -t tmpfs scratch "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$scratch/root"
mount -t proc proc "$scratch/root/proc"
mount -t tmpfs tmp "$scratch/root/tmp"
mount --bind /dev "$scratch/root/dev"
ip link set lo up
cp "$package" "$scratch/root/tmp/triomq.deb"
exec chroot "$scratch/root" /bin/sh -eu -c '
    cd /tmp
    dpkg --install triomq.deb >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
    as_triomq() {
        setpriv --reuid triomq --regid triomq --clear-groups \
            env -i PATH=/usr/bin:/bin HOME=/var/lib/triomq ROCKETMQ_HOME=/etc/triomq TRIOMQ_LOG_DIR=/var/log/triomq "$@"
    }
    until_healthy() {
        tries=0
        until mqhealth "$@" >/dev/null 2>&1; do
            tries=$((tries + 1))
            [ "$tries" -lt 100 ] || { mqhealth "$@"; exit 1; }
        done
        mqhealth "$@"
    }
    mqbroker --version
    as_triomq mqbroker -c /etc/triomq/broker.conf --check
    as_triomq mqbroker -c /usr/share/triomq/conf/dledger/broker-n0.conf --check
    as_triomq mqnamesrv -c /etc/triomq/namesrv.conf >/tmp/namesrv.out & namesrv=$!
    until_healthy namesrv 9876
    as_triomq mqbroker -c /etc/triomq/broker.conf >/tmp/broker.out & broker=$!
    until_healthy broker 10911
    ls /var/log/triomq/broker.log
    stat -c "%U %a" /var/lib/triomq /etc/triomq/conf/plain_acl.yml
    as_triomq mqshutdown broker | grep OK | sed "s/([0-9]*)//"
    wait $broker
    as_triomq mqshutdown namesrv >/dev/null
    wait $namesrv
    echo "# edited" >>/etc/triomq/broker.conf
    dpkg --install triomq.deb >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
    tail -1 /etc/triomq/broker.conf
    dpkg --verify triomq | grep -v conf || echo "all files as packed"
    dpkg --remove triomq >/tmp/log 2>&1 || { cat /tmp/log; exit 1; }
    [ ! -e /usr/lib/triomq ] && echo "nothing left in /usr/lib"
    dpkg --purge triomq 2>&1 | grep "messages were kept"
    ls -d /var/lib/triomq/store
    [ ! -e /etc/triomq/broker.conf ] && [ ! -e /var/log/triomq ] && echo purged
'
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if not (ROOT / ".venv/bin/python").exists():
        pytest.skip("there is no .venv to build with")
    done = subprocess.run(
        [str(ROOT / "packaging/debian/build"), str(tmp_path_factory.mktemp("deb"))],
        capture_output=True,
        text=True,
        timeout=400,
        env={**os.environ, "DEBEMAIL": "packager@example.com", "DPKG_DEB_COMPRESSOR_LEVEL": "1"},
    )
    if done.returncode != 0 and "connection" in done.stderr.lower():
        pytest.skip("packages that the package contains cannot be downloaded")
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def field(package: Path, name: str) -> str:
    words = ["dpkg-deb", "-f", str(package), name]
    return subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout.strip()


@pytest.mark.slow
def test_the_package_says_what_it_is(package: Path) -> None:
    version = triomq.__version__.replace(".dev", "~dev")  # before the release, as dpkg compares
    assert (field(package, "Package"), field(package, "Version")) == ("triomq", version)
    authors = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["authors"]
    assert field(package, "Maintainer") == f"{authors[0]['name']} <packager@example.com>"
    python = sys.version_info
    assert f"python3 (>= 3.{python.minor}), python3 (<< 3.{python.minor + 1})" in field(package, "Depends")
    listing = subprocess.run(["dpkg-deb", "-c", str(package)], capture_output=True, text=True, timeout=30).stdout
    programs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    manual = "usr/share/man"
    files = ("lib/systemd/system/mqbroker.service", f"{manual}/man8/mqbroker.8.gz", f"{manual}/man1/mqadmin.1.gz")
    samples = [path.relative_to(ROOT) for path in sorted((ROOT / "conf").glob("*/*"))]
    assert {"conf/dledger/broker-n0.conf", "conf/monitoring/alerts.yml"} <= {str(path) for path in samples}
    files = (*files, *[f"usr/share/triomq/{path}" for path in samples])
    for path in (*files, *[f"usr/bin/{program}" for program in programs]):
        assert f" ./{path}\n" in listing
    assert "__pycache__" not in listing
    assert {line.split()[1] for line in listing.splitlines()} == {"root/root"}


@pytest.mark.slow
def test_it_is_installed_run_upgraded_and_purged(package: Path, tmp_path: Path) -> None:
    python = subprocess.run(["/usr/bin/python3", "-V"], capture_output=True, text=True, timeout=30).stdout.split()[-1]
    if python.split(".")[:2] != [str(part) for part in sys.version_info[:2]]:
        pytest.skip(f"the system's Python is {python}")
    overlay = "mount -t overlay -o lowerdir=/,upperdir=$0/u,workdir=$0/w overlay $0/m"
    probe = f"mount -t tmpfs tmpfs $0 && mkdir $0/u $0/w $0/m && {overlay}"
    allowed = subprocess.run(["unshare", "-mn", "sh", "-c", probe, str(tmp_path)], capture_output=True, timeout=30)
    if os.geteuid() != 0 or allowed.returncode != 0:
        pytest.skip("mounts in namespaces are not permitted")
    done = subprocess.run(
        [
            "unshare",
            "--mount",
            "--net",
            "--pid",
            "--fork",
            "--kill-child",
            "sh",
            "-c",
            SCRIPT,
            "sh",
            str(package),
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    version, *lines = done.stdout.splitlines()
    assert version.startswith(f"mqbroker (TrioMQ) {triomq.__version__}, compatible with RocketMQ 4.9.7, ")
    assert lines == [
        "mqbroker: the configuration is valid",
        "mqbroker: the configuration is valid",
        "namesrv responds",
        "broker responds",
        "/var/log/triomq/broker.log",
        "triomq 750",
        "root 660",
        "Send shutdown request to mqbroker OK",
        "# edited",
        "all files as packed",
        "nothing left in /usr/lib",
        "triomq: messages were kept in /var/lib/triomq",
        "/var/lib/triomq/store",
        "purged",
    ]
