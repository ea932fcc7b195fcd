"""The tools of an assistant against a cluster that records requests: what they take, return, refuse and change."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from fake_cluster import MESSAGE_ID, FakeCluster, fake_cluster

from triomq.admin.assistant import calls, consents
from triomq.admin.assistant.arguments import input_schema, parsed
from triomq.admin.assistant.calls import Answer, AnswerOutput, CallRun, Desk, Tool
from triomq.admin.assistant.offers import CHANGING, LEFT_OUT, READING
from triomq.admin.assistant.sessions import CallSession
from triomq.admin.changes import READING as READING_CODES
from triomq.admin.errors import UsageError
from triomq.admin.session import Session
from triomq.admin.table import ROWS
from triomq.admin.verb_table import VERBS

LIMITS = {"warn": 1, "crit": 2}
UPDATE_TOPIC, SET_CONFIG = 17, 25


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as found:
        yield found


def desk_of(cluster: FakeCluster, **options: Any) -> Desk:
    return Desk(Session(cluster.address), **{"allow_changes": True, **options})


def arguments_of(name: str, cluster: FakeCluster) -> dict[str, Any]:
    """Return arguments with which a tool that reads finds something."""
    return {
        "tail": {"TOPIC": "T", "queue": 0},
        "offsets show": {"GROUP": "G"},
        "dlq show": {"GROUP": "G", "count": 3},
        "config get": {"KEY": ["brokerName", "key"]},
        "message": {"ID": cluster.offset_id},
        "trace": {"ID": MESSAGE_ID},
        "check lag": LIMITS,
        "check disk": LIMITS,
        "check replication": LIMITS,
        "check registration": {**LIMITS, "broker": ["b"]},
        "top": {"interval": 0.1},
        "topicRoute": {"topic": "T"},
        "topicStatus": {"topic": "T"},
        "brokerStatus": {"brokerAddr": cluster.address},
        "consumerConnection": {"consumerGroup": "G"},
        "producerConnection": {"producerGroup": "P", "topic": "T"},
        "producer": {"broker": cluster.address},
        "consumerStatus": {"consumerGroup": "G"},
        "getConsumerConfig": {"groupName": "G"},
        "getAclConfig": {"clusterName": "C"},
        "queryMsgByKey": {"topic": "T", "msgKey": "k"},
        "quota list": {"broker": cluster.address},
    }.get(name, {})


# What the fake cluster lacks, and what the tools say of it.
WITHOUT = {"pop show": "KeyError", "config diff": "a difference needs two", "quota list": "has no quotas"}


def test_every_command_is_offered_or_left_out_with_a_reason() -> None:
    every = [row[0] for row in ROWS] + [row[0] for row in VERBS]
    assert sorted([*READING, *CHANGING, *LEFT_OUT]) == sorted(every)
    for reason in LEFT_OUT.values():
        assert not reason.startswith("as ") or reason.removeprefix("as ") in READING + CHANGING


@pytest.mark.parametrize("name", READING)
def test_a_tool_that_reads_returns_what_its_schema_says_and_sends_nothing_that_changes(
    name: str, cluster: FakeCluster
) -> None:
    tool = Tool(name, changes=False)
    arguments = arguments_of(name, cluster)
    jsonschema.Draft202012Validator(tool.input_schema).validate(arguments)
    answer = desk_of(cluster, allow_changes=False).answer(tool.name, arguments)
    if name in WITHOUT:
        assert answer.is_error
        assert WITHOUT[name] in answer.text
    else:
        assert (answer.is_error, answer.text) == (False, "")
        jsonschema.Draft202012Validator(tool.output_schema).validate(answer.content)
        assert "hush-hush" not in str(answer.content)
    assert cluster.codes <= READING_CODES


@pytest.mark.parametrize("name", READING + CHANGING)
def test_the_schemas_of_every_tool_are_schemas_of_objects(name: str) -> None:
    tool = Tool(name, changes=name in CHANGING)
    for schema in (tool.input_schema, tool.output_schema):
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
    assert {"namesrvAddr", "help"} & set(tool.input_schema["properties"]) == set()
    assert ("token" in tool.input_schema["properties"]) == tool.changes


def test_options_that_never_end_or_name_files_are_no_arguments() -> None:
    tail = input_schema(Tool("tail", changes=False).program)["properties"]
    assert {"follow", "grep", "format"} & set(tail) == set()
    assert tail["count"] == {"type": "integer", "minimum": 0, "description": "stop after N messages"}
    send = input_schema(Tool("send", changes=True).program)
    assert {"file", "lines", "count", "rate"} & set(send["properties"]) == set()
    assert send["required"] == ["TOPIC", "BODY"]


def test_arguments_are_options_whatever_their_text() -> None:
    offsets = Tool("offsets reset", changes=True).program
    given = {"GROUP": "G", "TOPIC": "--x", "to": "-5", "queue": 3.0, "create": False}
    assert parsed(offsets, given) == {"GROUP": "G", "TOPIC": "--x", "to": "-5", "queue": "3"}
    send = Tool("send", changes=True).program
    given = {"TOPIC": "T", "BODY": "-x", "key": ["a", "b"], "property": ["n=--file=/x"]}
    assert parsed(send, given) == {"TOPIC": "T", "BODY": "-x", "key": "a\0b", "property": "n=--file=/x"}
    update = Tool("updateTopic", changes=True).program
    given = {"topic": "-c", "clusterName": "C", "order": True, "readQueueNums": 4}
    assert parsed(update, given) == {"t": "-c", "c": "C", "o": "true", "r": "4"}


@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("tail", {}, "TOPIC is missing"),
        ("tail", {"TOPIC": "T", "follow": True}, "unknown: follow"),
        ("tail", {"TOPIC": ["T"]}, "TOPIC is a text or a number"),
        ("tail", {"TOPIC": "T\0U"}, "a character that no name has"),
        ("tail", {"TOPIC": "\ud800"}, "TOPIC is not text"),
        ("lag", {"first": {"x": 1}}, "first is a text or a number"),
        ("config diff", {"all": "yes"}, "all is true or false"),
        ("send", {"TOPIC": "T", "BODY": "-"}, "standard input"),
        ("brokerStatus", {}, "an option is missing"),
        ("brokerConfig", {}, "there is no tool"),
        ("explain", {"CODE": "12345"}, "mqadmin explain: '12345' is not a response code"),
    ],
)
def test_what_does_not_fit_is_an_error_with_its_text(
    name: str, arguments: dict[str, Any], text: str, cluster: FakeCluster
) -> None:
    answer = desk_of(cluster).answer(name.replace(" ", "_"), arguments)
    assert answer.is_error
    assert text in answer.text


# -- refusals and limits -----------------------------------------------------------------------------------------------


def test_a_refusal_is_an_error_with_the_exit_status(cluster: FakeCluster) -> None:
    cluster.refusals[105] = (17, "no such topic")
    answer = desk_of(cluster).answer("topicRoute", {"topic": "X"})
    assert answer.content is None
    assert answer.text.endswith("(exit status 3)")
    assert "'X'" in answer.text


def test_what_is_partly_done_has_its_items_and_the_failure(cluster: FakeCluster) -> None:
    cluster.refusals[28] = (1, "busy")
    answer = desk_of(cluster).answer("clusterList", {})
    assert answer.is_error
    assert "busy" in answer.text
    assert answer.content is not None
    assert [item["brokerName"] for item in answer.content["items"]] == ["b"]


def test_the_exit_status_of_a_check_is_a_result(cluster: FakeCluster) -> None:
    answer = desk_of(cluster).answer("check_lag", LIMITS)
    assert answer.content is not None
    assert (answer.is_error, answer.content["exitStatus"]) == (False, 2)


def test_no_address_is_asked_but_those_that_the_name_servers_know(cluster: FakeCluster) -> None:
    with fake_cluster() as other:
        answer = desk_of(cluster).answer("brokerStatus", {"brokerAddr": other.address})
        assert f"{other.address} is not the address of a broker" in answer.text
        answer = desk_of(cluster).answer("message", {"ID": other.offset_id})
        assert answer.is_error
        assert other.requests == []


def test_a_tool_that_reads_cannot_change_whatever_its_command_sends(cluster: FakeCluster) -> None:
    desk = desk_of(cluster)
    desk.tools["updateTopic"].changes = False
    answer = desk.answer("updateTopic", {"topic": "N", "clusterName": "C"})
    assert "the tool only reads" in answer.text
    assert cluster.codes <= READING_CODES


def test_a_call_ends_at_its_time_limit(cluster: FakeCluster) -> None:
    answer = desk_of(cluster, call_seconds=1e-9).answer("lag", {})
    assert "not finished within 1e-09 s, the limit of one call" in answer.text
    answer = desk_of(cluster, call_seconds=5.0).answer("top", {"interval": 60})
    assert "longer than one call may take" in answer.text


def test_a_request_waits_no_longer_than_the_call_may_take(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    original = Session.request

    def request(self: Session, *words: Any, timeout_seconds: float, **options: Any) -> Any:
        waited.append(timeout_seconds)
        return original(self, *words, timeout_seconds=timeout_seconds, **options)

    monkeypatch.setattr(Session, "request", request)
    desk_of(cluster, call_seconds=2.0).answer("queryMsgByKey", {"topic": "T", "msgKey": "k"})
    assert waited
    assert all(0 < seconds <= 2.0 for seconds in waited)


def test_an_answer_has_a_size_and_says_how_many_items_were_left_out(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = desk_of(cluster).answer("explain", {}).content
    assert whole is not None
    answer = desk_of(cluster, answer_bytes=2000).answer("explain", {})
    assert answer.content is not None
    kept = answer.content["items"]
    assert kept == whole["items"][: len(kept)]
    assert answer.content["leftOut"] == len(whole["items"]) - len(kept)
    assert f"{answer.content['leftOut']} more were left out" in answer.text
    assert answer.content["exitStatus"] == 0
    monkeypatch.setattr(calls, "MAX_COUNTED", 3)
    answer = desk_of(cluster, answer_bytes=2000).answer("explain", {})
    assert answer.content is not None
    assert (answer.content["leftOut"], answer.content["exitStatus"]) == (3, None)
    assert "at least 3 more were left out" in answer.text


def test_a_change_is_not_ended_because_its_answer_is_full(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "MAX_COUNTED", 1)
    desk = desk_of(cluster, answer_bytes=1500)
    arguments = {"GROUP": "G", "TOPIC": "T", "to": "first"}
    token = plan_of(desk, "offsets_reset", arguments)["token"]
    monkeypatch.setattr(desk, "_answer_bytes", 10)
    answer = desk.answer("offsets_reset", {**arguments, "token": token})
    assert answer.content is not None
    assert (answer.content["done"], answer.content["items"], answer.content["leftOut"]) == (True, [], 2)


def test_a_long_text_is_cut(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_TEXT", 3)
    answer = desk_of(cluster).answer("message", {"ID": cluster.offset_id})
    assert answer.content is not None
    assert answer.content["items"][0]["body"] == "hel... (2 more characters)"


# -- changes -----------------------------------------------------------------------------------------------------------

TOPIC = {"topic": "N", "clusterName": "C", "readQueueNums": 3}


def plan_of(desk: Desk, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    answer = desk.answer(name, arguments)
    assert not answer.is_error, answer.text
    assert answer.content is not None
    assert answer.content["done"] is False
    jsonschema.Draft202012Validator(desk.tools[name].output_schema).validate(answer.content)
    return answer.content


def refused(answer: Answer, text: str) -> None:
    assert answer.is_error
    assert text in answer.text


def test_changes_are_not_offered_unless_they_are_allowed(cluster: FakeCluster) -> None:
    desk = desk_of(cluster, allow_changes=False)
    assert not any(tool.changes for tool in desk.tools.values())
    refused(desk.answer("updateTopic", TOPIC), "without --allow-changes")


@pytest.mark.parametrize("token", [None, "", "invented", 7])
def test_without_a_token_that_was_given_nothing_is_changed(token: object, cluster: FakeCluster) -> None:
    arguments = TOPIC if token is None else {**TOPIC, "token": token}
    answer = desk_of(cluster).answer("updateTopic", arguments)
    assert answer.is_error == (token is not None)
    assert cluster.codes <= READING_CODES


def test_the_first_call_plans_and_the_second_does_it_once(cluster: FakeCluster) -> None:
    desk = desk_of(cluster)
    plan = plan_of(desk, "updateTopic", TOPIC)
    assert [step["text"] for step in plan["plan"]] == [f"create topic N at {cluster.address}"]
    assert plan["validSeconds"] == consents.VALID_SECONDS
    assert cluster.codes <= READING_CODES
    done = desk.answer("updateTopic", {**TOPIC, "token": plan["token"]})
    assert not done.is_error
    assert done.content is not None
    jsonschema.Draft202012Validator(desk.tools["updateTopic"].output_schema).validate(done.content)
    assert done.content["done"] is True
    assert [code for code, _, _ in cluster.requests].count(UPDATE_TOPIC) == 1
    refused(desk.answer("updateTopic", {**TOPIC, "token": plan["token"]}), "the token is not valid")
    assert [code for code, _, _ in cluster.requests].count(UPDATE_TOPIC) == 1


def test_a_token_is_for_its_own_arguments_and_tool_only(cluster: FakeCluster) -> None:
    desk = desk_of(cluster)
    for name, arguments in (
        ("updateTopic", {**TOPIC, "readQueueNums": 4}),
        ("updateTopic", {**TOPIC, "topic": "O"}),
        ("updateTopicPerm", {"topic": "T", "clusterName": "C", "perm": "4"}),
    ):
        token = plan_of(desk, "updateTopic", TOPIC)["token"]
        refused(desk.answer(name, {**arguments, "token": token}), "the token is not valid")
    assert cluster.codes <= READING_CODES


def test_a_token_is_valid_for_a_while(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = desk_of(cluster)
    token = plan_of(desk, "updateTopic", TOPIC)["token"]
    later = time.monotonic() + consents.VALID_SECONDS
    monkeypatch.setattr(consents.time, "monotonic", lambda: later)
    refused(desk.answer("updateTopic", {**TOPIC, "token": token}), "the token is not valid")


def test_of_many_tokens_the_oldest_is_no_longer_valid(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consents, "MAX_TOKENS", 2)
    desk = desk_of(cluster)
    first, _, third = [plan_of(desk, "updateTopic", TOPIC)["token"] for _ in range(3)]
    refused(desk.answer("updateTopic", {**TOPIC, "token": first}), "the token is not valid")
    assert not desk.answer("updateTopic", {**TOPIC, "token": third}).is_error


def test_another_plan_needs_another_token(cluster: FakeCluster) -> None:
    desk = desk_of(cluster)
    arguments = {"GROUP": "G", "TOPIC": "T", "to": "last"}
    token = plan_of(desk, "offsets_reset", arguments)["token"]
    ends = {14: {"offset": "3"}, 30: {"offset": "9"}}
    original = cluster._fields
    cluster._fields = lambda code: ends.get(code) or original(code)
    original_bodies = cluster._bodies
    cluster._bodies = lambda: {
        code: _with_end(body) if code in (202, 208) else body for code, body in original_bodies().items()
    }
    answer = desk.answer("offsets_reset", {**arguments, "token": token})
    refused(answer, "The plan is another one now")
    assert cluster.codes <= READING_CODES
    assert answer.content is not None
    assert not desk.answer("offsets_reset", {**arguments, "token": answer.content["token"]}).is_error


def _with_end(body: Any) -> Any:
    table = {queue: {**value, "maxOffset": 9, "brokerOffset": 9} for queue, value in body["offsetTable"].items()}
    return {**body, "offsetTable": table}


def test_what_was_there_before_may_change_meanwhile() -> None:
    desk = consents.Consents()
    token = desk.offer("call", [{"action": "setOffset", "before": 1, "after": 0}])
    plan = desk.take(token, "call")
    assert plan is not None
    assert consents.is_plan(plan, [{"action": "setOffset", "before": 2, "after": 0}])
    assert not consents.is_plan(plan, [{"action": "setOffset", "before": 1, "after": 1}])


def test_a_plan_that_has_no_room_in_an_answer_has_no_token(cluster: FakeCluster) -> None:
    answer = desk_of(cluster, answer_bytes=100).answer("offsets_reset", {"GROUP": "G", "TOPIC": "T", "to": "first"})
    refused(answer, "more than an answer has room for")
    assert answer.content is None


def test_a_message_is_sent_where_its_plan_says(cluster: FakeCluster) -> None:
    def run_of(body: str) -> CallRun:
        return CallRun(CallSession(cluster.address), {"TOPIC": "T", "BODY": body}, AnswerOutput(1000, may_stop=True))

    # Which of several brokers has the turn is the same in both calls, and another one for another message.
    assert len({run_of("hello").any_number() for _ in range(5)}) == 1
    assert len({run_of(str(number)).any_number() % 2 for number in range(20)}) == 2
    desk = desk_of(cluster)
    arguments = {"TOPIC": "T", "BODY": "hello", "key": ["k"]}
    for _ in range(5):
        token = plan_of(desk, "send", arguments)["token"]
        assert not desk.answer("send", {**arguments, "token": token}).is_error
    assert len({fields["e"] for code, fields, _ in cluster.requests if code == 310}) == 1


def test_arguments_that_a_command_refuses_have_no_plan(cluster: FakeCluster) -> None:
    refused(desk_of(cluster).answer("updateTopic", {"topic": "N", "clusterName": "unknown"}), "unknown")
    with pytest.raises(UsageError, match="exactly one"):
        parsed(Tool("updateTopic", changes=True).program, {"topic": "N"})
