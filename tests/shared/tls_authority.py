"""Certificate authorities for tests, and certificates that they sign: good ones, expired ones, for any name."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl program")


def openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=60)


class Authority:
    """A temporary CA in a directory, and the certificates that it signs."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self.directory = directory
        self.name = name
        self.certificate = directory / f"{name}.pem"
        self.key = directory / f"{name}.key"
        openssl(
            *("req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2"),
            *("-subj", f"/CN={name}", "-keyout", str(self.key), "-out", str(self.certificate)),
        )

    def issue(
        self, name: str, password: str | None = None, *, days: int = 2, names: str = "IP:127.0.0.1", key: str = ""
    ) -> tuple[str, str]:
        """Return the paths of certificate and key. `names` is the subjectAltName; the common name is `name`. With
        negative `days` it has expired. `key`: the path of an existing key to use."""
        made, request, certificate = (self.directory / f"{name}.{kind}" for kind in ("key", "csr", "pem"))
        openssl(
            *("req", "-new", "-subj", f"/CN={name}", "-out", str(request)),
            *(("-key", key) if key else ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")),
            *(() if key else ("-keyout", str(made))),
            *(("-passout", f"pass:{password}") if password else ("-nodes",)),
        )
        extensions = self.directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\n" if names else "basicConstraints=CA:FALSE\n")
        openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.certificate), "-CAkey", str(self.key)),
            *("-CAcreateserial", "-days", str(days), "-extfile", str(extensions), "-out", str(certificate)),
        )
        return str(certificate), key or str(made)
