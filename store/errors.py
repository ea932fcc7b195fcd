"""What the store raises, named by what happened and what can be done.

    StoreError
    ├── StoreLocked        another process uses the directory: stop it, or choose another directory
    ├── StoreRefused       the directory cannot be opened as it is (says which file and why); nothing was changed
    ├── StoreFull          the disk has no room for this write; it may be tried again when there is
    ├── StoreBroken        a write or sync failed: nothing more is accepted until a restart, reads go on
    ├── StoreFailed        something unforeseen was raised while messages were written: the process has to end
    ├── StoreClosed        the store was closed before the wait was over
    └── LogCut             a slave's log lost its end, which its master does not have: what was waited for went with it
"""

from __future__ import annotations


class StoreError(Exception):
    """Base of everything that `store` raises on purpose."""


class StoreLocked(StoreError):
    """Another process holds the lock file of the directory."""


class StoreRefused(StoreError):
    """The directory cannot be opened: configuration and files do not fit, or a file cannot be read."""


class StoreFull(StoreError):
    """No space left on the device. What was being written is taken back; later writes may succeed."""


class StoreBroken(StoreError):
    """A write or fdatasync failed, so what is on disk is uncertain. The store refuses writes until it is reopened."""


class StoreFailed(StoreError):
    """A commit or a flush ended with an unforeseen exception. Nothing more is acknowledged, and the process has to end;
    the next start recovers everything that was acknowledged."""


class StoreClosed(StoreError):
    """The store was closed while somebody waited for one of its watermarks."""


class LogCut(StoreError):
    """The end of a slave's log was taken back because it differs from its master's. Waits may begin anew."""
