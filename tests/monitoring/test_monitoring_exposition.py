"""The text that a scrape is made of, read back by Prometheus's own parsers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf, isnan, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_text

from triomq.monitoring.exposition import (
    STEP_SECONDS,
    Family,
    Page,
    Samples,
    bounded,
    counter,
    gauge,
    histogram,
    labels,
    number,
    one,
    wants_openmetrics,
)
from triomq.monitoring.histogram import SECONDS, Histogram

PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,text/plain;version=0.0.4;q=0.2,"
    "*/*;q=0.1"
)


def failed(name: str, error: Exception) -> None:
    raise AssertionError(name) from error


def text_of(families: Iterable[Family], *, is_openmetrics: bool = False) -> str:
    return "".join(Page(is_openmetrics=is_openmetrics, on_failure=failed).text(families))


def test_a_counter_a_gauge_and_a_histogram_as_text() -> None:
    times = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        times.observe(value)
    text = text_of(
        [
            counter("a_total", "Of a.", [(labels(x="1"), 2), (labels(x="2"), 3)]),
            gauge("b", "Of b.", one(1.5)),
            histogram("c_seconds", "Of c.", [(labels(y="z"), times)]),
        ]
    )
    assert text == (
        "# HELP a_total Of a.\n# TYPE a_total counter\n"
        'a_total{x="1"} 2\na_total{x="2"} 3\n'
        "# HELP b Of b.\n# TYPE b gauge\nb 1.5\n"
        "# HELP c_seconds Of c.\n# TYPE c_seconds histogram\n"
        'c_seconds_bucket{y="z",le="0.1"} 2\nc_seconds_bucket{y="z",le="1.0"} 3\nc_seconds_bucket{y="z",le="+Inf"} 4\n'
        'c_seconds_sum{y="z"} 7.65\nc_seconds_count{y="z"} 4\n'
    )


def test_openmetrics_names_the_family_without_total_and_says_where_it_ends() -> None:
    text = text_of([counter("a_total", 'Of "a".', one(2))], is_openmetrics=True)
    assert text == '# HELP a Of \\"a\\".\n# TYPE a counter\na_total 2\n# EOF\n'


def test_a_family_without_series_has_no_lines() -> None:
    assert text_of([gauge("a", "Of a.", [])]) == ""


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True), st.text(), max_size=4))
def test_any_label_value_is_read_back(values: dict[str, str]) -> None:
    # No line of the text format may contain a bare carriage return or another separator that the parser splits at.
    values = {name: value for name, value in values.items() if len(value.splitlines()) <= 1 and "\r" not in value}
    values = {name: value for name, value in values.items() if not value.endswith(("\x1c", "\x1d", "\x1e", "\x85"))}
    values = {name: value for name, value in values.items() if value.splitlines() in ([], [value])}
    text = text_of([gauge("a", "Of a.", [(labels(**values), 1)])])
    [family] = read_text(text)
    assert family.samples[0].labels == values


@pytest.mark.parametrize("value", ["back\\slash", 'quo"te', "new\nline", 'all\\n"\n\\', "中文"])
def test_label_values_that_must_be_escaped(value: str) -> None:
    families = [gauge("a", "Of a.", [(labels(topic=value), 1)])]
    [read] = read_text(text_of(families))
    assert read.samples[0].labels == {"topic": value}
    [read] = read_openmetrics(text_of(families, is_openmetrics=True))
    assert read.samples[0].labels == {"topic": value}


@pytest.mark.parametrize(("value", "text"), [(inf, "+Inf"), (-inf, "-Inf"), (nan, "NaN"), (3, "3"), (0.25, "0.25")])
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text
    assert float(text) == value or isnan(value)


@given(st.lists(st.floats(min_value=0, max_value=10)))
def test_a_histogram_counts_every_value_once_and_its_buckets_grow(values: list[float]) -> None:
    times = Histogram()
    for value in values:
        times.observe(value)
    counts = dict(times.cumulative())
    assert list(counts.values()) == [sum(value <= edge for value in values) for edge in (*SECONDS, inf)]
    [family] = read_openmetrics(text_of([histogram("a_seconds", "Of a.", one(times))], is_openmetrics=True))
    assert {sample.name for sample in family.samples} == {"a_seconds_bucket", "a_seconds_sum", "a_seconds_count"}


def test_names_that_end_like_those_of_other_types_are_read_as_gauges() -> None:
    names = ["rocketmq_group_count", "rocketmq_brokeruntime_putmessage_times_total", "triomq_build_info"]
    text = text_of([gauge(name, "A gauge.", one(1)) for name in names], is_openmetrics=True)
    assert [(family.name, family.type) for family in read_openmetrics(text)] == [(name, "gauge") for name in names]


def test_a_walk_is_interrupted_after_each_step_of_time() -> None:
    now = 0.0

    def samples() -> Iterator[tuple[str, int] | int]:
        nonlocal now
        for index in range(10):
            now += 0.6 * STEP_SECONDS
            yield 0 if index == 5 else (labels(i=str(index)), index)

    page = Page(is_openmetrics=False, on_failure=failed, clock=lambda: now)
    pieces = list(page.text([gauge("a", "Of a.", samples())]))
    assert len(pieces) == 6
    assert len(next(iter(read_text("".join(pieces)))).samples) == 9


def test_what_is_beyond_the_limit_is_counted_and_not_computed() -> None:
    computed: list[int] = []

    def sample(key: int) -> tuple[str, int] | None:
        computed.append(key)
        return None if key % 2 else (labels(key=str(key)), key)

    page = Page(is_openmetrics=False, on_failure=failed)
    text = "".join(page.text([gauge("a", "Of a.", bounded(range(1000), 3, sample))]))
    assert [found.labels["key"] for found in next(iter(read_text(text))).samples] == ["0", "2", "4"]
    assert computed == [0, 1, 2, 3, 4]
    assert page.left_out == {"a": 995}


@pytest.mark.parametrize("left_out", [0, 1, 255, 256, 257, 600])
def test_a_long_walk_over_what_is_left_out_pauses_and_counts_all_of_it(left_out: int) -> None:
    """What counts is yielded, so that the walk can be interrupted there."""
    found = list(bounded(range(3 + left_out), 3, lambda key: ("", key)))
    counts = [each for each in found if isinstance(each, int)]
    assert found[:3] == [("", 0), ("", 1), ("", 2)]
    assert (sum(counts), max(counts)) == (left_out, min(left_out, 256))
    assert len(counts) == 1 + left_out // 256


def test_figures_that_fail_cost_only_their_own_lines() -> None:
    failures: list[tuple[str, str]] = []

    def broken() -> Samples:
        yield labels(i="0"), 1
        raise ValueError("gone")

    page = Page(is_openmetrics=True, on_failure=lambda name, error: failures.append((name, str(error))))
    text = "".join(page.text([gauge("a", "Of a.", broken()), gauge("b", "Of b.", one(2))]))
    assert [family.name for family in read_openmetrics(text)] == ["a", "b"]
    assert failures == [("a", "gone")]


@pytest.mark.parametrize(
    ("accept", "is_openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text; version=1.0.0", True),
        ("application/openmetrics-text; version=2.0.0", False),
        ("application/openmetrics-text;q=0.2, text/plain;q=0.9", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=nan", False),
        ("application/openmetrics-text;q=x", False),
        (PROMETHEUS, True),
    ],
)
def test_openmetrics_comes_only_to_who_asks_for_it(accept: str, is_openmetrics: bool) -> None:
    assert wants_openmetrics(accept) is is_openmetrics
