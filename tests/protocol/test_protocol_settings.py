from enum import Enum
from typing import Any

import pytest
from msgspec.structs import replace

from triomq.protocol.settings import (
    SettingError,
    SettingsRecord,
    bind,
    changed,
    declarations,
    retired_setting,
    setting,
    to_text,
)


class Role(Enum):
    ASYNC_MASTER = 0
    SLAVE = 1


class ExampleSettings(SettingsRecord, frozen=True, kw_only=True):
    name: str = setting("brokerName", lambda: "host-1", meaning="name of the broker set", important=True)
    port: int = setting("listenPort", 8888, meaning="port, 0 for a free one", minimum=0, maximum=65535)
    ratio: float = setting("ratio", 0.5, meaning="a part", changeable=True)
    trace: bool = setting("traceOn", True, meaning="trace", changeable=True)
    role: Role = setting("brokerRole", Role.ASYNC_MASTER, meaning="role", important=True)
    address: str | None = setting("haMasterAddress", None, meaning="fixed address", changeable=True)
    tls: bool | None = setting("useTLS", None, meaning="TLS outwards")
    push: bool = setting("enableBatchPush", False, meaning="push", shown_as="isEnableBatchPush", changeable=True)
    count: int = setting("count", 0, meaning="any whole number", changeable=True)
    note: str = "not a setting"


def test_defaults() -> None:
    settings, used = bind(ExampleSettings, {}, source="nothing")
    assert settings == ExampleSettings(name="host-1")
    assert used == set()
    assert [declaration.key for declaration in declarations(ExampleSettings)][:2] == ["brokerName", "listenPort"]


def test_a_record_is_a_value() -> None:
    record: Any = ExampleSettings(name="a", port=1)
    assert record == ExampleSettings(port=1, name="a")
    assert hash(record) == hash(ExampleSettings(port=1, name="a"))
    assert record != replace(record, port=2)
    assert record != "a"
    assert replace(record, port=2) == ExampleSettings(name="a", port=2)
    assert repr(record).startswith("ExampleSettings(name='a', port=1, ratio=0.5, ")
    with pytest.raises(AttributeError, match="immutable"):
        record.port = 3
    with pytest.raises(AttributeError, match="immutable"):
        del record.port
    with pytest.raises(TypeError):
        ExampleSettings("a")  # type: ignore[misc]
    with pytest.raises(AttributeError):
        record.other  # noqa: B018
    unknown: dict[str, Any] = {"prt": 1}
    with pytest.raises(TypeError, match="prt"):
        ExampleSettings(**unknown)


def test_text_becomes_values() -> None:
    values = {
        "brokerName": " a ",
        "listenPort": "10911",
        "ratio": "0.75",
        "traceOn": "FALSE",
        "brokerRole": "SLAVE",
        "haMasterAddress": "1.2.3.4:10912",
        "useTLS": "true",
        "enableBatchPush": "true",
        "unknown": "x",
    }
    settings, used = bind(ExampleSettings, values, source="broker.conf")
    assert settings == ExampleSettings(
        name="a",
        port=10911,
        ratio=0.75,
        trace=False,
        role=Role.SLAVE,
        address="1.2.3.4:10912",
        tls=True,
        push=True,
    )
    assert used == values.keys() - {"unknown"}


def test_listing() -> None:
    settings = ExampleSettings(trace=False)
    assert to_text(settings) == {
        "brokerName": "host-1",
        "listenPort": "8888",
        "ratio": "0.5",
        "traceOn": "false",
        "brokerRole": "ASYNC_MASTER",
        "isEnableBatchPush": "false",
        "count": "0",
    }
    assert to_text(settings, null="")["haMasterAddress"] == ""
    assert to_text(settings, important_only=True) == {"brokerName": "host-1", "brokerRole": "ASYNC_MASTER"}


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("listenPort", "ten", "'ten' is not a whole number"),
        ("listenPort", "", "'' is not a whole number"),
        ("ratio", "nan", "'nan' is not a number"),
        ("ratio", "inf", "'inf' is not a number"),
        ("ratio", "1e19", "'1e19' is not a number"),
        ("count", "9223372036854775808", "'9223372036854775808' is not a whole number"),
        ("count", "-9223372036854775809", "'-9223372036854775809' is not a whole number"),
        ("brokerName", "n" * 65_537, "it has 65537 characters, the longest is 65536"),
        ("listenPort", "1_0", "'1_0' is not a whole number"),
        ("listenPort", "1.5", "'1.5' is not a whole number"),
        ("listenPort", "-1", "-1 is less than the minimum 0"),
        ("listenPort", "65536", "65536 is more than the maximum 65535"),
        ("ratio", "much", "'much' is not a number"),
        ("traceOn", "yes", "'yes' is neither true nor false"),
        ("brokerRole", "MASTER", "'MASTER' is not one of ASYNC_MASTER, SLAVE"),
    ],
)
def test_a_bad_value_names_source_key_and_reason(key: str, text: str, reason: str) -> None:
    with pytest.raises(SettingError) as caught:
        bind(ExampleSettings, {key: text}, source="conf/broker.conf")
    assert str(caught.value) == f"conf/broker.conf: {key}: {reason}"
    assert (caught.value.source, caught.value.key, caught.value.reason) == ("conf/broker.conf", key, reason)


def test_a_minimum_is_not_passed_by_nan() -> None:
    class Bounded(SettingsRecord, frozen=True, kw_only=True):
        ratio: float = setting("ratio", 0.5, meaning="a part", minimum=0, maximum=1)

    with pytest.raises(SettingError):
        bind(Bounded, {"ratio": "nan"}, source="x")


def test_changes_while_running() -> None:
    settings = ExampleSettings()
    after = changed(settings, {"traceOn": "false", "ratio": "0.25", "isEnableBatchPush": "true", "unknown": "1"})
    assert after == ExampleSettings(trace=False, ratio=0.25, push=True)
    assert changed(settings, {"enableBatchPush": "true"}).push
    assert changed(ExampleSettings(address="a:1"), {"haMasterAddress": ""}).address is None


def test_a_whole_listing_may_be_sent_back() -> None:
    settings = ExampleSettings(address="a:1")
    assert changed(settings, to_text(settings)) is settings


class WithRetired(SettingsRecord, frozen=True, kw_only=True):
    limit: int = setting("limit", 1, meaning="limit", changeable=True)
    ceiling: str = retired_setting("ceiling", instead="the limit bounds it")


def test_a_retired_key_takes_any_value_and_has_no_effect() -> None:
    record, used = bind(WithRetired, {"limit": "2", "ceiling": "x" * 70_000}, source="a.conf")
    assert (record, used) == (WithRetired(limit=2), {"limit", "ceiling"})
    assert to_text(record) == {"limit": "2"}
    assert changed(record, {"ceiling": "7"}) is record
    assert changed(record, {"ceiling": "7", "limit": "3"}) == WithRetired(limit=3)


def test_what_may_not_change_is_refused() -> None:
    with pytest.raises(SettingError, match="listenPort: cannot be changed while running"):
        changed(ExampleSettings(), {"listenPort": "1"})
    with pytest.raises(SettingError, match="update: ratio: 'x' is not a number"):
        changed(ExampleSettings(), {"ratio": "x"})


def test_the_largest_values_are_taken() -> None:
    values = {"count": "9223372036854775807", "brokerName": "n" * 65_536}
    settings, _ = bind(ExampleSettings, values, source="broker.conf")
    assert (settings.count, len(settings.name)) == (2**63 - 1, 65_536)
