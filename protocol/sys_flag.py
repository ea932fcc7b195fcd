"""Bits of the two fields named sysFlag: of a message (MessageSysFlag) and of a pull request (PullSysFlag)."""

from __future__ import annotations

from typing import Final

COMPRESSED: Final = 0x1
MULTI_TAGS: Final = 0x2

TRANSACTION_NOT: Final = 0x0
TRANSACTION_PREPARED: Final = 0x4
TRANSACTION_COMMIT: Final = 0x8
TRANSACTION_ROLLBACK: Final = 0xC
TRANSACTION_MASK: Final = 0xC

BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20

COMPRESSION_LZ4: Final = 0x100
COMPRESSION_ZSTD: Final = 0x200
COMPRESSION_ZLIB: Final = 0x300
COMPRESSION_MASK: Final = 0x700

PULL_COMMIT_OFFSET: Final = 0x1
PULL_SUSPEND: Final = 0x2
PULL_SUBSCRIPTION: Final = 0x4
PULL_LITE: Final = 0x10


def transaction_type(sys_flag: int) -> int:
    """Return one of the TRANSACTION_* values."""
    return sys_flag & TRANSACTION_MASK


def with_transaction_type(sys_flag: int, transaction: int) -> int:
    """Return the flag with its transaction bits replaced."""
    return (sys_flag & ~TRANSACTION_MASK) | transaction


def compression_type(sys_flag: int) -> int:
    """Return one of the COMPRESSION_* values. Clients before 4.9.3 leave the bits 0, which means ZLIB."""
    return (sys_flag & COMPRESSION_MASK) or COMPRESSION_ZLIB
