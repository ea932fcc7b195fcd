"""Writes docs/python-client-reference.md from the docstrings of the client. Run it after changing one:

python docs/client_reference.py
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "src"))
TARGET = HERE / "python-client-reference.md"

# Module -> the names that are described, in this order.
MODULES: dict[str, list[str]] = {
    "triomq": [
        "Producer", "TransactionProducer", "reply_to", "QueueSelector", "by_hash", "by_random", "PushConsumer",
        "Delivery",
        "LitePullConsumer", "PullConsumer", "Admin", "Client", "ClientConfig", "Credentials", "ConsumeRules",
        "SendRules", "SendResult", "SendStatus", "TransactionSendResult", "LocalTransactionState", "PullResult",
        "PullStatus", "ConsumeStatus", "RetryLater", "MessageModel", "ConsumeFromWhere", "Message", "MessageExt",
        "Strategy", "Averagely", "AveragelyByCircle", "ConsistentHash", "ByMachineRoom", "MachineRoomNearby",
        "ByConfig", "RequestHook", "SendHook", "SendContext", "EndTransactionHook", "EndTransactionContext",
        "ConsumeHook", "ConsumeContext", "FilterHook", "TraceSender", "MQClientError", "ConfigurationError",
        "InvalidMessage", "NoRoute", "NameServersUnreachable", "BrokerUnknown", "BrokerUnreachable", "BrokerRefused",
        "SendFailed", "OperationTimeout", "RequestTimedOut", "ClientClosed",
    ],
    "triomq.blocking": [],
    "triomq.aio": [],
    "triomq.client.compat": [],
    "triomq.testing": ["LocalCluster", "ProcessCluster", "VirtualClock"],
    "triomq.client.pytest_plugin": [],
}  # fmt: skip

# What the parts of a program need of each other, not what applications call.
INTERNAL = frozenset(
    {
        "add_consumer", "add_producer", "after_consume", "after_send", "before_consume", "before_send",
        "cached_bytes_total", "check_transaction", "closed", "consume_directly", "consume_offsets", "consumed",
        "first_offset", "group", "heartbeat_data", "is_broadcasting", "is_ordered", "is_paused", "offset_illegal",
        "opened", "persist_offsets", "pulled", "queues_changed", "remove_consumer", "remove_producer", "reset_offsets",
        "running_info", "start_soon", "subscription_of", "subscriptions", "topics", "wait_settled", "wake_rebalance",
    }
)  # fmt: skip


def reference() -> str:
    """The whole page."""
    parts = [
        "# Python client: reference\n",
        "Made from the docstrings by `python docs/client_reference.py`. "
        "The guide: [python-client.md](python-client.md).\n",
    ]
    for module_name, names in MODULES.items():
        module = importlib.import_module(module_name)
        parts.append(f"## {module_name}\n")
        parts.append(_text(module))
        for name in names:
            parts.append(_described(name, getattr(module, name)))
    return "\n".join(parts).rstrip() + "\n"


def _described(name: str, thing: Any) -> str:
    if not inspect.isclass(thing):
        return f"### {_signature(name, thing)}\n\n{_text(thing)}"
    lines = [f"### class {_signature(name, thing) if _has_own_signature(thing) else name}\n", _text(thing)]
    if issubclass(thing, enum.Enum):
        lines.append("Values: " + ", ".join(f"`{member.name}`" for member in thing) + ".\n")
        return "\n".join(lines)
    if dataclasses.is_dataclass(thing):
        lines.append(_fields(thing))
    methods = [line for member, value in _members(thing) if (line := _method(member, value))]
    if methods:
        lines.append("\n".join(methods) + "\n")
    return "\n".join(lines)


def _has_own_signature(thing: type) -> bool:
    return "__init__" in vars(thing) and not dataclasses.is_dataclass(thing)


def _members(thing: type) -> list[tuple[str, Any]]:
    found: dict[str, Any] = {}
    for base in reversed(thing.__mro__):
        if base.__module__.startswith("triomq."):
            found.update(vars(base))
    keep_hooks = "Hook" in thing.__name__
    return [
        (name, value)
        for name, value in found.items()
        if not name.startswith("_") and (keep_hooks or name not in INTERNAL or thing.__name__ == "Admin")
    ]


def _method(name: str, value: Any) -> str:
    if isinstance(value, property):
        return f"- `{name}`{_one_line(value.fget)}"
    function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
    if not inspect.isfunction(function):
        return ""
    word = "async " if inspect.iscoroutinefunction(function) else ""
    return f"- `{word}{_signature(name, function, bold=False)}`{_one_line(function)}"


def _signature(name: str, function: Any, *, bold: bool = True) -> str:
    signature = inspect.signature(function)
    parameters = [one for one in signature.parameters.values() if one.name != "self"]
    shown = signature.replace(parameters=[_plain(one) for one in parameters], return_annotation=inspect.Signature.empty)
    text = re.sub(r"<[^<>]*(?:object|function)[^<>]*>", "...", str(shown))
    return f"{name}{text}" if not bold else f"`{name}{text}`"


def _plain(parameter: inspect.Parameter) -> inspect.Parameter:
    """Without the annotation: the docstrings say what is what."""
    return parameter.replace(annotation=inspect.Parameter.empty)


def _one_line(function: Any) -> str:
    text = " ".join((inspect.getdoc(function) or "").split())
    return f": {text}" if text else ""


def _text(thing: Any) -> str:
    text = inspect.getdoc(thing) or ""
    lines = [f"    {line[4:]}" if line.startswith("    ") else line for line in text.splitlines()]
    return "\n".join(lines) + "\n"


def _fields(thing: type) -> str:
    """Fields of a record, each with the docstring that follows it in the source."""
    source = inspect.getsource(thing)
    rows = []
    for field in dataclasses.fields(thing):
        found = re.search(rf'^    {field.name}:[^\n]*\n    """(.*?)"""', source, re.MULTILINE | re.DOTALL)
        meaning = " ".join(found.group(1).split()) if found else ""
        default = "" if field.default is dataclasses.MISSING else f" = {field.default!r}"
        default = re.sub(r"<function (\w+) at [^>]*>", r"\1", default)
        rows.append(f"- `{field.name}{default}`" + (f": {meaning}" if meaning else ""))
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    TARGET.write_text(reference())
