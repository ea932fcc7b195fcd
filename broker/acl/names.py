"""Names of access control that the rest of the broker uses: permissions, the check of a topic, files.

A broker that checks no access imports nothing else of this room but its errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from triomq.protocol.command import RemotingCommand
    from triomq.remoting.connection import Connection

DENY, PUB, SUB = 0, 1, 2
EITHER = 4
"""Wanted only, never owned: PUB or SUB."""

TopicCheck = Callable[["Connection", "RemotingCommand", "str | None", int], None]
"""AccessControl.check_topic, for processors."""

DEFAULT_FILE = "conf/plain_acl.yml"
TOOLS_FILE = "conf/tools.yml"
"""Holds the account with which mqadmin signs its requests, and a slave its requests to the master."""
