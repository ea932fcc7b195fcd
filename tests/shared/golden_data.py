"""Recordings of the real RocketMQ 4.9.7: its files, its frames and its output.

`golden/data/README.md` says how each group was recorded. A group is one archive beside that file. Each process that
runs tests unpacks it on first use into a directory that it removes at its end. Tests read there and change only copies.
Missing data is an error, so no test skips.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

ARCHIVES = Path(__file__).parent.parent / "golden" / "data"

_directories: list[tempfile.TemporaryDirectory[str]] = []  # each is removed with its object at the end of the process


@cache
def golden_group(name: str) -> Path:
    """Return the unpacked directory of a group: dledger, ha, mqadmin, sql92, stores, wire."""
    directory = tempfile.TemporaryDirectory(prefix=f"triomq-golden-{name}-")
    _directories.append(directory)
    with tarfile.open(ARCHIVES / f"{name}.tar.xz") as archive:
        archive.extractall(directory.name, filter="data")
    return Path(directory.name) / name


def golden_lines(group: str, file: str) -> list[dict[str, Any]]:
    """Return the objects of a file with one JSON object per line."""
    with (golden_group(group) / f"{file}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def golden_frames(file: str, **wanted: object) -> list[dict[str, Any]]:
    """Return the recorded frames with these members, as in `golden_frames("admin_json", scenario=..., code_name=...,
    type=...)`.
    """
    frames = golden_lines("wire", f"frames_{file}")
    return [frame for frame in frames if all(frame.get(key) == value for key, value in wanted.items())]


def golden_store(name: str) -> Path:
    """Return the store directory of a set, as the real broker left it. Tests must not change it."""
    return golden_group("stores") / name / "store"


def copy_golden_store(name: str, target: Path) -> Path:
    """Copy that directory to `target` with its modification times."""
    return Path(shutil.copytree(golden_store(name), target / "store"))


def golden_expectation(name: str) -> dict[str, Any]:
    """Return the content of the real store after it recovered the directory of that set."""
    value: dict[str, Any] = json.loads((golden_group("stores") / name / "expect.json").read_bytes())
    return value


def golden_member(name: str, member: str, target: Path) -> Path:
    """Unpack the store of a member of a DLedger group, with holes for zeros: an index file has 160 MiB of those."""
    with tarfile.open(golden_group("dledger") / name / "store.tar.xz") as archive:
        for one in archive:
            if not one.name.startswith(f"{member}/store"):
                continue
            if one.size < 1 << 20:
                archive.extract(one, target, filter="data")
                continue
            source = archive.extractfile(one)
            assert source is not None
            with (target / one.name).open("wb") as file:
                while block := source.read(1 << 16):
                    if block == bytes(len(block)):
                        file.seek(len(block), os.SEEK_CUR)
                    else:
                        file.write(block)
                file.truncate(one.size)
    return target / member / "store"
