"""The text format of Java `.properties` files (java.util.Properties.load): configuration files and config bodies.

    # comment          ! comment
    key=value          key = value        key: value        key value
    long=first part \\
         second part   (leading white space of a continuation line is dropped)
    escapes            \\t \\n \\r \\f \\\\ \\uXXXX (UTF-16 units), any other \\x is x

A value may be empty. The last of several equal keys wins. Trailing white space belongs to the value.
"""

from collections.abc import Iterator, Mapping

MAX_REQUEST_BYTES = 256 * 1024
"""The longest text of a request that updates a configuration. All keys of a broker have some 10 KiB."""

_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPED = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}


class PropertiesError(ValueError):
    """The text is not a properties file; the message gives the line (1-based) and the reason."""

    def __init__(self, line_number: int, reason: str) -> None:
        super().__init__(f"line {line_number}: {reason}")
        self.line_number = line_number
        self.reason = reason


def parse(text: str) -> dict[str, str]:
    """Return key -> value, in order of first appearance. Raise PropertiesError for a malformed \\uXXXX."""
    values: dict[str, str] = {}
    for line_number, line in _logical_lines(text):
        key_end, value_begin = _split(line)
        values[_unescape(line[:key_end], line_number)] = _unescape(line[value_begin:], line_number)
    return values


def parse_request(body: bytes) -> dict[str, str]:
    """Return key -> value of the body of a request. Raise PropertiesError also for a text that is too long or not
    UTF-8."""
    if len(body) > MAX_REQUEST_BYTES:
        raise PropertiesError(1, f"the text has {len(body)} bytes, the longest is {MAX_REQUEST_BYTES}")
    try:
        return parse(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise PropertiesError(1, str(error)) from None


def format(values: Mapping[str, str]) -> str:
    """Return one `key=value` line per entry, in the order of the mapping. `parse` restores the mapping.

    The text is ASCII, since Java reads property files as ISO-8859-1.
    """
    return "".join(f"{_escape(key, key=True)}={_escape(value)}\n" for key, value in values.items())


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number of the first line, line) with continuation lines joined, without comments and blank lines."""
    joined = ""
    began_at = 0
    for line_number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(_BLANKS)
        if not began_at:
            if not line or line[0] in "#!":
                continue
            began_at = line_number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        yield began_at, joined + line
        joined, began_at = "", 0
    if began_at:
        yield began_at, joined


def _split(line: str) -> tuple[int, int]:
    """Return the end of the key and the start of the value. The first unescaped =, : or white space separates them."""
    end = 0
    while end < len(line) and line[end] not in "=:" and line[end] not in _BLANKS:
        end += 2 if line[end] == "\\" else 1
    end = min(end, len(line))
    begin = end
    while begin < len(line) and line[begin] in _BLANKS:
        begin += 1
    if begin < len(line) and line[begin] in "=:":
        begin += 1
        while begin < len(line) and line[begin] in _BLANKS:
            begin += 1
    return end, begin


def _unescape(text: str, line_number: int) -> str:
    if "\\" not in text:
        return text
    parts: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\":
            parts.append(character)
            continue
        if position == len(text):
            break
        escape = text[position]
        position += 1
        if escape == "u":
            digits = text[position : position + 4]
            if len(digits) < 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise PropertiesError(line_number, "\\u must be followed by four hex digits")
            parts.append(chr(int(digits, 16)))
            position += 4
        else:
            parts.append(_ESCAPES.get(escape, escape))
    # Two \u escapes may form a surrogate pair; a lone surrogate, which UTF-8 cannot encode, becomes U+FFFD.
    return "".join(parts).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _escape(text: str, *, key: bool = False) -> str:
    parts: list[str] = []
    for position, character in enumerate(text):
        if character in _ESCAPED:
            parts.append(_ESCAPED[character])
        elif character == " " and (key or position == 0):
            parts.append("\\ ")
        elif key and (character in "=:" or (position == 0 and character in "#!")):
            parts.append("\\" + character)
        elif " " <= character <= "~":
            parts.append(character)
        else:
            units = character.encode("utf-16-be", "surrogatepass")
            parts.extend(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
    return "".join(parts)
