"""What a program can see of the style guide (docs/internals/style.md): comments, docstrings, messages and documents.

A phrase is listed with what to write in its place.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = sorted(path.name for path in (ROOT / "src" / "triomq").iterdir() if path.is_symlink())
SOURCES = sorted(
    path
    for folder in (*ROOMS, "src", "benchmarks", "examples", "docs", "sim", "tests")
    for path in (ROOT / folder).rglob("*.py")
    if "__pycache__" not in path.parts
)
DOCUMENTS = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "benchmarks" / "README.md")
    if path.is_file()
)

# A pattern, and what a native engineer writes.
PHRASES: dict[str, str] = {
    r"\bshall\b": "must, should, or the present tense",
    r"\b(?:is|are|was|were|be|gets?) told\b": "receives, is notified, or says which call",
    r"\bwhoever\b|\bwhomever\b": "name the caller",
    r"\bthe road of\b|\bon the road\b": "the path of",
    r"\bdear things?\b|\bis dear\b": "expensive",
    r"\bsay(?:s)? goodbye\b": "close",
    r"\bin clothes\b": "say what the encoding is",
    r"\bfor good\b": "permanently",
    r"\bso many\b": "the number of",
    r"\bhow (?:it|things?) (?:is|are) with\b": "the state of",
    r"\btwins?\b": "reference implementation, C implementation",
    r"\bfaces\b": "facades",
    r"\banew\b": "again, rebuild, restart",
    r"\b(?:go|goes|went|going) on\b": "continue",
    r"\bstands? (?:once|twice|there)\b": "occurs, is",
    r"\b(?:again and again|over and over)\b": "repeatedly",
    r"\bfor ever\b": "forever, or the bound",
    r"\bin vain\b": "without success",
    r"\bunder way\b": "in flight, in progress",
    r"\btakes? (?:it|them) for\b|\btaken for\b": "treats as, counts as",
    r"\b(?:is|are|be) no (?:record|director|json|text|frame|batch|address|number)\w*": "is not a ...",
    r"\b(?:is|are|was|were) looked (?:at|for)\b": "name who examines or searches",
    r"\bis none any\s?more\b": "say what is unused",
}


LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}


def message_of(node: ast.AST) -> ast.expr | None:
    """Return what holds the text of a message: a call that makes a raised exception, or the event of a log line."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        return node.exc
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOG_METHODS:
        return node.args[0] if node.args else None
    return None


def texts_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of a module's comments, docstrings and messages, or of a document without its code blocks."""
    source = path.read_text()
    if path.suffix == ".md":
        yield 1, re.sub(r"(?ms)^```.*?^```$", "", source)
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text is not None:
                yield node.body[0].lineno, text
        elif (message := message_of(node)) is not None:
            for part in ast.walk(message):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def findings(path: Path) -> list[str]:
    name = path.relative_to(ROOT).as_posix()
    return [
        f"{name}:{line + text.count(chr(10), 0, match.start())}: {match[0]!r}: write {better}"
        for line, text in texts_of(path)
        for pattern, better in PHRASES.items()
        for match in re.finditer(pattern, text, re.IGNORECASE)
    ]


@pytest.mark.parametrize("path", [*SOURCES, *DOCUMENTS], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_prose_follows_the_style_guide(path: Path) -> None:
    assert findings(path) == []


def test_the_rules_see_what_they_forbid(tmp_path: Path) -> None:
    assert re.search(r"\bshall\b", "it shall be")
    program = tmp_path / "x.py"
    messages = ('log.info("it goes on")', 'raise E(f"{n} is no number")')
    program.write_text("\n".join(('"""It shall."""', "# a dear thing", 'text = "shall"', *messages)))
    seen = [text for _, text in texts_of(program)]
    assert sorted(seen) == [" is no number", "# a dear thing", "It shall.", "it goes on"]
    assert all(any(re.search(pattern, text) for pattern in PHRASES) for text in seen)


# Log events.

DAEMONS_AND_CLIENT = [
    path
    for path in SOURCES
    if path.relative_to(ROOT).parts[0] not in ("tests", "docs", "sim", "benchmarks", "examples", "src")
]
PARTICIPLE = re.compile(
    r"\w+ed|begun|broken|built|cut|done|found|given|gone|held|kept|known|learnt|left|lost|made|put|read|reset|sent|set|shown"
    r"|taken|told|torn|withdrawn|written"
)
FINITE_VERB = re.compile(r"is|are|was|were|cannot|can|could|does|do|did|has|have|had|will|says|stops|runs")
ARTICLE = re.compile(r"an?|the|this|that|these|those|there|another|no|nothing", re.IGNORECASE)
# RocketMQ's own lines, which tools parse, and sentences that arrive as they are.
EVENTS_OF_ROCKETMQ = ("[STORETPS] ", "slave fall behind master")


def faults_of_event(event: str) -> str | None:
    """Return what keeps `event` from being a noun and a past participle; what follows `;`, `:` or `,` is free."""
    words = re.split(r"[;:,]", event)[0].split()
    if ARTICLE.fullmatch(words[0]):
        return f"begins with {words[0]!r}"
    verbs = [word for word in words if FINITE_VERB.fullmatch(word)]
    if verbs:
        return f"has the verb {verbs[0]!r}"
    if not any(PARTICIPLE.fullmatch(word) for word in words[1:]):
        return "has no past participle behind its noun"
    return None


def events_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, event) of the log lines of a module whose event is a constant text."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOG_METHODS:
            event = node.args[0] if node.args else None
            if (
                ast.unparse(node.func.value) == "log"
                and isinstance(event, ast.Constant)
                and isinstance(event.value, str)
            ):
                yield event.lineno, event.value


def test_an_event_in_the_log_is_a_noun_and_a_past_participle() -> None:
    faults = [
        f"{path.relative_to(ROOT)}:{line}: {event!r} {fault}"
        for path in DAEMONS_AND_CLIENT
        for line, event in events_of(path.read_text())
        if not event.startswith(("%s", *EVENTS_OF_ROCKETMQ)) and (fault := faults_of_event(event))
    ]
    assert faults == []


@pytest.mark.parametrize(
    ("event", "fault"),
    [
        ("connection refused", None),
        ("consume queues not written; puts are refused until they can be", None),
        ("a hook failed", "begins with 'a'"),
        ("table is written again", "has the verb 'is'"),
        ("no response", "begins with 'no'"),
        ("stopping", "has no past participle behind its noun"),
    ],
)
def test_the_rule_of_events_sees_what_it_forbids(event: str, fault: str | None) -> None:
    assert faults_of_event(event) == fault
    assert list(events_of(f"log.info({event!r}, topic=topic)")) == [(1, event)]
