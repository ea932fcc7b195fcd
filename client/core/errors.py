"""Everything this client raises, as one tree, so that `except MQClientError` catches it all.

    MQClientError
    ├── ConfigurationError      a setting or argument is not usable; nothing was sent
    ├── InvalidMessage          this message cannot be sent as it is; nothing was sent
    ├── NotSettled              an acknowledgement that names no message, or one of several; nothing happened
    ├── InvisibleTimeOver       a received message is held no more: it is delivered again
    ├── AcksFailed              some of the messages of one call were not acknowledged; `failures` says which
    ├── LocalOffsetsUnreadable  the file with the offsets of a broadcasting consumer is torn or foreign
    ├── WrongPayload            the body of a message is not what its serializer expects
    ├── RegistryFailed          the schema registry did not respond, or refused
    ├── NoRoute                 no name server knows the topic (or none of its brokers accepts messages)
    ├── NameServersUnreachable  no name server responded
    ├── BrokerUnknown           a broker name that no route mentions
    ├── BrokerUnreachable       no connection, or it broke; whether a broker did the work is not known
    ├── BrokerRefused           the broker responded with an error code; `code` and `remark` say which
    ├── SendFailed              every attempt failed; `attempts` says what happened at each broker
    ├── OperationTimeout        the caller's time limit has passed
    ├── RequestTimedOut         request-reply: no reply arrived in time
    └── ClientClosed            used after leaving (or before entering) its `async with` block

Errors of the connection itself (`remoting.errors`) are converted to these before they reach the caller; the original
is the `__cause__`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from triomq.client.core.rebuilding import Rebuilt
from triomq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from triomq.client.core.received_message import ReceivedMessage


class MQClientError(Rebuilt):
    """Root of all errors of this client."""


class ConfigurationError(MQClientError):
    """A setting, group, topic or expression is not usable; nothing was sent."""


class InvalidMessage(MQClientError):
    """This message cannot be sent as it is (empty body, too large, bad topic name); nothing was sent."""


class NotSettled(MQClientError):
    """An acknowledgement (or `retry_later`) that could mean no message, or several, or one that is settled already.
    Nothing happened; `message.ack()` names its message."""


class InvisibleTimeOver(MQClientError):
    """A message that a `SimpleConsumer` has received is held no more, so it was not acknowledged or extended: its time
    is over and it is delivered again, or an administrator has moved the group."""


class AcksFailed(MQClientError):
    """Some of the messages of one `SimpleConsumer.ack` were not acknowledged; the others were.

    `failures`: (message, error) of each. After a BrokerUnreachable or an OperationTimeout it is not known whether the
    broker did it; such an acknowledgement may be repeated.
    """

    def __init__(self, text: str, failures: Sequence[tuple[ReceivedMessage, MQClientError]] = ()) -> None:
        self.failures = tuple(failures)
        reasons = "; ".join(sorted({f"{type(error).__name__}: {error}" for _, error in failures}))
        super().__init__(f"{text}: {reasons}" if reasons else text)


class LocalOffsetsUnreadable(MQClientError):
    """The file with the offsets of a broadcasting consumer, `path`, is torn, foreign or not readable. `reason` says
    what was found. Nothing was consumed."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(
            f"the offsets in {path} cannot be read: {reason}. Repair or remove the file; without it the consumer "
            "begins where its consume_from says"
        )


class WrongPayload(MQClientError, ValueError):
    """The body of a message is not what its serializer expects. Consumers move such messages to the dead letter
    topic."""


class RegistryFailed(MQClientError):
    """The schema registry did not respond, or refused; nothing is known about the message."""


class NameServersUnreachable(MQClientError):
    """No name server responded; `asked` maps each address to what happened there. `are_wrong`: other kinds of servers
    listen at all of them."""

    def __init__(self, asked: dict[str, str], are_wrong: bool = False) -> None:
        self.asked = asked
        self.are_wrong = are_wrong
        each = "; ".join(f"{address}: {what}" for address, what in asked.items()) or "no address was given"
        advice = "" if are_wrong else " Is the name server running, and is the address right?"
        super().__init__(f"no name server responded ({each}).{advice}")


class NoRoute(MQClientError):
    """No name server knows the topic, or none of its brokers accepts messages."""

    def __init__(self, topic: str, name_servers: Sequence[str], reason: str = "") -> None:
        self.topic = topic
        self.name_servers = tuple(name_servers)
        asked = ", ".join(self.name_servers) or "none"
        super().__init__(
            f"no route for topic {topic!r} (name servers asked: {asked}){': ' + reason if reason else ''}. "
            f"Create it: mqadmin updateTopic -n <name server> -c <cluster> -t {topic}, "
            f"or await Admin(...).create_topic({topic!r}); or let the broker create it on the first send "
            "(autoCreateTopicEnable=true) after it has registered at this name server."
        )


class NoBroker(NoRoute):
    """No broker at all is registered at the name servers: it restarts, or has not started yet."""

    def __init__(self, topic: str, name_servers: Sequence[str]) -> None:
        self.topic = topic
        self.name_servers = tuple(name_servers)
        MQClientError.__init__(
            self,
            f"no route for topic {topic!r}: no broker is registered at the name servers (asked: "
            f"{', '.join(self.name_servers)}). Is one running, with namesrvAddr set to them? After a restart a broker "
            "needs a moment",
        )


class BrokerUnknown(MQClientError):
    """A broker name that no known route mentions, or one without a reachable master."""


class BrokerUnreachable(MQClientError):
    """No connection to a broker could be made, or it broke before the response came."""


class BrokerRefused(MQClientError):
    """The broker (or name server) responded with an error code.

    `code`: the response code (`ResponseCode`). `remark`: its text. `address`: the responder. `action`: what was
    requested.
    """

    def __init__(self, code: int, remark: str | None, *, address: str = "", action: str = "") -> None:
        self.code = code
        self.remark = remark or ""
        self.address = address
        self.action = action
        try:
            name = ResponseCode(code).name
        except ValueError:
            name = _CODES_OF_5.get(code, "unknown code")
        where = f" at {address}" if address else ""
        what = f"{action}{where} was refused" if action else f"the request{where} was refused"
        hint = _HINTS.get(code, "")
        super().__init__(f"{what}: {name} ({code}): {self.remark or 'no remark'}{'. ' + hint if hint else ''}")


_NOT_LEADER_FOR_QUEUE = 501
# Codes that only brokers of RocketMQ 5 send (ResponseCode of 5.3.3).
_CODES_OF_5: dict[int, str] = {
    29: "INVALID_PARAMETER",
    213: "BROADCAST_CONSUMPTION",
    _NOT_LEADER_FOR_QUEUE: "NOT_LEADER_FOR_QUEUE",
    604: "ILLEGAL_OPERATION",
}
_HINTS: dict[int, str] = {
    _NOT_LEADER_FOR_QUEUE: (
        "The topic is a static one of RocketMQ 5 with queues on several brokers, which only clients of its own can use"
    ),
    ResponseCode.TOPIC_NOT_EXIST: (
        "The topic does not exist on this broker; create it (mqadmin updateTopic, or Admin.create_topic) "
        "or start the broker with autoCreateTopicEnable=true"
    ),
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: (
        "The consumer group does not exist on this broker; create it (mqadmin updateSubGroup, or Admin.create_group) "
        "or start the broker with autoCreateSubscriptionGroup=true"
    ),
    ResponseCode.SYSTEM_BUSY: "The broker sheds load; send slower or retry later",
    ResponseCode.MESSAGE_ILLEGAL: "Check the sizes of body and properties against the broker's maxMessageSize",
}


class SendFailed(MQClientError):
    """Every attempt to send failed.

    `attempts`: one text for each attempt ("broker-a: RemotingTimeout: ..."), and one for all that reached no broker in
    the same way ("broker-a: ... (9 times)"); the last cause is the `__cause__`.
    """

    def __init__(self, topic: str, attempts: Sequence[str]) -> None:
        self.topic = topic
        self.attempts = tuple(attempts)
        each = "; ".join(self.attempts)
        super().__init__(f"sending to topic {topic!r} failed: {each}")


class OperationTimeout(MQClientError):
    """The caller's time limit has passed; whether a broker did the work is not known."""


class RequestTimedOut(MQClientError):
    """Request-reply: the request was sent, no reply arrived in time."""


CLOSED = "the consumer is closed: what was not settled is delivered again"


class ClientClosed(MQClientError):
    """Used before it was opened or after it was closed; or it was closed while a call waited."""
