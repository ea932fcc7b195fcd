"""Errors of access control files and of changes to them. No text of theirs holds a secret key of a file."""

from __future__ import annotations


class AclFileError(ValueError):
    """An ACL file, or a part of it, cannot be used; the text says which file or value and why."""


class AclUpdateRefused(ValueError):
    """A change of an ACL file is refused; the administrator who requested it receives the text."""
