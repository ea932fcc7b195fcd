"""Options and columns: each error is one line that begins with the name of the option."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from triomq.spark.columns import check_columns, default_columns
from triomq.spark.errors import OptionError
from triomq.spark.options import (
    SINK_OPTIONS,
    SOURCE_OPTIONS,
    STORE_OPTIONS,
    sink_options,
    source_options,
    store_options,
)
from triomq.spark.positions import EARLIEST, LATEST
from triomq.spark.source import RocketMQSource
from triomq.spark.store_source import StoreSource

GOOD = {"nameServer": "h:9876", "subscribe": "T"}


def read_by(kind: str, more: dict[str, str]) -> Any:
    """Return the options of a source, a store or a sink, together with those that each requires."""
    if kind == "store":
        return store_options({"path": "/s", **more})
    return sink_options({**GOOD, **more}) if kind == "sink" else source_options({**GOOD, **more}, streaming=False)


NUMBERS = [
    ("source", "maxOffsetsPerTrigger", 1, "max_rows_per_trigger"),
    ("source", "minOffsetsPerTrigger", 1, "min_rows_per_trigger"),
    ("source", "maxTriggerDelayMs", 0, "max_trigger_delay_ms"),
    ("source", "minPartitions", 1, "min_partitions"),
    ("source", "maxRecordsPerPartition", 1, "max_records_per_partition"),
    ("source", "pullBatchSize", 1, "pull_batch_size"),
    ("source", "pullsInFlight", 1, "pulls_in_flight"),
    ("source", "maxRatePerTask", 0, "max_rate_per_task"),
    ("source", "requestTimeoutMs", 1, "connection.request_timeout_ms"),
    ("source", "retryTimeoutMs", 0, "connection.retry_timeout_ms"),
    ("source", "startingTimestamp", 0, "starting.timestamp_ms"),
    ("source", "endingTimestamp", 0, "ending.timestamp_ms"),
    ("store", "minPartitions", 1, "min_partitions"),
    ("store", "maxRecordsPerPartition", 1, "max_records_per_partition"),
    ("store", "startingTimestamp", 0, "begin_ms"),
    ("store", "endingTimestamp", 0, "end_ms"),
    ("store", "startingOffset", 0, "begin_physical"),
    ("store", "endingOffset", 0, "end_physical"),
    ("sink", "retries", 0, "retries"),
    ("sink", "batchBytes", 1024, "batch_bytes"),
    ("sink", "maxRatePerTask", 0, "max_rate_per_task"),
]
FLAGS = [
    ("source", "failOnDataLoss", "fail_on_data_loss"),
    ("source", "includeProperties", "include_properties"),
    ("source", "commitOffsets", "commit_offsets"),
    ("source", "pushDownFilters", "push_down_filters"),
    ("source", "tls.enable", "connection.tls"),
    ("source", "tls.client.authServer", "connection.tls_auth_server"),
    ("store", "failOnDataLoss", "fail_on_data_loss"),
    ("store", "includeProperties", "include_properties"),
    ("store", "pushDownFilters", "push_down_filters"),
    ("sink", "tls.enable", "connection.tls"),
]
CHOICES = [
    ("source", "rowFormat", "row_format", "rocketmq, kafka"),
    ("source", "filterType", "filter_type", "TAG, SQL92"),
    ("store", "rowFormat", "row_format", "rocketmq, kafka"),
    ("store", "split", "split", "segment, queue"),
    ("store", "logEnd", "log_end", "readable, recovered"),
    ("sink", "idempotence", "is_idempotent", "batch, none"),
]
TEXTS = [
    ("source", "consumerGroup", "group"),
    ("source", "filter", "filter"),
    ("source", "subscribe", "topics"),
    ("source", "nameServer", "connection.name_servers"),
    ("source", "tls.client.trustCertPath", "connection.tls_trust_path"),
    ("source", "tls.client.certPath", "connection.tls_cert_path"),
    ("source", "tls.client.keyPath", "connection.tls_key_path"),
    ("source", "tls.client.keyPassword", "connection.tls_key_password"),
    ("source", "securityToken", "connection.security_token"),
    ("store", "commitLogPath", "commit_log_paths"),
    ("store", "subscribe", "topics"),
    ("store", "subscribePattern", "topic_pattern"),
    ("store", "brokerName", "broker_name"),
    ("sink", "topic", "topic"),
    ("sink", "producerGroup", "group"),
    ("sink", "writeId", "write_id"),
]
ELSEWHERE = {  # tested one by one, below or where their effect is tested
    "accessKey",
    "secretKey",
    "secretKeyFile",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "path",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "checkpointLocation",
    "columns",
}


def value_at(options: Any, path: str) -> Any:
    for name in path.split("."):
        options = getattr(options, name)
    return options


@pytest.mark.parametrize(("kind", "name", "least", "field"), NUMBERS)
def test_a_number_is_whole_and_not_less_than_its_least(kind: str, name: str, least: int, field: str) -> None:
    assert value_at(read_by(kind, {name: str(least + 3)}), field) == least + 3
    for text, message in [
        ("7.5", f"option {name}: '7.5' is not a whole number"),
        (str(least - 1), f"option {name}: {least - 1} is less than {least}"),
    ]:
        with pytest.raises(OptionError) as raised:
            read_by(kind, {name: text})
        assert str(raised.value) == message


@pytest.mark.parametrize(("kind", "name", "field"), FLAGS)
def test_a_flag_is_true_or_false_in_any_case(kind: str, name: str, field: str) -> None:
    assert [value_at(read_by(kind, {name: text}), field) for text in ("true", "FALSE")] == [True, False]
    with pytest.raises(OptionError, match=f"^option {re.escape(name)}: 'yes' is neither true nor false$"):
        read_by(kind, {name: "yes"})


@pytest.mark.parametrize(("kind", "name", "field", "choices"), CHOICES)
def test_a_choice_is_one_of_those_listed_in_any_case(kind: str, name: str, field: str, choices: str) -> None:
    found = [value_at(read_by(kind, {name: text.upper()}), field) for text in choices.split(", ")]
    assert found == ([True, False] if name == "idempotence" else choices.split(", "))
    with pytest.raises(OptionError, match=f"^option {name}: 'other' is not one of {choices}$"):
        read_by(kind, {name: "other"})


@pytest.mark.parametrize(("kind", "name", "field"), TEXTS)
def test_a_text_is_trimmed(kind: str, name: str, field: str) -> None:
    assert value_at(read_by(kind, {name: " a:1 "}), field) in ("a:1", ("a:1",))


def test_every_option_is_tested_and_documented() -> None:
    tested = {row[1] for table in (NUMBERS, FLAGS, CHOICES, TEXTS) for row in table} | ELSEWHERE
    every = {*SOURCE_OPTIONS, *STORE_OPTIONS, *SINK_OPTIONS}
    assert every == tested
    text = (Path(__file__).parents[2] / "docs" / "spark.md").read_text("utf-8")
    assert {name for name in every if not re.search(rf"\b{re.escape(name)}\b", text)} <= {"path"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"subscribe": "T"}, "option nameServer: missing"),
        ({"nameServer": "h:9876"}, "option subscribe: give exactly one"),
        ({**GOOD, "assign": "{}"}, "option subscribe: give exactly one"),
        ({**GOOD, "nameServer": "h"}, "option nameServer: 'h' is not host:port"),
        ({"nameServer": "h:1", "subscribePattern": "("}, "option subscribePattern: '\\(' is not a regular expression"),
        ({**GOOD, "startingOffsets": "first"}, "option startingOffsets: 'first' is neither"),
        ({**GOOD, "startingOffsets": "{"}, "option startingOffsets: not JSON"),
        ({**GOOD, "startingOffsets": '{"T":{"b":{"0":"x"}}}'}, "option startingOffsets: T/b: expected"),
        ({**GOOD, "startingTimestamp": "1", "startingOffsets": "earliest"}, "cannot be given together"),
        ({**GOOD, "endingOffsets": "earliest"}, "option endingOffsets: earliest would read nothing"),
        ({**GOOD, "maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger: 0 is less than 1"),
        ({**GOOD, "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "option minOffsetsPerTrigger: 6 is more"),
        ({**GOOD, "failOnDataLoss": "yes"}, "option failOnDataLoss: 'yes' is neither true nor false"),
        ({**GOOD, "rowFormat": "avro"}, "option rowFormat: 'avro' is not one of rocketmq, kafka"),
        ({**GOOD, "filter": "||"}, "option filter: "),
        ({**GOOD, "accessKey": "a"}, "option accessKey: accessKey and secretKey"),
        (
            {**GOOD, "maxOffsetPerTrigger": "5"},
            "option maxoffsetpertrigger: unknown; did you mean maxOffsetsPerTrigger",
        ),
        ({"nameServer": "h:1", "assign": '{"T": 1}'}, "option assign: T: expected"),
        ({"nameServer": "h:1", "assign": "[1]"}, "option assign: expected"),
        ({**GOOD, "startingOffsetsByTimestamp": "12"}, "option startingOffsetsByTimestamp: expected"),
        ({**GOOD, "endingOffsetsByTimestamp": "{"}, "option endingOffsetsByTimestamp: not JSON"),
        ({**GOOD, "endingOffsets": '{"T":1}'}, "option endingOffsets: topic 'T': expected"),
        ({**GOOD, "secretKey": "s"}, "option accessKey: accessKey and secretKey must be given together"),
    ],
)
def test_wrong_source_options(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message) as raised:
        source_options(given, streaming=False)
    assert "\n" not in str(raised.value)


def test_a_stream_has_no_end() -> None:
    with pytest.raises(OptionError, match="option endingOffsets: a stream has no end"):
        source_options({**GOOD, "endingOffsets": "latest"}, streaming=True)


def test_defaults_are_those_of_the_kafka_source() -> None:
    batch = source_options(GOOD, streaming=False)
    assert (batch.starting.default, batch.ending.default) == (EARLIEST, LATEST)
    assert source_options(GOOD, streaming=True).starting.default == LATEST
    assert batch.fail_on_data_loss and batch.include_properties
    assert not source_options({**GOOD, "rowFormat": "kafka"}, streaming=False).include_properties


def test_option_names_have_no_case_and_secrets_are_not_shown() -> None:
    given = {"NAMESERVER": "a:1;b:2", "subscribe": "B, A,", "accesskey": "k", "SecretKey": "s3cret"}
    options = source_options(given, streaming=False)
    assert options.connection.name_servers == ("a:1", "b:2")
    assert options.topics == ("A", "B")
    assert "s3cret" not in repr(options)


def test_store_and_sink_options() -> None:
    with pytest.raises(OptionError, match="option path: missing"):
        store_options({})
    with pytest.raises(OptionError, match="option idempotence: 'maybe' is not one of batch, none"):
        sink_options({"nameServer": "h:1", "idempotence": "maybe"})
    assert store_options({"path": "file:///data/store/"}).root == "/data/store"


def test_columns_that_do_not_exist_or_have_another_type() -> None:
    with pytest.raises(OptionError, match="schema: there is no column 'bdy'; the columns are topic,"):
        check_columns([("bdy", "binary")], "rocketmq")
    with pytest.raises(OptionError, match="schema: column 'body' is binary, not string"):
        check_columns([("body", "string")], "rocketmq")
    assert check_columns([("storeHost", "string"), ("body", "binary")], "rocketmq") == ["storeHost", "body"]
    assert "properties" not in default_columns("rocketmq", False)
    assert list(default_columns("kafka", True))[-1] == "headers"


@pytest.mark.parametrize("source", [RocketMQSource, StoreSource])
def test_a_frame_has_the_columns_that_are_named(source: type[Any]) -> None:
    values = {**GOOD, "path": "/store", "columns": "body, crc"}
    if source is StoreSource:
        del values["nameServer"]
    with pytest.raises(OptionError, match="option columns: there is no column 'crc'; the columns are topic, "):
        source(values).schema()
    assert source({**values, "columns": "body, tags,body"}).schema() == "body binary, tags string"
    kafka = {**values, "columns": "headers", "rowFormat": "kafka"}
    assert source(kafka).schema() == "headers array<struct<key:string,value:binary>>"


@pytest.mark.parametrize(
    ("source", "values", "message"),
    [
        (RocketMQSource, {"subscribe": "T"}, "option nameServer: missing"),
        (RocketMQSource, {**GOOD, "startingofsets": "latest"}, "did you mean startingOffsets"),
        (RocketMQSource, {**GOOD, "minPartitions": "few"}, "option minPartitions: 'few' is not a whole number"),
        (StoreSource, {"path": "/store", "splitt": "queue"}, "did you mean split"),
    ],
)
def test_what_is_wrong_with_options_is_said_when_a_frame_is_made(
    source: type[Any], values: dict[str, str], message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        source(values).schema()
