"""The families `rocketmq_brokeruntime_*` of rocketmq-exporter: their names, and how they follow from the text of
GET_BROKER_RUNTIME_INFO."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_PUT_TIMES: Final = {
    "0ms": "at most 0 ms",
    "0to10ms": "0 to 10 ms",
    "10to50ms": "10 to 50 ms",
    "50to100ms": "50 to 100 ms",
    "100to200ms": "100 to 200 ms",
    "200to500ms": "200 to 500 ms",
    "500to1s": "500 ms to 1 s",
    "1to2s": "1 to 2 s",
    "2to3s": "2 to 3 s",
    "3to4s": "3 to 4 s",
    "4to5s": "4 to 5 s",
    "5to10s": "5 to 10 s",
    "10stomore": "more than 10 s",
}
_RATES: Final = {
    "put": ("putTps", "Messages stored"),
    "getfound": ("getFoundTps", "Reads that found messages"),
    "getmiss": ("getMissTps", "Reads that found none"),
    "gettotal": ("getTotalTps", "Reads"),
    "gettransfered": ("getTransferedTps", "Messages handed out"),
}
_SECONDS: Final = (10, 60, 600)
_PLAIN: Final = {
    "msg_put_total_today_now": ("msgPutTotalTodayNow", "Messages stored since the start, from any source."),
    "msg_gettotal_today_now": ("msgGetTotalTodayNow", "Messages read since the start."),
    "msg_puttotal_todaymorning": ("msgPutTotalTodayMorning", "Messages stored until last midnight."),
    "msg_puttotal_yesterdaymorning": ("msgPutTotalYesterdayMorning", "Messages stored until the midnight before."),
    "msg_gettotal_todaymorning": ("msgGetTotalTodayMorning", "Messages read until last midnight."),
    "msg_gettotal_yesterdaymorning": ("msgGetTotalYesterdayMorning", "Messages read until the midnight before."),
    "dispatch_behind_bytes": ("dispatchBehindBytes", "Bytes of the log without consume queue entries; always 0."),
    "put_message_size_total": ("putMessageSizeTotal", "Bytes stored since the start."),
    "put_message_average_size": ("putMessageAverageSize", "Mean size of a stored message in bytes."),
    "putmessage_times_total": ("putMessageTimesTotal", "Puts since the start, at least 1."),
    "putmessage_entire_time_max": ("putMessageEntireTimeMax", "Slowest put since the start in ms."),
    "getmessage_entire_time_max": ("getMessageEntireTimeMax", "Slowest read since the start in ms."),
    "put_latency_99": ("putLatency99", "99th percentile of put times in ms."),
    "put_latency_999": ("putLatency999", "99.9th percentile of put times in ms."),
    "send_threadpool_queue_size": ("sendThreadPoolQueueSize", "Unfinished sends."),
    "send_threadpoolqueue_capacity": ("sendThreadPoolQueueCapacity", "Most unfinished sends."),
    "send_threadpoolqueue_headwait_timemills": ("sendThreadPoolQueueHeadWaitTimeMills", "Age of the oldest in ms."),
    "pull_threadpoolqueue_size": ("pullThreadPoolQueueSize", "Unfinished pulls, without held ones."),
    "pull_threadpoolqueue_capacity": ("pullThreadPoolQueueCapacity", "Most unfinished pulls."),
    "pull_threadpoolqueue_headwait_timemills": ("pullThreadPoolQueueHeadWaitTimeMills", "Age of the oldest in ms."),
    "query_threadpoolqueue_size": ("queryThreadPoolQueueSize", "Unfinished queries."),
    "query_threadpool_queue_capacity": ("queryThreadPoolQueueCapacity", "Most unfinished queries."),
    "query_threadpoolqueue_headwait_timemills": ("queryThreadPoolQueueHeadWaitTimeMills", "Age of the oldest in ms."),
    "pagecache_lock_time_mills": ("pageCacheLockTimeMills", "Always 0: there is no such lock."),
    "commitlog_disk_ratio": ("commitLogDiskRatio", "Used part (0 to 1) of the disk of the log."),
    "consumequeue_disk_ratio": ("consumeQueueDiskRatio", "Used part (0 to 1) of the disk of the consume queues."),
    "commitlog_maxoffset": ("commitLogMaxOffset", "End of the log."),
    "commitlog_minoffset": ("commitLogMinOffset", "Start of the log."),
    "remain_transientstore_buffer_numbs": (
        "remainTransientStoreBufferNumbs",
        "Always 2147483647: there is no pool of buffers.",
    ),
    "earliest_message_timestamp": ("earliestMessageTimeStamp", "Store time of the oldest message in ms; -1: none."),
    "start_accept_sendrequest_time": (
        "startAcceptSendRequestTimeStamp",
        "Time in ms since 1970 before which no sends are accepted.",
    ),
    "dispatch_maxbuffer": ("dispatchMaxBuffer", "Always 0."),
}
_EXACT: Final = {
    "commitlogdir_capacity_total": "Size of the disk of the log in bytes.",
    "commitlogdir_capacity_free": "Free bytes on the disk of the log.",
    "remain_howmanydata_toflush": "Bytes of the log that are not yet synced.",
}

RUNTIME_FAMILIES: Final[dict[str, str]] = {
    **{f"pmdt_{name}": f"Puts of the last full minute that took {text}." for name, text in _PUT_TIMES.items()},
    **{name: meaning for name, (_, meaning) in _PLAIN.items()},
    **{
        f"{name}_tps{seconds}": f"{meaning} a second, over {seconds} s."
        for name, (_, meaning) in _RATES.items()
        for seconds in _SECONDS
    },
    **_EXACT,
}
"""Name without its prefix -> meaning."""


def runtime_numbers(values: Mapping[str, str]) -> dict[str, float]:
    """Return the value of every family except those that the text rounds (`_EXACT`)."""
    numbers = {name: _number(values[key]) for name, (key, _) in _PLAIN.items()}
    counts = re.findall(r"\]:(\d+)", values["putMessageDistributeTime"])
    numbers.update({f"pmdt_{name}": int(count) for name, count in zip(_PUT_TIMES, counts, strict=True)})
    for name, (key, _) in _RATES.items():
        rates = values[key].split(" ")
        for place, seconds in enumerate(_SECONDS):
            # A rate over more seconds than the broker has run is missing.
            text = rates[place] if place < len(rates) else ""
            numbers[f"{name}_tps{seconds}"] = float(text) if text else 0.0
    return numbers


def _number(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        return float(text)
