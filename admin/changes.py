"""Planning: run a command without changing anything, and list what it would change.

A planning session sends the requests that only read, and turns every other one into steps of a plan, with the state
before it where it can be read. Requests that this module does not know count as changes, so a new command cannot act in
a dry run.
"""

from __future__ import annotations

from triomq.admin import bodies
from triomq.admin.errors import AdminError, UsageError
from triomq.admin.previews import PREVIEWS
from triomq.admin.session import Session
from triomq.protocol.json_frame import Response

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.protocol.change_previews import Step

MAX_STEPS = 10_000

# Requests that change nothing at the peer.
READING = frozenset(
    {
        11,  # PULL_MESSAGE; without an offset to commit
        12,  # QUERY_MESSAGE
        14,  # QUERY_CONSUMER_OFFSET
        21,  # GET_ALL_TOPIC_CONFIG
        26,  # GET_BROKER_CONFIG
        28,  # GET_BROKER_RUNTIME_INFO
        29,  # SEARCH_OFFSET_BY_TIMESTAMP
        30,  # GET_MAX_OFFSET
        31,  # GET_MIN_OFFSET
        33,  # VIEW_MESSAGE_BY_ID
        43,  # GET_ALL_CONSUMER_OFFSET
        52,  # GET_BROKER_CLUSTER_ACL_INFO
        54,  # GET_BROKER_CLUSTER_ACL_CONFIG
        101,  # GET_KV_CONFIG
        105,  # GET_ROUTEINFO_BY_TOPIC
        106,  # GET_BROKER_CLUSTER_INFO
        201,  # GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        202,  # GET_TOPIC_STATS_INFO
        203,  # GET_CONSUMER_CONNECTION_LIST
        204,  # GET_PRODUCER_CONNECTION_LIST
        206,  # GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        208,  # GET_CONSUME_STATS
        219,  # GET_KVLIST_BY_NAMESPACE
        300,  # QUERY_TOPIC_CONSUME_BY_WHO
        305,  # GET_SYSTEM_TOPIC_LIST_FROM_BROKER
        307,  # GET_CONSUMER_RUNNING_INFO
        315,  # VIEW_BROKER_STATS_DATA
        317,  # GET_BROKER_CONSUME_STATS
        319,  # GET_NAMESRV_CONFIG
        321,  # QUERY_CONSUME_QUEUE
        328,  # GET_ALL_PRODUCER_INFO
        30_001,  # QUERY_IN_FLIGHT
        30_004,  # QUERY_DEPARTED_BROKERS
        30_005,  # QUERY_BROKER_TOTALS
    }
)


class TooManySteps(AdminError):
    """The plan has reached MAX_STEPS."""


class ReadingSession(Session):
    """Refuses what would change something."""

    def response_instead(self, address: str, code: int, fields: dict[str, Any], body: bytes) -> Response | None:
        if code not in READING:
            raise UsageError("--watch repeats only commands that change nothing")
        return None


class PlanningSession(Session):
    """`steps` are what the command would have done, in order."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.steps: list[Step] = []

    def response_instead(self, address: str, code: int, fields: dict[str, Any], body: bytes) -> Response | None:
        if code in READING:
            return None
        preview = PREVIEWS.get(code)
        if preview is None:
            self.add({"action": "request", "address": address, "text": f"send request {code} to {address}"})
        else:
            for step in preview(self, address, fields, body):
                self.add({"address": address, **step})
        return Response(0, 0, "", {}, b"{}")

    def add(self, step: Step) -> None:
        if len(self.steps) >= MAX_STEPS:
            raise TooManySteps(f"the plan has more than {MAX_STEPS} steps")
        self.steps.append(step)


def merged(steps: list[Step]) -> list[Step]:
    """Return the steps with a count: equal steps that follow each other are one."""
    result: list[Step] = []
    for step in steps:
        if result and {**result[-1], "times": 1} == {**step, "times": 1}:
            result[-1]["times"] += 1
        else:
            result.append({**step, "times": 1})
    return result


def step_text(step: Step) -> str:
    """Return a line for people."""
    times = f" ({step['times']} times)" if step.get("times", 1) > 1 else ""
    if "before" not in step:
        return f"{step['text']}{times}"
    before, after = (_value_text(step.get(part)) for part in ("before", "after"))
    return f"{step['text']}: {before} -> {after}{times}"


def _value_text(value: Any) -> str:
    """Return the JSON of a value; a dash for one that is not there, as tables have."""
    return "-" if value is None else bodies.dumps(value).decode()
