"""What bin/quickstart promises in its last lines is there."""

from __future__ import annotations

import re
import subprocess
import sys
import urllib.request
from pathlib import Path

from free_ports import free_port
from printed_until import printed_until


def test_the_quickstart_names_the_address_of_its_dashboard(tmp_path: Path) -> None:
    options = ["--data", str(tmp_path), "--metrics-port", "0"]
    for name in ("--namesrv-port", "--listen-port", "--dashboard-port", "--grpc-port"):
        options += [name, str(free_port())]
    command = [sys.executable, "-u", "-m", "triomq.broker.lifecycle.quickstart", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            text = printed_until(process, "Serving")
            found = re.search(r"browser (http://127\.0\.0\.1:\d+/)", text)
            assert found is not None, text
            with urllib.request.urlopen(f"{found[1]}messages?topic=Quickstart", timeout=30) as response:
                assert "these five messages" in response.read().decode()
        finally:
            process.terminate()
            process.communicate(timeout=60)
