from typing import Any

import pytest
from golden_data import golden_lines
from hypothesis import given
from hypothesis import strategies as st

from triomq.broker.errors import EvaluationError, FilterError
from triomq.broker.filters.java_values import compare_doubles, double_text, parse_double, parse_integer
from triomq.broker.filters.limits import MAX_EXPRESSION_CHARACTERS
from triomq.broker.filters.sql92 import MAX_CHAINED, MAX_DEPTH, compile_expression


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    return golden_lines("sql92", "cases")


def _result(text: str, properties: dict[str, str]) -> object:
    try:
        return compile_expression(text).evaluate(properties)
    except EvaluationError:
        return "throws"


def test_every_recorded_case_compiles_and_evaluates_as_in_rocketmq(cases: list[dict[str, Any]]) -> None:
    contexts = cases[0]["contexts"]
    assert len(cases) > 300
    for case in cases[1:]:
        text = case["expr"]
        if not case["compiles"]:
            with pytest.raises(FilterError):
                compile_expression(text)
            continue
        assert str(compile_expression(text)) == case["compiled"], text
        expected = ["throws" if str(value).startswith("throws") else value for value in case["result"]]
        assert [_result(text, properties) for properties in contexts] == expected, text
        matches = "".join("1" if _result(text, properties) is True else "0" for properties in contexts)
        assert matches == case["match"], text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 1, column 1: expected a property"),
        ("a >", "line 1, column 4"),
        ("a\n> !", "line 2, column 3: '!' cannot stand here"),
        ("a = 0.0", "less than"),
        ("a = 1e999", "greater than"),
        ("TRUE = 5", "cannot be compared with"),
        ("a BETWEEN NULL AND 5", "can not be null"),
        ("a BETWEEN 5 AND 'x'", "not an integer"),
        ("(" * 500 + "a = 1" + ")" * 500, "nested more than"),
        ("NOT " * 500 + "a", "nested more than"),
        ("(a) OR " * MAX_DEPTH + "(" * MAX_DEPTH + "a" + ")" * MAX_DEPTH, "nested more than"),
        ("a = 1" + " = TRUE" * (MAX_CHAINED + 1), "stand behind others"),
        ("a" + " IS NULL" * (MAX_CHAINED + 2), "stand behind others"),
        ("(a = TRUE = TRUE) = TRUE OR " * (MAX_CHAINED + 1) + "b", "stand behind others"),
        ("a = '" + "x" * MAX_EXPRESSION_CHARACTERS + "'", "characters"),
    ],
)
def test_refusals_say_where_and_why(text: str, reason: str) -> None:
    with pytest.raises(FilterError) as caught:
        compile_expression(text)
    assert reason in str(caught.value)


def test_parentheses_beside_each_other_are_not_nested() -> None:
    text = "(a = 1) OR " * (2 * MAX_DEPTH) + "(" * (MAX_DEPTH // 4) + "a = 1" + ")" * (MAX_DEPTH // 4)
    assert compile_expression(text).evaluate({"a": "1"}) is True


def test_the_deepest_tree_is_evaluated_wherever_the_stack_is() -> None:
    """A filter is evaluated in a commit, too, where an exception stops the store."""
    nested = "NOT (" * (MAX_DEPTH // 6) + "b OR c AND (" * (MAX_DEPTH // 4 - 2)
    text = nested + "a = TRUE" + " = TRUE" * MAX_CHAINED + ")" * nested.count("(")
    tree = compile_expression(text)

    def evaluate_below(frames: int) -> bool | None:
        return evaluate_below(frames - 1) if frames else tree.evaluate({"a": "true", "b": "false", "c": "true"})

    assert evaluate_below(200) is not None


def test_long_chains_are_not_deep() -> None:
    text = " OR ".join(f"a = {number}" for number in range(2500))
    assert compile_expression(text).evaluate({"a": "2499"}) is True


@pytest.mark.parametrize(
    ("text", "properties", "value"),
    [
        ("a = 3000000000", {"a": "3000000000"}, True),
        ("a > -3000000000", {"a": "-2999999999"}, True),
        ("a = -9223372036854775807", {"a": "-9223372036854775807"}, True),
        ("a = 5 -- the rest\n AND b = 6", {"a": "5", "b": "7"}, False),
        ("5 = TRUE", {}, False),
        ("a = 0.5", {"a": "0x1p-1"}, True),
        ("a = 1.5", {"a": "1.5f"}, True),
        ("a > 1.0", {"a": "NaN"}, True),
    ],
)
def test_values(text: str, properties: dict[str, str], value: object) -> None:
    assert compile_expression(text).evaluate(properties) is value


@pytest.mark.parametrize("text", ["", "+", "5 ", "5L", "0x5", "2147483648", "1_000", "5.0", "\U0001d7dd"])
def test_not_java_integers(text: str) -> None:
    with pytest.raises(EvaluationError):
        parse_integer(text, 32)


@pytest.mark.parametrize("text", ["", "x", "1_0.0", "nan", "infinity", "0x1", "1e", "\u0661.\u0665"])
def test_not_java_doubles(text: str) -> None:
    with pytest.raises(EvaluationError):
        parse_double(text)


def test_doubles_order_as_in_java() -> None:
    nan = float("nan")
    assert compare_doubles(nan, nan) == 0
    assert compare_doubles(nan, float("inf")) > 0
    assert compare_doubles(-0.0, 0.0) < 0


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5.0, "5.0"),
        (1e20, "1.0E20"),
        (1.5e-5, "1.5E-5"),
        (12345678.0, "1.2345678E7"),
        (-1e-5, "-1.0E-5"),
        (1e7, "1.0E7"),
        (0.001, "0.001"),
    ],
)
def test_double_text(value: float, text: str) -> None:
    assert double_text(value) == text


@given(st.text(alphabet="ab'5.0<>=() ANDORTINULBEW-+,$\n", max_size=60))
def test_any_text_compiles_or_is_refused(text: str) -> None:
    try:
        compile_expression(text)
    except FilterError:
        return
