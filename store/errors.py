"""The exceptions of the store, each with the reaction that it calls for.

StoreError
├── StoreLocked        another process uses the directory: stop it, or choose another directory
├── StoreRefused       the directory cannot be opened as it is (says which file and why); nothing was changed
├── StoreFull          the disk has no space, or the process no descriptor, for this write; retry when there is
├── StoreBroken        a write or sync failed: nothing more is accepted until a restart, reads continue
├── SyncNotBegun       a sync could not be submitted, so nothing was lost: try again
├── StoreFailed        an unexpected exception was raised while messages were written: the process must end
├── StoreClosed        the store was closed before the wait ended
├── LogNotTaken        the log of a group takes nothing here: send to the member that leads
└── LogCut             the end of a slave's log was truncated, because its master does not have it: wait again
"""

from __future__ import annotations


class StoreError(Exception):
    """The base of all exceptions that `store` defines."""


class StoreLocked(StoreError):
    """Another process holds the lock file of the directory."""


class StoreRefused(StoreError):
    """The directory cannot be opened: configuration and files do not fit, or a file cannot be read."""


class StoreFull(StoreError):
    """No space left on the device, or no descriptor for a file. The write was undone; later writes may succeed."""


class StoreBroken(StoreError):
    """A write or fdatasync failed, so the state of the disk is uncertain. The store refuses writes until reopened."""


class SyncNotBegun(StoreError):
    """There was no descriptor, or no room in the kernel, for a sync. It has not begun, so unlike a failed sync it may
    be repeated."""


class StoreFailed(StoreError):
    """A commit or a flush ended with an unexpected exception. Nothing more is acknowledged, and the process must end;
    the next start recovers every acknowledged message."""


class StoreClosed(StoreError):
    """The store was closed, or a queue deleted, during a wait for one of its watermarks."""


class LogCut(StoreError):
    """The end of a slave's log was truncated because it differs from its master's. Waits may start again."""


class LogNotTaken(StoreError):
    """The log took nothing of a commit: this member of the group does not lead, or is not ready to. Nothing changed."""
