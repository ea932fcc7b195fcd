"""Run a command under the system call filter of a systemd unit: python confined.py ALLOWED COMMAND...

ALLOWED is a file with the numbers of the allowed system calls. Any other ends the process at once, where systemd would
return an error that the process might pass over. Memory that is writable and executable is refused as well, where the
kernel can do that. Linux on x86-64 only.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from pathlib import Path

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1
KILL_PROCESS, ALLOW = 0x80000000, 0x7FFF0000
LOAD, EQUALS, RETURN = 0x20, 0x15, 0x06


def program(allowed: list[int]) -> bytes:
    """Return the filter in the kernel's form: load the number, then return ALLOW at the first match."""
    steps = [struct.pack("HBBI", LOAD, 0, 0, 0)]
    for number in allowed:
        steps.append(struct.pack("HBBI", EQUALS, 0, 1, number))
        steps.append(struct.pack("HBBI", RETURN, 0, 0, ALLOW))
    steps.append(struct.pack("HBBI", RETURN, 0, 0, KILL_PROCESS))
    return b"".join(steps)


def confine(allowed: list[int]) -> None:
    """Confine this process and its children. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    filter_bytes = program(allowed)
    buffer = ctypes.create_string_buffer(filter_bytes)
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(filter_bytes) // 8, ctypes.addressof(buffer)))
    libc.prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0)
    for arguments in (
        (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.c_void_p(ctypes.addressof(header)), 0, 0),
    ):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    confine([int(word) for word in Path(sys.argv[1]).read_text().split()])
    os.execvp(sys.argv[2], sys.argv[2:])
