"""Values as Java prints them: times, doubles, maps in HashMap's order, fastjson's pretty form, toString of RocketMQ's
configuration classes."""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any


# -- times and numbers -------------------------------------------------------------------------------------------------


def date_time(ms: int) -> str:
    """Format as yyyy-MM-dd HH:mm:ss in local time (UtilAll.YYYY_MM_DD_HH_MM_SS)."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000))


def date_time_ms(ms: int) -> str:
    """Format as yyyy-MM-dd HH:mm:ss,SSS in local time (UtilAll.timeMillisToHumanString2)."""
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(ms // 1000))},{ms % 1000:03}"


def iso_time(ms: int) -> str | None:
    """Format as ISO 8601 with zone, for JSON; None for 0, which RocketMQ writes for "never"."""
    if ms <= 0:
        return None
    local = time.localtime(ms // 1000)
    zone = time.strftime("%z", local)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', local)}.{ms % 1000:03}{zone[:3]}:{zone[3:]}"


def parse_time(text: str) -> int:
    """Return the milliseconds of a text: a number, or yyyy-MM-dd#HH:mm:ss:SSS in local time. Raises ValueError."""
    if text.lstrip("-").isdecimal():
        return int(text)
    seconds, separator, fraction = text.rpartition(":")
    if not separator or not fraction.isdecimal():
        raise ValueError(f"{text!r} is not a time: write milliseconds or yyyy-MM-dd#HH:mm:ss:SSS")
    try:
        parsed = time.strptime(seconds, "%Y-%m-%d#%H:%M:%S")
    except ValueError:
        raise ValueError(f"{text!r} is not a time: write milliseconds or yyyy-MM-dd#HH:mm:ss:SSS") from None
    return int(time.mktime(parsed)) * 1000 + int(fraction)


def front(text: str, size: int) -> str:
    """Return at most the first `size` characters (UtilAll.frontStringAtLeast)."""
    return text[:size]


# -- maps in the order of java.util.HashMap ----------------------------------------------------------------------------


def string_hash(text: str) -> int:
    """Return String.hashCode as an unsigned 32-bit number."""
    result = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(data), 2):
        result = (31 * result + (data[index] << 8 | data[index + 1])) & 0xFFFFFFFF
    return result


def queue_hash(topic: str, broker_name: str, queue_id: int) -> int:
    """Return MessageQueue.hashCode."""
    result = 31 + string_hash(broker_name)
    result = 31 * result + queue_id
    return (31 * result + string_hash(topic)) & 0xFFFFFFFF


def hash_ordered(keys: Iterable[Any], hashes: Iterable[int]) -> list[Any]:
    """Return the keys as a HashMap iterates that received them one by one: by bucket, then by arrival."""
    pairs = list(zip(keys, hashes, strict=True))
    buckets = 16
    while len(pairs) > buckets * 3 // 4:
        buckets *= 2
    order = sorted(range(len(pairs)), key=lambda index: (_spread(pairs[index][1]) & (buckets - 1), index))
    return [pairs[index][0] for index in order]


def _spread(number: int) -> int:
    return number ^ number >> 16


def concurrent_order(keys: list[str]) -> list[str]:
    """Return the texts as a ConcurrentHashMap iterates that began with 16 buckets and received them one by one. It
    differs from HashMap where a bucket has several keys. When the table doubles, the last keys of a bucket that go to
    the same half keep their order; each key before them moves to the front of its half.

    It differs from HashMap where a bucket has several keys: when the table doubles, the end of a bucket whose keys stay
    together keeps its order, and the keys before it are put in front of their half one by one.
    """
    buckets: list[list[tuple[int, str]]] = [[] for _ in range(16)]
    for count, key in enumerate(keys, 1):
        number = _spread(string_hash(key)) & 0x7FFFFFFF
        buckets[number & (len(buckets) - 1)].append((number, key))
        if count >= len(buckets) * 3 // 4:
            buckets = _doubled(buckets)
    return [key for bucket in buckets for _, key in bucket]


def _doubled(buckets: list[list[tuple[int, str]]]) -> list[list[tuple[int, str]]]:
    size = len(buckets)
    result: list[list[tuple[int, str]]] = [[] for _ in range(size * 2)]
    for index, bucket in enumerate(buckets):
        run = len(bucket)
        while run > 1 and bucket[run - 2][0] & size == bucket[-1][0] & size:
            run -= 1
        begin = max(0, run - 1)
        for entry in bucket[begin:]:
            result[index + (entry[0] & size)].append(entry)
        for entry in bucket[:begin]:
            result[index + (entry[0] & size)].insert(0, entry)
    return result


def string_map(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of `table` in the order of Java's HashMap."""
    return {key: table[key] for key in hash_ordered(table, [string_hash(key) for key in table])}


def map_text(table: Mapping[Any, Any]) -> str:
    """Format as AbstractMap.toString does, in the given order."""
    return "{" + ", ".join([f"{key}={value}" for key, value in table.items()]) + "}"


# -- fastjson's pretty form --------------------------------------------------------------------------------------------


def pretty_json(value: Any, depth: int = 0) -> str:
    """Format JSON with tabs as fastjson's PrettyFormat does. Number keys have no quotes, and a map of them has its
    entries on one line; a set has its elements on one line, a list has one line for each.
    """
    import json

    inner, outer = "\n" + "\t" * (depth + 1), "\n" + "\t" * depth
    if isinstance(value, dict):
        if not value:
            return "{}"
        has_numbers = all(isinstance(key, int) for key in value)
        entries = [
            f"{key if has_numbers else json.dumps(key, ensure_ascii=False)}:{pretty_json(item, depth + 1)}"
            for key, item in value.items()
        ]
        return "{" + (",".join(entries) if has_numbers else inner + f",{inner}".join(entries)) + outer + "}"
    if isinstance(value, list):
        items = [pretty_json(item, depth + 1) for item in value]
        return "[" + inner + f",{inner}".join(items) + outer + "]" if items else "[]"
    if isinstance(value, tuple):
        return "[" + ",".join([pretty_json(item, depth + 1) for item in value]) + "]"
    return json.dumps(value, ensure_ascii=False)


# -- configuration classes ---------------------------------------------------------------------------------------------


def boolean(value: object) -> str:
    return "true" if value else "false"


def perm_text(perm: int) -> str:
    """Return RW-, R-- and so on (PermName.perm2String)."""
    return ("R" if perm & 4 else "-") + ("W" if perm & 2 else "-") + ("X" if perm & 1 else "-")


def topic_config_text(config: Mapping[str, Any]) -> str:
    """Return the text of TopicConfig.toString."""
    return (
        f"TopicConfig [topicName={config['topicName']}, readQueueNums={config['readQueueNums']}, "
        f"writeQueueNums={config['writeQueueNums']}, perm={perm_text(config['perm'])}, "
        f"topicFilterType={config['topicFilterType']}, topicSysFlag={config['topicSysFlag']}, "
        f"order={boolean(config['order'])}]"
    )


GROUP_FIELDS = (
    "groupName",
    "consumeEnable",
    "consumeFromMinEnable",
    "consumeBroadcastEnable",
    "retryQueueNums",
    "retryMaxTimes",
    "brokerId",
    "whichBrokerWhenConsumeSlowly",
    "notifyConsumerIdsChangedEnable",
)


def group_config_text(config: Mapping[str, Any]) -> str:
    """Return the text of SubscriptionGroupConfig.toString."""
    pairs = [f"{name}={plain(config.get(name))}" for name in GROUP_FIELDS]
    return f"SubscriptionGroupConfig [{', '.join(pairs)}]"


def queue_text(topic: str, broker_name: str, queue_id: int) -> str:
    """Return the text of MessageQueue.toString."""
    return f"MessageQueue [topic={topic}, brokerName={broker_name}, queueId={queue_id}]"


def plain(value: object) -> str:
    """Format a value as Java's string concatenation does."""
    if value is None:
        return "null"
    return boolean(value) if isinstance(value, bool) else str(value)
