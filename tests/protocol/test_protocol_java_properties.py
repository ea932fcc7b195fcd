import pytest
from hypothesis import given
from hypothesis import strategies as st

from triomq.protocol import java_properties
from triomq.protocol.java_properties import MAX_REQUEST_BYTES, PropertiesError, parse_request


def test_reads_what_java_reads() -> None:
    text = (
        "# comment\n"
        "  ! another\n"
        "\n"
        "listenPort=10911\n"
        "namesrvAddr = a:9876;b:9876\r\n"
        "brokerName: broker-a\n"
        "brokerId 0\n"
        "empty=\n"
        "alone\n"
        "deleteWhen=04;\\\n"
        "     16\n"
        "tab=a\\tb\\u00e9\\q\n"
        "with\\ blank\\=key=value # not a comment \n"
        "listenPort=10912"
    )
    assert java_properties.parse(text) == {
        "listenPort": "10912",
        "namesrvAddr": "a:9876;b:9876",
        "brokerName": "broker-a",
        "brokerId": "0",
        "empty": "",
        "alone": "",
        "deleteWhen": "04;16",
        "tab": "a\tb\u00e9q",
        "with blank=key": "value # not a comment ",
    }


def test_a_comment_does_not_continue() -> None:
    assert java_properties.parse("# one \\\nkey=value\\\\\nother=1") == {"key": "value\\", "other": "1"}


def test_the_last_line_may_end_in_a_continuation() -> None:
    assert java_properties.parse("key=value\\") == {"key": "value"}


def test_a_malformed_escape_names_its_line() -> None:
    with pytest.raises(PropertiesError, match=r"^line 2: .*four hex digits$") as caught:
        java_properties.parse("a=1\nb=\\u12x4")
    assert caught.value.line_number == 2


def test_writes_ascii_that_java_reads() -> None:
    assert java_properties.format({"a b": " x=y", "k": "C:\\t\u00e9\U0001f600\n"}) == (
        "a\\ b=\\ x=y\nk=C:\\\\t\\u00e9\\ud83d\\ude00\\n\n"
    )


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(st.dictionaries(_TEXT, _TEXT, max_size=6))
def test_what_is_written_reads_back(values: dict[str, str]) -> None:
    assert java_properties.parse(java_properties.format(values)) == values


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        values = java_properties.parse(text)
    except PropertiesError as error:
        assert "\\u" in str(error)
    else:
        assert java_properties.parse(java_properties.format(values)) == values


def test_the_text_of_a_request_has_its_longest() -> None:
    longest = b"k=" + b"v" * (MAX_REQUEST_BYTES - 2)
    assert len(parse_request(longest)["k"]) == MAX_REQUEST_BYTES - 2
    with pytest.raises(PropertiesError, match=f"the longest is {MAX_REQUEST_BYTES}"):
        parse_request(longest + b"v")
    with pytest.raises(PropertiesError, match="utf-8"):
        parse_request(b"k=\xff")
