"""The tests of the chaos run share the helpers of the interoperability tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "interop"))
