"""The parts of a guarded cluster: a home directory with accounts, and certificates."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

Account = tuple[str, str]  # access key and secret key


def write_accounts(
    home: Path, admin: Account, limited: Account, topics: Mapping[str, str], groups: Mapping[str, str]
) -> None:
    """Write RocketMQ's home with two accounts: an administrator, and one with exactly the given permissions."""
    lines = [
        "globalWhiteRemoteAddresses: []",
        "accounts:",
        *(f"- accessKey: {admin[0]}", f"  secretKey: {admin[1]}", "  admin: true"),
        *(f"- accessKey: {limited[0]}", f"  secretKey: {limited[1]}", "  admin: false"),
        *("  defaultTopicPerm: DENY", "  defaultGroupPerm: DENY"),
        *("  topicPerms:", *(f"  - {topic}={permission}" for topic, permission in topics.items())),
        *("  groupPerms:", *(f"  - {group}={permission}" for group, permission in groups.items())),
    ]
    (home / "conf").mkdir(parents=True)
    (home / "conf" / "plain_acl.yml").write_text("\n".join(lines) + "\n")


def certificate(directory: Path, name: str, password: str | None = None) -> tuple[Path, Path]:
    """Create a key, encrypted if there is a password, and a self-signed certificate. Skip the test without openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    key, path = directory / f"{name}.key", directory / f"{name}.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-days", "30", "-subj", f"/CN={name}"]
    command += ["-nodes"] if password is None else ["-passout", f"pass:{password}"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(path)], check=True, capture_output=True, timeout=60)
    return key, path
