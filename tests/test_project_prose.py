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

PAGES = sorted(
    path for folder in ("templates", "static") for path in (ROOT / "dashboard" / folder).iterdir() if path.is_file()
)
# Modules whose strings are sentences of the dashboard.
SHOWN = (ROOT / "dashboard", ROOT / "broker" / "views")

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
# Arguments that users read: of settings, and of the parsers of command lines.
EXPLANATIONS = {"meaning", "instead", "help", "description", "epilog"}


def message_of(node: ast.AST) -> ast.expr | None:
    """Return what holds a text that users read: a call that makes a raised exception, the event of a log line, or the
    explanation of a setting or an option."""
    if isinstance(node, ast.keyword) and node.arg in EXPLANATIONS:
        return node.value
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        return node.exc
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOG_METHODS:
        return node.args[0] if node.args else None
    return None


def constants_of(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def texts_of(path: Path, *, is_shown: bool = False) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of what people read in a file.

    Of a module: comments, docstrings (also those of attributes), messages and explanations, and all strings if
    `is_shown`; of a document: all but its code blocks; of other files: all.
    """
    source = path.read_text()
    if path.suffix != ".py":
        is_document = path.suffix == ".md"
        yield (
            1,
            re.sub(r"(?ms)^```.*?^```$", lambda block: "\n" * block[0].count("\n"), source) if is_document else source,
        )
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    tree = ast.parse(source)
    if is_shown:
        yield from constants_of(tree)
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
        elif (message := message_of(node)) is not None:
            yield from constants_of(message)


def findings(path: Path) -> list[str]:
    name = path.relative_to(ROOT).as_posix()
    return [
        f"{name}:{line + text.count(chr(10), 0, match.start())}: {match[0]!r}: write {better}"
        for line, text in texts_of(path, is_shown=any(path.is_relative_to(folder) for folder in SHOWN))
        for pattern, better in PHRASES.items()
        for match in re.finditer(pattern, text, re.IGNORECASE)
    ]


@pytest.mark.parametrize("path", [*SOURCES, *DOCUMENTS, *PAGES], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_prose_follows_the_style_guide(path: Path) -> None:
    assert findings(path) == []


def test_the_rules_see_what_they_forbid(tmp_path: Path) -> None:
    assert re.search(r"\bshall\b", "it shall be")
    program = tmp_path / "x.py"
    messages = ('log.info("it goes on")', 'raise E(f"{n} is no number")')
    explained = (
        '"""So many."""',
        'port = setting("port", 1, meaning="who shall" " listen")',
        'add("-n", help="in vain")',
    )
    program.write_text("\n".join(('"""It shall."""', "# a dear thing", 'text = "shall"', *messages, *explained)))
    seen = [text for _, text in texts_of(program)]
    expected = [" is no number", "# a dear thing", "It shall.", "So many.", "in vain", "it goes on", "who shall listen"]
    assert sorted(seen) == expected
    assert all(any(re.search(pattern, text, re.IGNORECASE) for pattern in PHRASES) for text in seen)
    assert (3, "shall") in texts_of(program, is_shown=True)


def test_the_rules_see_documents_and_pages_with_the_lines_of_their_texts(tmp_path: Path) -> None:
    document, page = tmp_path / "x.md", tmp_path / "x.html"
    document.write_text("```\nshall\n```\nin vain\n")
    page.write_text("<p>{{ t('for good') }}</p>\n")
    assert list(texts_of(document)) == [(1, "\n\n\nin vain\n")]
    assert list(texts_of(page)) == [(1, "<p>{{ t('for good') }}</p>\n")]


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
