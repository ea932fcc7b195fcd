"""A secret that has a file of its own: what such a file holds, and who may read it.

The file holds the secret as UTF-8 text. One newline at its end does not count, since editors and `echo` write it. A
file that everybody on the machine can read or write keeps no secret, so it is refused; its group may do both.
"""

from __future__ import annotations

import stat

MAX_SECRET_BYTES = 65_536


class SecretError(ValueError):
    """A secret cannot be used. The text says why and what to do, and never quotes the secret."""


def secret_of(data: bytes, mode: int) -> str:
    """Return the secret in a file with this content and these permissions (st_mode). Raises SecretError.

    Pass at most MAX_SECRET_BYTES + 1 bytes: a longer file is not a secret.
    """
    if not stat.S_ISREG(mode):
        raise SecretError("it is not a regular file")
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        raise SecretError(
            f"its permissions are {stat.S_IMODE(mode):04o}, so that every account can read or change it; "
            "chmod 600 (or 640) it"
        )
    if len(data) > MAX_SECRET_BYTES:
        raise SecretError(f"it is longer than {MAX_SECRET_BYTES} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise SecretError("it is not UTF-8 text") from None
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise SecretError("it is empty")
    if "\n" in text or "\0" in text:
        raise SecretError("it has more than one line")
    return text
