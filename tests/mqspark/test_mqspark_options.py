"""Options and columns: what is wrong is said in one line that begins with the option's name."""

from __future__ import annotations

import pytest

from mqspark.columns import check_columns, default_columns
from mqspark.errors import OptionError
from mqspark.options import sink_options, source_options, store_options
from mqspark.positions import EARLIEST, LATEST

GOOD = {"nameServer": "h:9876", "subscribe": "T"}


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
        ({**GOOD, "rowFormat": "avro"}, "option rowFormat: 'avro' is none of rocketmq, kafka"),
        ({**GOOD, "filter": "||"}, "option filter: "),
        ({**GOOD, "accessKey": "a"}, "option accessKey: accessKey and secretKey"),
        (
            {**GOOD, "maxOffsetPerTrigger": "5"},
            "option maxoffsetpertrigger: not known; did you mean maxOffsetsPerTrigger",
        ),
        ({"nameServer": "h:1", "assign": '{"T": 1}'}, "option assign: T: expected"),
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
    with pytest.raises(OptionError, match="option idempotence: 'maybe' is none of batch, none"):
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
