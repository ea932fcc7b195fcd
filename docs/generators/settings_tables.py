"""Tables of settings, made from their declarations and compared with RocketMQ's defaults.

A declaration says key, default, bounds, unit, meaning, whether an update request may change it while the server runs,
and whether it has an effect. RocketMQ 4.9.7's defaults are in tests/broker/broker_spec.json.
"""

from __future__ import annotations

import enum
import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from triomq.broker.config import BrokerSettings
from triomq.broker.configuration import Configuration
from triomq.broker.settings.ha_tls import HaTlsSettings
from triomq.daemon import configuration as daemon_configuration
from triomq.namesrv.config import NamesrvSettings, namesrv_defaults
from triomq.protocol.settings import Declaration, SettingError, declarations, to_text
from triomq.remoting.config import ClientSettings, ServerSettings
from triomq.remoting.member_tls import MemberTlsSettings
from triomq.remoting.tls import TlsSettings
from triomq.store.config import StoreSettings

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("broker", "store", "remoting", "monitoring", "dashboard", "namesrv", "daemon")
DECLARING = (
    "broker/config.py",
    "store/config.py",
    "store/rocketmq_config.py",
    "remoting/config.py",
    "namesrv/config.py",
)
HOME = Path("/home/me")

BROKER_RECORDS: dict[str, type] = {
    "Broker": BrokerSettings,
    "Store": StoreSettings,
    "Listening side": ServerSettings,
    "Connecting side": ClientSettings,
}
JAVA_NAMES: dict[type, str] = {
    BrokerSettings: "BrokerConfig",
    StoreSettings: "MessageStoreConfig",
    ServerSettings: "NettyServerConfig",
    ClientSettings: "NettyClientConfig",
}
ROCKETMQ_NAMESRV_KEYS = frozenset(
    {"rocketmqHome", "kvConfigPath", "configStorePath", "productEnvName", "clusterTest", "orderMessageEnable"}
)
NEVER_READ_BY_ROCKETMQ = frozenset(
    {
        "flushConsumerOffsetHistoryInterval",
        "filterServerNums",
        "highSpeedMode",
        "commercialEnable",
        "commercialTimerCount",
        "commercialTransCount",
        "commercialBigCount",
        "maxDelayTime",
        "putMsgIndexHightWater",
        "channelNotActiveInterval",
        "clientPooledByteBufAllocatorEnable",
    }
)
"""Keys that 4.9.7 itself declares and never reads."""

MACHINE_DEFAULTS = {
    "rocketmqHome": "`ROCKETMQ_HOME`, else where TrioMQ is installed",
    "namesrvAddr": "`NAMESRV_ADDR`",
    "brokerIP1": "first address other machines reach",
    "brokerIP2": "first address other machines reach",
    "brokerName": "host name",
    "storePathRootDir": "`~/store`",
}
"""Defaults that depend on the surroundings without a formula."""

PORTS = {"broker": "10911", "namesrv": "9876"}


def broker_settings() -> str:
    """Return all settings of the broker, a section for each record."""
    sections = [
        f"## {title}: `{JAVA_NAMES[record]}`\n\n{_table(record, 'broker')}" for title, record in BROKER_RECORDS.items()
    ]
    return "\n\n".join(sections)


def namesrv_settings() -> str:
    """Return all settings of the NameServer."""
    own = f"## NameServer: `NamesrvConfig`\n\n{_table(NamesrvSettings, 'namesrv')}"
    return f"{own}\n\n## Listening side: `NettyServerConfig`\n\n{_table(ServerSettings, 'namesrv')}"


def tls_settings() -> str:
    """Return the tls.* keys."""
    rows = ["| key | default | meaning |", "|---|---|---|"]
    for record in (TlsSettings, HaTlsSettings, MemberTlsSettings):
        for one in declarations(record):
            default = to_text(record()).get(one.key, "")
            rows.append(f"| `{one.key}` | {_code(default)} | {_cell(one.meaning)} |")
    return "\n".join(rows)


def system_properties() -> str:
    """Return the Java system properties that give keys their defaults."""
    rows = ["| property | gives the default of |", "|---|---|"]
    for name, keys in sorted(daemon_configuration._PROPERTY_KEYS.items()):
        rows.append(f"| `{name}` | {', '.join(f'`{key}`' for key in keys)} |")
    return "\n".join(rows)


def differences() -> str:
    """Return the keys of RocketMQ 4.9.7 that are ignored, refused or have another default here, then the keys of
    TrioMQ.
    """
    ignored, own, other_default = [], [], []
    for record in BROKER_RECORDS.values():
        for one in declarations(record):
            apache = apache_defaults(record)
            if one.shown_as not in apache:
                own.append(one.key)
            elif one.ignored:
                ignored.append(one.key)
            elif (theirs := apache[one.shown_as]) is not None and _is_other(one, record, theirs):
                ours = _code(_default_text(one, record, "broker"))
                other_default.append(f"`{one.key}` ({ours}, RocketMQ {_code(theirs)})")
    refused = [f"`{key}={value}`: {reason}" for key, value, reason in refused_values()]
    own += [
        one.key for one in declarations(NamesrvSettings) if one.key not in ROCKETMQ_NAMESRV_KEYS and not one.retired
    ]
    moved = [key for key in own if key in property_keys() and key != "namesrvAddr"]
    own = [key for key in own if key not in moved]
    lines = [
        f"**Honoured**: {_count_honoured()} keys of the broker, with the meaning that RocketMQ 4.9.7 gives them.",
        f"**Accepted and ignored** ({len(set(ignored))}): they may stay in the file and are listed by `-p`, but size "
        "or switch something that does not exist here. Those in italics are read by no code of RocketMQ 4.9.7 either: "
        + ", ".join(_ignored_name(key) for key in dict.fromkeys(ignored))
        + ".",
        "**Refused at the start**: " + "; ".join(refused) + ".",
        "**Another default**: " + (", ".join(other_default) or "none") + ".",
        "**Settings here, only system properties in RocketMQ** (which work here as well): "
        + ", ".join(f"`{key}`" for key in moved)
        + ".",
        "**TrioMQ only**: " + ", ".join(f"`{key}`" for key in dict.fromkeys(own)) + ".",
    ]
    return "\n\n".join(lines)


def _table(record: type, server: str) -> str:
    rows = ["| key | default | changeable | meaning |", "|---|---|---|---|"]
    for one in declarations(record):
        default = _code(_default_text(one, record, server))
        if default and one.unit and default != "`0`":
            default += f" {one.unit}"
        changeable = "yes" if one.changeable and not one.ignored else ""
        rows.append(f"| `{one.key}` | {default} | {changeable} | {_meaning(one, record)} |")
    return "\n".join(rows)


def _meaning(one: Declaration, record: type) -> str:
    apache = ROCKETMQ_NAMESRV_KEYS if record is NamesrvSettings else apache_defaults(record)
    text = _cell(one.meaning)
    if one.ignored:
        why = text.removeprefix("no effect").removeprefix(": ")
        return f"*Accepted and ignored:* {why}" if why else "*Accepted and ignored.*"
    if one.retired:
        return f"*Retired, accepted with a warning:* {text.removeprefix('no effect any more: ')}"
    if bounds := _bounds(one):
        text += f" ({bounds})"
    if one.shown_as in apache:
        return text
    text = text.replace(" (RocketMQ: a system property)", "")
    return f"*RocketMQ: a system property.* {text}" if one.key in property_keys() else f"*TrioMQ only.* {text}"


def rocketmq_keys(record: type) -> set[str]:
    """Return the keys of this record that RocketMQ 4.9.7 knows, in its files or as system properties."""
    known = ROCKETMQ_NAMESRV_KEYS if record is NamesrvSettings else apache_defaults(record)
    return {*known, *property_keys()}


def property_keys() -> set[str]:
    """Return the keys that system properties set; for those that RocketMQ's files do not know, the property is the only
    way.
    """
    return {key for keys in daemon_configuration._PROPERTY_KEYS.values() for key in keys}


@cache
def apache_defaults(record: type) -> dict[str, str | None]:
    """Return key as RocketMQ lists it -> default of 4.9.7 as text or formula; None if it has none."""
    spec: dict[str, dict[str, str | None]] = json.loads((ROOT / "tests/broker/broker_spec.json").read_text())["config"]
    return spec[JAVA_NAMES[record]]


@cache
def _source() -> str:
    paths = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    return "\n".join(path.read_text() for path in paths if path.relative_to(ROOT).as_posix() not in DECLARING)


def is_read(one: Declaration) -> bool:
    """Return whether a module reads the setting; a test compares that with its declaration."""
    declared = "\n".join((ROOT / name).read_text() for name in DECLARING)
    return any(re.search(rf"{owner}\.{one.name}\b", text) for owner, text in (("", _source()), ("self", declared)))


@cache
def refused_values() -> tuple[tuple[str, str, str], ...]:
    """Return values that a broker refuses at its start although their type is right: key, value, reason."""
    found = []
    for record in BROKER_RECORDS.values():
        for one in declarations(record):
            for value in _possible_values(one):
                slave_id = {"brokerId": "1"} if value == "SLAVE" else {}
                try:
                    Configuration.from_values({one.key: value, **slave_id})
                except SettingError as error:
                    found.append((one.key, value, error.reason))
    return tuple(found)


def _possible_values(one: Declaration) -> Iterator[str]:
    if one.type is bool:
        yield from ("true", "false")
    elif isinstance(one.type, type) and issubclass(one.type, enum.Enum):
        yield from one.type.__members__


def _default_text(one: Declaration, record: type, server: str) -> str:
    if one.key == "listenPort":
        return PORTS[server]
    if record is NamesrvSettings:
        text = namesrv_defaults(HOME).get(one.key, "").replace(str(HOME), "~")
        if text:
            return text
    if one.key in MACHINE_DEFAULTS and record is not NamesrvSettings:
        return MACHINE_DEFAULTS[one.key]
    formula = apache_defaults(record).get(one.shown_as) if record is not NamesrvSettings else None
    if formula and ("cpus" in formula or "Nums" in formula):
        return formula.replace("cpus", "CPUs")
    return to_text(record()).get(one.shown_as, "")


def _is_other(one: Declaration, record: type, theirs: str) -> bool:
    if one.key in MACHINE_DEFAULTS or one.key == "listenPort":
        return False
    ours = to_text(record()).get(one.shown_as, "")
    return ours != str(_evaluated(theirs)) if re.search(r"cpus|Nums", theirs) else ours != theirs


def _evaluated(formula: str) -> Any:
    """Return the value of a formula over the number of processors, such as "min(cpus, 4)"."""
    cpus = os.cpu_count() or 1
    names = {"cpus": cpus, "sendMessageThreadPoolNums": min(cpus, 4), "min": min, "max": max}
    return eval(formula, {"__builtins__": {}}, names)


def _count_honoured() -> int:
    return sum(
        not one.ignored and one.shown_as in apache_defaults(record)
        for record in BROKER_RECORDS.values()
        for one in declarations(record)
    )


def _ignored_name(key: str) -> str:
    return f"*`{key}`*" if key in NEVER_READ_BY_ROCKETMQ else f"`{key}`"


def _bounds(one: Declaration) -> str:
    low, high = one.minimum, one.maximum
    if low is not None and high is not None:
        return f"{low:,} to {high:,}"
    return f"≥ {low:,}" if low is not None else f"≤ {high:,}" if high is not None else ""


def _code(text: str) -> str:
    return f"`{text}`" if text and "`" not in text and not text.startswith(("first ", "host ")) else text


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
