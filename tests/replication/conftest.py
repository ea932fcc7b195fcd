"""Fixtures of the replication tests, which share the helpers of the store's and the interoperability tests."""

from __future__ import annotations

import sys
from pathlib import Path

for name in ("store", "interop"):
    sys.path.append(str(Path(__file__).resolve().parents[1] / name))
