from __future__ import annotations

import stat
from pathlib import Path

from triomq.daemon.atomic_file import write_atomically


def test_the_old_content_stays_beside_the_new(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "broker.conf"
    write_atomically(path, b"1")
    write_atomically(path, b"2")
    assert sorted((file.name, file.read_bytes()) for file in path.parent.iterdir()) == [
        ("broker.conf", b"2"),
        ("broker.conf.bak", b"1"),
    ]


def test_a_file_for_few_eyes_stays_one(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    for mode in (0o600, 0o640, 0o604):
        path.write_text("tls.server.keyPassword=hush\n")
        path.chmod(mode)
        write_atomically(path, b"changed")
        assert [stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()] == [mode] * 2
