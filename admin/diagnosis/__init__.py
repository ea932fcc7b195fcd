"""What `mqadmin doctor` examines: a module for each subject, whose examination yields findings."""

from __future__ import annotations

from triomq.protocol.findings import CRITICAL as CRITICAL
from triomq.protocol.findings import INFORMATION as INFORMATION
from triomq.protocol.findings import WARNING as WARNING
from triomq.protocol.findings import Finding as Finding
