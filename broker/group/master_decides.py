"""Requests that only the leader of a group executes: they change tables that go through the group's log, or read an
offset that consumers begin at.

A follower would keep the change to itself until the leader's next record overwrites it, and it may be behind, so it
refuses. So does a leader that stood still, and finds requests in its sockets that came before another one was elected:
its offsets may be older than what consumers have committed there. Clients find the leader in the route, as for sends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.errors import RequestRefused
from triomq.remoting.connection import Connection
from triomq.store.message_store import DefaultMessageStore

ONLY_MASTER: Final = frozenset(
    (
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.CLONE_GROUP_OFFSET,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.NOTIFICATION,
        RequestCode.QUERY_IN_FLIGHT,
        RequestCode.RELEASE_IN_FLIGHT,
    )
)


class MasterDecides:
    """The check of each request to a member of a group. `is_confirmed` returns whether this member leads and no other
    one can have been elected."""

    def __init__(self, store: DefaultMessageStore, is_confirmed: Callable[[], bool]) -> None:
        self._store = store
        self._is_confirmed = is_confirmed

    def __call__(self, connection: Connection, request: RemotingCommand) -> None:
        """Raise RequestRefused if another member has to execute the request."""
        if request.code in ONLY_MASTER:
            reason = self._store.role_refusal
            if reason is None and not self._is_confirmed():
                reason = "another member may lead the group by now, as no quorum has answered this one for a while"
            if reason is not None:
                raise RequestRefused(
                    ResponseCode.SLAVE_NOT_AVAILABLE, f"{reason}: send this request to the master of the group"
                )
