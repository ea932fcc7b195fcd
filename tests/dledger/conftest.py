"""The ledger is tested with the recording and failing files of the store's tests, and with fakes of the broker's."""

from __future__ import annotations

import sys
from pathlib import Path

for room in ("store", "broker"):
    sys.path.append(str(Path(__file__).resolve().parents[1] / room))
