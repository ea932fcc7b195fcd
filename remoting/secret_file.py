"""Read a secret that has a file of its own."""

from __future__ import annotations

import os
from pathlib import Path

from triomq.protocol.secret_text import MAX_SECRET_BYTES, SecretError, secret_of


def read_secret(path: Path) -> str:
    """Return the secret in a file. Raises SecretError, which names the file and what to do."""
    try:
        # Without O_NONBLOCK a named pipe would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise SecretError(f"{path} cannot be read: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "rb") as file:
            return secret_of(file.read(MAX_SECRET_BYTES + 1) or b"", os.fstat(descriptor).st_mode)
    except OSError as error:
        raise SecretError(f"{path} cannot be read: {error.strerror}") from None
    except SecretError as error:
        raise SecretError(f"{path} cannot be used: {error}") from None
