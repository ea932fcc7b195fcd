"""The status of an answer (RocketMQ 5: apache.rocketmq.v2.Code), and which one the refusal of a request becomes."""

from __future__ import annotations

from typing import Any, Final

from triomq.grpc_front.schema import Code
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand

# Plain ints, because accessing a value of a protobuf enum takes ten times as long.
OK: Final = int(Code.OK)
CLIENT_ID_REQUIRED: Final = int(Code.CLIENT_ID_REQUIRED)
TOO_MANY_REQUESTS: Final = int(Code.TOO_MANY_REQUESTS)
INTERNAL_SERVER_ERROR: Final = int(Code.INTERNAL_SERVER_ERROR)

ACCESS_DENIED: Final = "org.apache.rocketmq.acl."
"""How the remark of a refusal for want of permission begins (RocketMQ: AclException)."""
_OF_RESPONSES: Final[dict[int, int]] = {
    ResponseCode.SYSTEM_BUSY: Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: Code.NOT_IMPLEMENTED,
    ResponseCode.MESSAGE_ILLEGAL: Code.BAD_REQUEST,
    ResponseCode.NO_PERMISSION: Code.FORBIDDEN,
    ResponseCode.TOPIC_NOT_EXIST: Code.TOPIC_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: Code.ILLEGAL_FILTER_EXPRESSION,
    ResponseCode.FLUSH_DISK_TIMEOUT: Code.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: Code.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: Code.HA_NOT_AVAILABLE,
}


class Refused(Exception):
    """A call is refused, with a status of RocketMQ and a sentence that says why."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


def code_of(response: RemotingCommand) -> int:
    """Return the status for the response to a request of remoting."""
    if response.code == ResponseCode.SUCCESS:
        return OK
    if (response.remark or "").startswith(ACCESS_DENIED):
        return int(Code.UNAUTHORIZED)
    return int(_OF_RESPONSES.get(response.code, INTERNAL_SERVER_ERROR))


def set_status(status: Any, code: int, text: str | None) -> None:
    """Set the `status` of an answer or of an entry; `text` says why it is not OK."""
    status.code = code
    status.message = "OK" if code == OK else text or ""


def sum_up(answer: Any) -> None:
    """Set the status of an answer that has entries."""
    entries = answer.entries
    first = entries[0].status
    codes = {entry.status.code for entry in entries} if len(entries) > 1 else {first.code}
    answer.status.code = first.code if len(codes) == 1 else Code.MULTIPLE_RESULTS
    answer.status.message = first.message


def check(response: RemotingCommand) -> None:
    """Raise Refused unless a request of remoting succeeded."""
    if response.code != ResponseCode.SUCCESS:
        raise Refused(code_of(response), response.remark or f"response code {response.code}")
