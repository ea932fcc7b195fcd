"""Where the tests of the broker find the bytes captured from the real RocketMQ."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def _golden_root() -> Path | None:
    configured = os.environ.get("TRIOMQ_GOLDEN")
    if configured:
        return Path(configured)
    for folder in Path(__file__).resolve().parents:
        for candidate in (folder / "shared" / "golden", folder.parent / "shared" / "golden"):
            if candidate.is_dir():
                return candidate
    return None


@pytest.fixture(scope="session")
def golden_root() -> Path:
    root = _golden_root()
    if root is None:
        pytest.skip("no golden data here (TRIOMQ_GOLDEN)")
    return root


@pytest.fixture(scope="session")
def golden_frames(golden_root: Path) -> Callable[..., list[dict[str, Any]]]:
    """`golden_frames("admin_json", scenario=..., code_name=..., type=...)`: recorded frames with these members."""

    def frames(file: str, **wanted: object) -> list[dict[str, Any]]:
        with gzip.open(golden_root / "wire" / f"frames_{file}.jsonl.gz", "rt", encoding="utf-8") as lines:
            every = [json.loads(line) for line in lines]
        return [frame for frame in every if all(frame.get(key) == value for key, value in wanted.items())]

    return frames
