"""message: find a message by either kind of id, without knowing its topic or broker."""

from __future__ import annotations

from triomq.admin.cluster_view import broker_table
from triomq.admin.commands.messages import message_of_id, messages_of_key
from triomq.admin.errors import AdminError, NotFound, UsageError
from triomq.admin.message_format import body_text
from triomq.admin.messages import message_item
from triomq.admin.output import printable
from triomq.admin.routes import all_topics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triomq.admin.run import Run
    from triomq.protocol.message import MessageExt


def message(run: Run) -> None:
    found = message_by_id(run, run.get("ID"), run.get("topic"))
    item = message_item(found)
    for name, value in item.items():
        if name not in ("properties", "body", "bodyBase64"):
            run.out.line("%-16s %s" % (name, "-" if value is None else value))
    for name, value in sorted(found.properties.items()):
        run.out.line("%-16s %s" % ("property", printable(f"{name}={value}")))
    run.out.line()
    run.out.line(printable(body_text(found)))
    run.out.item(**item)


def message_by_id(run: Run, text: str, topic: str) -> MessageExt:
    """Return the message of an offset message id, whose first half is a broker's address, or of a unique id."""
    if not text.isalnum() or len(text) not in (32, 56):
        raise UsageError(f"{text!r} is not a message id: ids have 32 hexadecimal digits, or 56 with IPv6")
    at_broker = _of_known_broker(run, text)
    if at_broker is not None:
        return at_broker
    topics = [topic] if topic else sorted(all_topics(run.session))
    for each in topics:
        try:
            return messages_of_key(run, each, text, 32, unique=True)[0]
        except AdminError:
            continue
    places = f"topic {topic!r}" if topic else f"any of {len(topics)} topics"
    raise NotFound(f"no message with id {text} is in {places}: it may be older than the index, or deleted")


def _of_known_broker(run: Run, text: str) -> MessageExt | None:
    """Return the message if the id names one of our brokers; no other address is asked."""
    from triomq.protocol.errors import ProtocolError
    from triomq.protocol.message_id import parse_offset_message_id

    try:
        host, _ = parse_offset_message_id(text)
    except (ProtocolError, ValueError):
        return None
    names = {address: name for name, addresses in broker_table(run).items() for address in addresses.values()}
    if str(host) not in names:
        return None
    try:
        found = message_of_id(run, text)
    except AdminError:
        return None  # a unique id can begin with such an address, too
    found.broker_name = names[str(host)]
    return found
